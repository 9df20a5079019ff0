"""The base class of opened sources of Python samples."""

from __future__ import annotations

from collections.abc import Mapping

from standpipe.contracts import Encoded, Records
from standpipe.spec import AnyArray, ArraySpec, Int64Array, RaggedSpec


class OpenPython:
    """A partial ``contracts.OpenSource``, with the members that all Python sources have in common.

    declared  declared shape and dtype of each field of a sample, or None
    """

    __slots__ = ()
    declared: Mapping[str, ArraySpec] | None

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded | RaggedSpec]:
        """The declared fields."""
        return self.declared or {}

    @property
    def classes(self) -> None:
        """Class names, which Python sources don't have: None."""
        return

    @property
    def index_bytes(self) -> int:
        """Memory of an index, in bytes: 0, since the caller owns the dataset."""
        return 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: none, since a sample's values are unknown before it is made."""
        return ()

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Raise ``KeyError``: there are no columns."""
        raise KeyError(name)

    def locate(self, indices: Int64Array) -> Records:
        """Return the record numbers alone."""
        return Records(indices)

    def name(self, index: int) -> str | None:
        """Return None: a sample has no name except its number."""
        return None
