"""Index files: lists of a data set's files, sealed blocks that are read by position."""
