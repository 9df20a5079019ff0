"""Images in tar shards."""
