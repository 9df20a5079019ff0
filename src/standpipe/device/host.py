"""Batches in host memory: the slot itself, lent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.contracts import Finish, Mix, SlotField
from standpipe.spec import UInt8Array


@dataclass(frozen=True, slots=True)
class HostMemory:
    """NumPy arrays over the slot. Satisfies ``contracts.Device``, and ``OpenDevice``: there is nothing to open."""

    lends = True
    mixes = False
    copying_s = 0.0

    def writes(self, finish: Finish) -> Finish:
        """Return ``finish`` unchanged: the pipeline's own form."""
        return finish

    def cpus(self) -> None:
        """Return None: every CPU is equally near to host memory."""

    def check(self) -> None:
        """Do nothing: host memory is always available."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Lines for ``explain()``."""
        return ["host memory: NumPy arrays over the slot, no copy"]

    def open(self, fields: Mapping[str, SlotField], finish: Finish | None) -> HostMemory:
        """Return this object, which needs nothing to be opened."""
        return self

    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Return True: the batch is in host memory already."""
        return True

    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Mix]
    ) -> Mapping[str, Any]:
        """Return the same arrays."""
        return batch

    def settle(self) -> bool:
        """The caller has the slots, and nobody waits for him here."""
        return True

    def rest(self) -> None:
        """Do nothing: no copy is in progress."""

    def close(self) -> bool:
        """Return True: there is nothing to release."""
        return True
