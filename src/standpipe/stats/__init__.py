"""Measurements of a run: counters, memory by purpose, bad samples."""
