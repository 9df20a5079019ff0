"""Workers that are native threads, and the GPU's decoder behind them."""
