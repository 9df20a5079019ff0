"""Pack image files into tar shards, check the shards, and restore the files."""
