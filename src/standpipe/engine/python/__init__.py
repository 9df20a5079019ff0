"""Samples that Python code makes, in any kind of worker."""
