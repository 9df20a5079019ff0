"""Digests of code, modules and cache sets."""
