"""Files of a cache: its folder, extents, descriptions and counters."""
