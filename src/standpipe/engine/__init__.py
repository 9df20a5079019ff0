"""The engine: the only code that knows two places at once, and that starts threads."""
