"""The probe: what runs inside a training script that is examined, and writes down facts about its DataLoaders.

It stands in a folder of its own, which is put at the end of the script's ``sys.path``, so that workers started by
``spawn`` find it by name. It needs the standard library only, and imports neither torch, NumPy nor standpipe: whatever
the script does before it imports those has the same effect as without a probe. It judges nothing.
"""
