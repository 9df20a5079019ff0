"""Several sources one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.contracts import (
    Encoded,
    Files,
    KeepsIndex,
    OpenSource,
    Paths,
    PythonSource,
    Records,
    Rows,
    Source,
)
from penstock.errors import PlanError
from penstock.spec import AnyArray, Int64Array, Spec


class Concat:
    """The records of several sources, those of the first one first, numbered on from one to the next.

    sources  two or more, with the same fields of the same shapes and dtypes, and the same classes if labels are
             classes. A source that is given twice is opened once

    Fields with more than one number per record that lie in memory must be in one array: those of ``Arrays`` that
    aren't the same object can't be concatenated so; join them with ``np.concatenate``.
    """

    __slots__ = ("_sources",)

    def __init__(self, *sources: Source) -> None:
        self._sources = sources

    def open(self) -> OpenSource:
        """Open all of them.

        Raises ``PlanError`` as they do, and when their fields or classes differ, with what differs.
        """
        return open_concat(self._sources, asked_by="Concat")

    def describe(self) -> str:
        """One line for ``explain()``."""
        return f"Concat({', '.join(_described(source) for source in self._sources)})"


def open_concat(sources: tuple[Source, ...], *, asked_by: str) -> OpenConcat:
    """Open sources, each object once, and check that they fit each other. Raises ``PlanError`` with ``asked_by``."""
    if len(sources) < 2:
        raise PlanError(f"{asked_by} takes two or more, not {len(sources)}")
    for source in sources:
        if isinstance(source, type) or not isinstance(source, Source):
            raise PlanError(f"{asked_by} takes sources such as ImageFolder(path), not {source!r}")
    opened: list[OpenSource] = []
    for number, source in enumerate(sources):
        same = next((i for i in range(number) if sources[i] is source), None)
        opened.append(source.open() if same is None else opened[same])
    for source, part in zip(sources[1:], opened[1:], strict=True):
        if difference := _difference(opened[0], part):
            raise PlanError(
                f"{asked_by}: {source.describe()} differs from {sources[0].describe()}: {difference}"
            )
    if any(isinstance(part, PythonSource) for part in opened):
        raise PlanError(
            f"{asked_by}: datasets in Python are joined in Python, as torch's ConcatDataset does: "
            "Indexed(ConcatDataset([a, b]))"
        )
    _check_arrays(opened, asked_by)
    return OpenConcat(tuple(opened))


@dataclass(frozen=True, eq=False)
class OpenConcat:
    """Opened sources with the same fields: an ``OpenSource``."""

    parts: tuple[OpenSource, ...]

    @cached_property
    def begins(self) -> Int64Array:
        """(parts + 1,) int64: the number of each part's first record, and at last how many records there are."""
        return np.cumsum([0, *(part.num_records for part in self.parts)])

    @property
    def num_records(self) -> int:
        """Of all parts."""
        return int(self.begins[-1])

    @property
    def fields(self) -> Mapping[str, Spec | Encoded]:
        """Those of each part."""
        return self.parts[0].fields

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that all parts have."""
        return tuple(
            name for name in self.parts[0].columns if all(name in part.columns for part in self.parts)
        )

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """A column of the records [start, stop), in a dtype that holds every part's."""
        if name not in self.columns:
            raise KeyError(name)
        if not 0 <= start <= stop <= self.num_records:
            raise IndexError(f"records [{start}, {stop}) of {self.num_records}")
        limits = zip(self.parts, self.begins[:-1].tolist(), self.begins[1:].tolist(), strict=True)
        pieces = [
            part.column(name, min(max(start, begin), end) - begin, max(min(stop, end), begin) - begin)
            if start < end and begin < stop
            else part.column(name, 0, 0)
            for part, begin, end in limits
        ]
        return np.concatenate(pieces)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Those of each part."""
        return self.parts[0].classes

    @cached_property
    def digest(self) -> str:
        """Of the parts' digests, in their order."""
        from hashlib import blake2b  # loads OpenSSL, which importing penstock needn't

        digests = ",".join(part.digest for part in self.parts)
        return blake2b(f"concat 1: {digests}".encode(), digest_size=16).hexdigest()

    @property
    def index_bytes(self) -> int:
        """Of all parts; one that is there twice counts once."""
        return sum(part.index_bytes for part in self._different())

    @property
    def index_note(self) -> str:
        """Where the parts' indexes are."""
        return (
            "; ".join(part.index_note for part in self._different() if isinstance(part, KeepsIndex))
            or "no index"
        )

    @property
    def descriptors(self) -> int:
        """Files that the parts hold open."""
        return sum(part.descriptors for part in self._different() if isinstance(part, KeepsIndex))

    def locate(self, indices: Int64Array) -> Records:
        """Ask each part for its records, and put them in the order asked."""
        part_of = np.searchsorted(self.begins, indices, side="right") - 1
        numbers = np.unique(part_of).tolist() or [0]
        rows = [np.flatnonzero(part_of == number) for number in numbers]
        found = [
            self.parts[number].locate(indices[mine] - self.begins[number])
            for number, mine in zip(numbers, rows, strict=True)
        ]
        return _merged(indices, found, np.argsort(np.concatenate(rows)))

    def _different(self) -> list[OpenSource]:
        return list({id(part): part for part in self.parts}.values())

    def name(self, index: int) -> str | None:
        """As the part has it."""
        number = int(np.searchsorted(self.begins, index, side="right")) - 1
        return self.parts[number].name(index - int(self.begins[number]))


