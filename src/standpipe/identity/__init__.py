"""Digests of code, modules and cached sets."""
