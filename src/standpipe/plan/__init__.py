"""From a description to everything that a run needs: sizes, workers, and a forecast of memory."""
