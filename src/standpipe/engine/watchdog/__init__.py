"""Watchdog: log slow work with its stack, then fail it after ``stall_timeout_s``."""
