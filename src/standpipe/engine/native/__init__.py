"""Workers that are native threads."""
