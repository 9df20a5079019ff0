"""Turn a description into everything that a run needs: sizes, workers, and a forecast of memory."""
