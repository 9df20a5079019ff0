"""The loader: it delivers batches and reports about itself."""
