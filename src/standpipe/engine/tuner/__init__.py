"""Find the best number of workers and slots while a loader runs."""
