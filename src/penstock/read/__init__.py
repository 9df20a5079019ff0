"""The read place: how encoded bytes come into memory, ahead of need. The reading itself is native."""

from penstock.read.ahead import ReadAhead

__all__ = ["ReadAhead"]
