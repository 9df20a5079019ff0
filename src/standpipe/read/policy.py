"""Convert the settings for failing reads to native code's."""

from __future__ import annotations

from standpipe import _native
from standpipe.spec import Reads


def read_policy(reads: Reads) -> _native.ReadPolicy:
    """The native form of ``reads``, which a plan has checked."""
    return _native.ReadPolicy(reads.retries, reads.backoff_s, reads.hedge_after_s or 0)
