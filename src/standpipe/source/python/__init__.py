"""Samples of Python code: data sets and streams."""
