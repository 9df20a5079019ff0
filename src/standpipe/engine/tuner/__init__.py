"""How many workers and slots are best, found out while a loader runs."""
