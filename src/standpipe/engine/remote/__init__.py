"""Rows that processes outside the trainer make, such as Ray actors: which of them makes what, and both sides' work."""
