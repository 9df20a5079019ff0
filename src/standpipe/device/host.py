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
        """As the pipeline says."""
        return finish

    def cpus(self) -> None:
        """All are alike."""

    def check(self) -> None:
        """It is there."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Lines for ``explain()``."""
        return ["host memory: NumPy arrays over the slot, no copy"]

    def open(self, fields: Mapping[str, SlotField], finish: Finish | None) -> HostMemory:
        """Itself."""
        return self

    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """It is where it shall be."""
        return True

    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Mix]
    ) -> Mapping[str, Any]:
        """The same arrays."""
        return batch

    def settle(self) -> bool:
        """The caller has the slots, and nobody waits for him here."""
        return True

    def rest(self) -> None:
        """Nothing is on its way."""

    def close(self) -> bool:
        """Nothing was taken."""
        return True
