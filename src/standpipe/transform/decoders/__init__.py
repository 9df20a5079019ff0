"""The decoder other than the native one, Pillow, and its verdicts on bad files."""
