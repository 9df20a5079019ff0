"""Worker processes, and the server that forks them."""
