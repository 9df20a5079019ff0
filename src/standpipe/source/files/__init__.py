"""Images in files: a folder of class folders, or a list of paths."""
