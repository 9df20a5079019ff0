"""The architecture on one page: what each of the six places promises to the others.

::

    source  →  order  →  read  →  transform  →  batch  →  device

A place never imports another place; it is given the facts it needs, in the types below. Everything here is
about many rows at once: nothing in these contracts is called once per row.

``Source`` and ``OpenSource`` are public: write your own source, and check it with ``check_source``.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from standpipe.contracts.check import check_source
from standpipe.contracts.device import Device, Finish, Mix, OpenDevice, SlotField
from standpipe.contracts.fleet import Fallback, Fleet, OpenFleet, Receiver
from standpipe.contracts.source import (
    Encoded,
    Files,
    HasInstances,
    HasMasks,
    KeepsIndex,
    KnownHere,
    OpenSource,
    Paths,
    PythonSource,
    RaggedRows,
    ReadsRecords,
    Records,
    RepeatsKeys,
    Rows,
    SkipsFiles,
    Source,
    StreamSource,
)
from standpipe.spec import Int64Array

__all__ = [
    "Device",
    "Encoded",
    "Fallback",
    "Files",
    "Finish",
    "Fleet",
    "HasInstances",
    "HasMasks",
    "KeepsIndex",
    "KnownHere",
    "Mix",
    "OpenDevice",
    "OpenFleet",
    "OpenSource",
    "Order",
    "Paths",
    "PythonSource",
    "RaggedRows",
    "ReadsRecords",
    "Receiver",
    "Records",
    "RepeatsKeys",
    "Rows",
    "SkipsFiles",
    "SlotField",
    "Source",
    "StreamSource",
    "Transform",
    "check_source",
]


@runtime_checkable
class Order(Protocol):
    """An order of an epoch: the record at each position, a pure function of (epoch, position)."""

    @property
    def num_positions(self) -> int:
        """The number of positions in an epoch, over all ranks."""

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64, in O(stop
        − start).
        """

    def describe(self) -> str:
        """Return one line for ``explain()``."""


class Transform(Protocol):
    """A description of what happens to a sample."""

    def describe(self) -> str:
        """Return one line for ``explain()`` and the recipe's digest: the class and every parameter."""
