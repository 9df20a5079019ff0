"""The engine runs a plan: its threads and processes fill slots. README.md in this folder describes it."""
