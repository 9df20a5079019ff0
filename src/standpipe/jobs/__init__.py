"""Read samples without training: filter scans, cache fills, file checks, read measurements."""
