"""The read place: how encoded bytes come into memory, ahead of need. The reading itself is native."""

from penstock.read.ahead import ReadAhead
from penstock.read.policy import read_policy

__all__ = ["ReadAhead", "read_policy"]
