"""Sources of Arrow tables, whose images are read in place from mapped files."""
