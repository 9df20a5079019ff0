"""Records of one size and arrays, which are read by position."""
