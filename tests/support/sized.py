"""A source of images whose sizes are known before they are decoded, without instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from standpipe.contracts import OpenSource, Records, Source
from standpipe.spec import ArraySpec, Int64Array, RaggedSpec


@dataclass(frozen=True)
class Sized:
    """The images of a source that knows their sizes, and the files, numbers and texts beside them."""

    source: Source
    beside: Source | None = None

    def open(self) -> OpenSource:
        opened: Any = self.source.open()
        return _Opened(opened, None if self.beside is None else self.beside.open())

    def describe(self) -> str:
        return f"Sized({self.source.describe()})"


@dataclass(frozen=True)
class _Opened:
    """``source``, and all fields of ``beside`` but the image; what isn't here is the source's own."""

    source: OpenSource
    beside: OpenSource | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @property
    def fields(self) -> Mapping[str, ArraySpec | Any]:
        further = {} if self.beside is None else dict(self.beside.fields)
        own = {name: spec for name, spec in self.source.fields.items() if not isinstance(spec, RaggedSpec)}
        return {**further, **own}

    def locate(self, indices: Int64Array) -> Records:
        found = replace(self.source.locate(indices), ragged={})
        if self.beside is None:
            return found
        beside = self.beside.locate(indices)
        return replace(
            found,
            files={**beside.files, **found.files},
            plain={**beside.plain, **found.plain},
            texts=beside.texts,
        )
