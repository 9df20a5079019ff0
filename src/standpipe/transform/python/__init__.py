"""Python functions of a sample or a batch, and what is known about them and their values."""
