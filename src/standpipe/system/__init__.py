"""The machine, the launcher, other loaders, files, and faults that are made on purpose."""
