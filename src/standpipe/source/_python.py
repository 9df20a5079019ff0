"""What opened sources of samples in Python share: they know little before a sample is taken."""

from __future__ import annotations

from collections.abc import Mapping

from standpipe.contracts import Records
from standpipe.spec import AnyArray, ArraySpec, Int64Array


class OpenPython:
    """The part of ``contracts.OpenSource`` in which they don't differ.

    declared  what samples look like, by field, or None
    """

    __slots__ = ()
    declared: Mapping[str, ArraySpec] | None

    @property
    def fields(self) -> Mapping[str, ArraySpec]:
        """What was declared."""
        return self.declared or {}

    @property
    def classes(self) -> None:
        """None: labels are what samples hold."""
        return

    @property
    def index_bytes(self) -> int:
        """0: what there is, is the caller's own."""
        return 0

    @property
    def columns(self) -> tuple[str, ...]:
        """None: what a sample holds shows when it is taken."""
        return ()

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """There is none."""
        raise KeyError(name)

    def locate(self, indices: Int64Array) -> Records:
        """Numbers only."""
        return Records(indices)

    def name(self, index: int) -> str | None:
        """None: a sample has no name but its number."""
        return None
