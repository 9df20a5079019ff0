"""Find the best number of workers while a loader runs."""
