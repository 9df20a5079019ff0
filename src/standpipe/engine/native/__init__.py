"""Slots filled by the native pool."""
