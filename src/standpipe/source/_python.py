"""Base of opened sources of Python samples, which know little before a sample is made."""

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
        """The declared fields."""
        return self.declared or {}

    @property
    def classes(self) -> None:
        """None: samples contain the labels."""
        return

    @property
    def index_bytes(self) -> int:
        """0: what there is, is the caller's own."""
        return 0

    @property
    def columns(self) -> tuple[str, ...]:
        """No columns: a sample's values are known when it is made."""
        return ()

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Raise ``KeyError``: there are no columns."""
        raise KeyError(name)

    def locate(self, indices: Int64Array) -> Records:
        """Numbers only."""
        return Records(indices)

    def name(self, index: int) -> str | None:
        """Return None: a sample has no name except its number."""
        return None
