"""The cache that several jobs share: rows of a data set, kept in memory and on disk."""
