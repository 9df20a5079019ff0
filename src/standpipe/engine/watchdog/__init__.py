"""Who has been at one thing for long, and where."""
