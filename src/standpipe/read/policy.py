"""Convert the settings for reads that fail or take long to the form that native code takes."""

from __future__ import annotations

from standpipe import _native
from standpipe.spec import ReadOptions


def read_policy(reads: ReadOptions) -> _native.ReadPolicy:
    """Return the native form of ``reads``: retries, backoff and hedging. A plan has checked the values."""
    return _native.ReadPolicy(reads.retries, reads.backoff_s, reads.hedge_after_s or 0)
