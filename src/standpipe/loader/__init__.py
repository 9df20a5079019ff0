"""A loader: what hands out batches, and what it says of itself."""
