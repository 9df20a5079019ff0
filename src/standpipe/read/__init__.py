"""The read place: how encoded bytes come into memory, ahead of need. The reading itself is native."""

from standpipe.read.ahead import ReadAhead
from standpipe.read.policy import read_policy

__all__ = ["ReadAhead", "read_policy"]
