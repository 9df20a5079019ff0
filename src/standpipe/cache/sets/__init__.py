"""Sets of cached rows: found, made, opened, grown and removed."""
