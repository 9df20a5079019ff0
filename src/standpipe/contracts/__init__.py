"""The architecture on one page: what each of the six places promises to the others.

::

    source  →  order  →  read  →  transform  →  batch  →  device

A place never imports another place; it is given the facts it needs, in the types below. Everything here is
about many rows at once: nothing in these contracts is called once per row.

``Source`` and ``OpenSource`` are public: write your own source, and check it with ``check_source``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from standpipe.contracts.check import check_source
from standpipe.contracts.device import Device, Finish, Mix, OpenDevice, SlotField
from standpipe.contracts.source import (
    Encoded,
    Files,
    KeepsIndex,
    KnownHere,
    OpenSource,
    Paths,
    PythonSource,
    ReadsRecords,
    Records,
    Rows,
    SkipsFiles,
    Source,
    StreamSource,
)
from standpipe.spec import ArraySpec, Int64Array

__all__ = [
    "Device",
    "Encoded",
    "Files",
    "Finish",
    "KeepsIndex",
    "Kernel",
    "KnownHere",
    "Mix",
    "OpenDevice",
    "OpenSource",
    "Order",
    "Paths",
    "PythonSource",
    "ReadsRecords",
    "Records",
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
    """The order of an epoch: which record comes at each position, a pure function of (epoch, position)."""

    @property
    def num_positions(self) -> int:
        """Positions in one epoch's global order."""

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Record numbers of positions [start, stop) of an epoch, (stop − start,) int64. O(stop − start)."""

    def describe(self) -> str:
        """One line for ``explain()``."""


@runtime_checkable
class Transform(Protocol):
    """A description of what happens to a sample. It names the fields it reads and writes."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields it reads."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the fields it writes."""

    def describe(self) -> str:
        """One line for ``explain()`` and the recipe's digest: the class and every parameter."""


class Kernel(Protocol):
    """Adjacent transforms made one: encoded bytes or (H, W, 3) uint8 rows in, rows of the slot out."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields it reads from the records."""

    @property
    def outputs(self) -> Mapping[str, ArraySpec]:
        """The fields of the slot it fills, with what one row of each looks like."""

    def describe(self) -> str:
        """One line for ``explain()``."""
