"""The description of a training input: frozen values that only store."""
