"""Deliver batches in host memory: the caller gets NumPy arrays over the slot itself, without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.contracts import Finish, Mix, SlotField
from standpipe.spec import UInt8Array


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The device for host memory: a batch is NumPy arrays over its slot.

    It implements ``contracts.Device`` and ``contracts.OpenDevice``, because host memory needs no opening.
    """

    lends = True
    same_shapes = False
    mixes = False
    copying_s = 0.0

    def writes(self, finish: Finish) -> Finish:
        """Return ``finish`` unchanged: host memory has values in the form that the pipeline describes."""
        return finish

    def cpus(self) -> None:
        """Return None: every CPU is equally near to host memory."""

    def check(self) -> None:
        """Do nothing: host memory is always available."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Return the lines of ``explain()`` about this device."""
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
        """Return ``batch`` unchanged: the caller gets the arrays over the slot."""
        return batch

    def settle(self) -> bool:
        """Return True: no copy from a slot is in progress, so there is nothing to wait for."""
        return True

    def rest(self) -> None:
        """Do nothing: no copy is in progress."""

    def close(self) -> bool:
        """Return True: there is nothing to release."""
        return True