def _merged(indices: Int64Array, found: list[Records], order: Int64Array) -> Records:
    """Records of several parts as one.

    order  (n,) int64: where each record is among all that were found, part after part
    """
    first = found[0]
    files = {name: _merged_files([each.files[name] for each in found], order) for name in first.files}
    rows = {
        name: Rows(first.rows[name].array, np.concatenate([each.rows[name].rows for each in found])[order])
        for name in first.rows
    }
    plain = {name: np.concatenate([each.plain[name] for each in found])[order] for name in first.plain}
    return Records(indices, files=files, rows=rows, plain=plain)


def _merged_files(found: list[Files], order: Int64Array) -> Files:
    blobs = [files.paths.blob for files in found]
    shifts = np.cumsum([0, *(len(blob) for blob in blobs[:-1])])
    ends = [files.paths.ends + shift for files, shift in zip(found, shifts, strict=True)]
    paths = Paths(np.concatenate(blobs), np.concatenate(ends))
    return Files(
        paths.take(order),
        np.concatenate([files.offset for files in found])[order],
        np.concatenate([files.length for files in found])[order],
    )


def _difference(first: OpenSource, other: OpenSource) -> str | None:
    """What keeps two sources from being one, in words; None when nothing does."""
    for name in sorted({*first.fields, *other.fields}):
        mine, theirs = first.fields.get(name), other.fields.get(name)
        if mine is None or theirs is None:
            return f"it has {'a' if mine is None else 'no'} field {name!r}"
        if mine != theirs:
            return f"its field {name!r} is {theirs}, not {mine}"
    if first.classes == other.classes:
        return None
    if first.classes is None or other.classes is None:
        return "the labels of one are class names, those of the other plain numbers"
    for what, more in (
        ("has", {*other.classes} - {*first.classes}),
        ("lacks", {*first.classes} - {*other.classes}),
    ):
        if more:
            return f"it {what} the {'class' if len(more) == 1 else 'classes'} {', '.join(map(repr, sorted(more)[:3]))}"
    return "it has its classes in another order"


def _check_arrays(opened: list[OpenSource], asked_by: str) -> None:
    """Raise ``PlanError`` for a field whose rows lie in more than one array: one job copies from one."""
    none = np.empty(0, np.int64)
    located = [part.locate(none).rows for part in opened]
    for name in located[0]:
        if any(rows[name].array is not located[0][name].array for rows in located):
            raise PlanError(
                f"{asked_by}: the field {name!r} lies in an array of each source; join these with np.concatenate, "
                "and make one source of them"
            )


def _described(source: object) -> str:
    return source.describe() if isinstance(source, Source) and not isinstance(source, type) else repr(source)
