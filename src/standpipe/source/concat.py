"""The source that joins several sources, one after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from standpipe.contracts import (
    Encoded,
    Files,
    HasInstances,
    HasMasks,
    KeepsIndex,
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
)
from standpipe.contracts.source import FieldSpec, check_part
from standpipe.errors import PlanError
from standpipe.source.targets import BOXES, BoxForm, box_form
from standpipe.spec import AnyArray, ArraySpec, Int64Array
from standpipe.units import without_middle


class Concat:
    """The records of several sources as one source, like ``torch.utils.data.ConcatDataset``.

    Indices continue from one source to the next. Nothing is copied: arrays in memory stay where they are.

    Parameters
    ----------
    *sources : Source
        Two or more, with the same fields of the same shapes and dtypes, and the same classes if labels are
        class names. A source that is given twice is opened once.

    Raises
    ------
    PlanError
        By ``plan()``, if fields or classes differ.

    Examples
    --------
    >>> both = sp.Concat(sp.Arrays(x=np.arange(3)), sp.Arrays(x=np.arange(3, 5)))
    >>> with sp.Pipeline(both).batch(5).loader() as loader:
    ...     print(loader.peek()["x"])
    [0 1 2 3 4]
    """

    __slots__ = ("_sources",)

    def __init__(self, *sources: Source) -> None:
        self._sources = sources

    @property
    def upright(self) -> bool:
        """True if photos of all sources are turned as EXIF says."""
        return all(map(turns_photos, self._sources))

    def open(self) -> OpenSource:
        """Open all sources.

        Raises ``PlanError`` if one can't be opened, and if their fields or classes differ, with the
        difference.
        """
        return open_concat(self._sources, asked_by="Concat")

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"Concat({', '.join(_described(source) for source in self._sources)})"


def turns_photos(source: object) -> bool:
    """Return True for a source whose photos are turned as EXIF says, unless ``decode`` says otherwise."""
    return bool(getattr(source, "upright", False))


def open_concat(sources: tuple[Source, ...], *, asked_by: str) -> OpenConcat:
    """Open sources, each object once, and check that their fields and classes are the same.

    asked_by  the class that joins them, for errors

    Raises ``PlanError`` if they differ.
    """
    for source in sources:
        if isinstance(source, type) or not isinstance(source, Source):
            raise PlanError(
                f"{asked_by} takes sources such as ImageFolder(path), one by one, got "
                f"{without_middle(repr(source), 100)}"
            )
    if len(sources) < 2:
        raise PlanError(f"{asked_by} needs at least two sources, got {len(sources)}")
    opened: list[OpenSource] = []
    for number, source in enumerate(sources):
        same = next((i for i in range(number) if sources[i] is source), None)
        opened.append(source.open() if same is None else opened[same])
    for source, part in zip(sources[1:], opened[1:], strict=True):
        if difference := _difference(opened[0], part):
            raise PlanError(
                f"{asked_by}: {source.describe()} differs from {sources[0].describe()}: {difference}"
            )
    datasets = [part for part in opened if isinstance(part, PythonSource)]
    return OpenDatasets(tuple(opened)) if datasets else OpenConcat(tuple(opened))


@dataclass(frozen=True, eq=False)
class OpenConcat:
    """An ``OpenSource`` of several opened sources with the same fields."""

    parts: tuple[OpenSource, ...]

    @cached_property
    def begins(self) -> Int64Array:
        """The number of each part's first record, and at the end the number of all records; (parts + 1,) int64."""
        return np.cumsum([0, *(part.num_records for part in self.parts)])

    @property
    def num_records(self) -> int:
        """The number of records of all parts."""
        return int(self.begins[-1])

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """The fields, which are the same for all parts."""
        return self.parts[0].fields

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that all parts have."""
        return tuple(
            name for name in self.parts[0].columns if all(name in part.columns for part in self.parts)
        )

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column for the records [start, stop), in a dtype that holds the values of all parts."""
        check_part(self, name, start, stop)
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
        """The class names, which are the same for all parts."""
        return self.parts[0].classes

    @cached_property
    def digest(self) -> str:
        """A digest of the parts' digests, in order."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digests = ",".join(part.digest for part in self.parts)
        return blake2b(f"concat 1: {digests}".encode(), digest_size=16).hexdigest()

    @property
    def index_bytes(self) -> int:
        """Memory of all parts' indexes, in bytes; a part that is used twice counts once."""
        return sum(part.index_bytes for part in self._different())

    @property
    def index_note(self) -> str:
        """The locations of the parts' indexes, for ``explain()``."""
        return (
            "; ".join(
                part.index_note
                for part in self._different()
                if isinstance(part, KeepsIndex) and part.index_note
            )
            or "no index"
        )

    @property
    def most_instances(self) -> int:
        """The largest number of instances of a record of any part."""
        return max(part.most_instances for part in self._annotated())

    @property
    def num_instances(self) -> int:
        """The number of instances of all parts."""
        return sum(part.num_instances for part in self._annotated())

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...] | None:
        """The pairs of left and right keypoints, if they are the same for all parts."""
        first, *others = {part.flip_pairs for part in self._annotated()}
        return None if others else first

    @property
    def skeleton(self) -> tuple[tuple[int, int], ...]:
        """The lines between keypoints, if they are the same for all parts."""
        first, *others = {part.skeleton for part in self._annotated()}
        return () if others else first

    @property
    def has_masks(self) -> bool:
        """True if all parts have shapes of instances."""
        return all(isinstance(part, HasMasks) and part.has_masks for part in self.parts)

    def _annotated(self) -> list[HasInstances]:
        """Return the parts. Raises ``AttributeError`` unless all have instances, so that this object has none."""
        found: list[HasInstances] = [part for part in self.parts if isinstance(part, HasInstances)]
        if len(found) < len(self.parts):
            raise AttributeError("a part has no instances")
        return found

    def skipped(self) -> Iterator[str]:
        """Yield the paths that the parts skipped."""
        for part in self._different():
            if isinstance(part, SkipsFiles):
                yield from part.skipped()

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Yield records whose name an earlier record of the same file has, and that record."""
        for part, begin in zip(self.parts, self.begins[:-1].tolist(), strict=True):
            if isinstance(part, RepeatsKeys):
                yield from ((begin + later, begin + first) for later, first in part.repeated())

    @property
    def record_bytes(self) -> int:
        """Bytes of the largest record that a part reads; 0 if no part reads records."""
        return max(part.record_bytes if isinstance(part, ReadsRecords) else 0 for part in self.parts)

    def locate(self, indices: Int64Array) -> Records:
        """Locate each part's records, and return all of them in the order of ``indices``."""
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
        """Return the name that the record's part gives it."""
        number = int(np.searchsorted(self.begins, index, side="right")) - 1
        return self.parts[number].name(index - int(self.begins[number]))


@dataclass(frozen=True, eq=False)
class OpenDatasets(OpenConcat):
    """An ``OpenConcat`` of Python datasets, which satisfies ``contracts.PythonSource`` too."""

    @property
    def dataset(self) -> JoinedDataset:
        """The datasets joined into one."""
        return self.joined()

    def joined(self, *, taken: str | None = None) -> JoinedDataset:
        """Join the datasets into one, whose samples must not have the field ``taken``."""
        return JoinedDataset([part.dataset for part in self._python()], self.begins.tolist(), taken=taken)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, which are the same for all datasets."""
        return self._python()[0].names

    @property
    def shares_lists(self) -> bool:
        """True if all datasets have ``share_lists=True``."""
        return all(part.shares_lists for part in self._python())

    @property
    def form(self) -> BoxForm:
        """The form of boxes, which is the same for all datasets."""
        return box_form(self._python()[0])

    @property
    def declared(self) -> Mapping[str, ArraySpec] | None:
        """The declared shapes and dtypes, which are the same for all datasets."""
        return self._python()[0].declared

    def _python(self) -> list[PythonSource]:
        return [part for part in self.parts if isinstance(part, PythonSource)]


class JoinedDataset:
    """A dataset of several datasets, one after another, from which workers take samples.

    taken  the name of a field that samples must not have, since a mixture adds it
    """

    def __init__(self, datasets: list[Any], begins: list[int], *, taken: str | None = None) -> None:
        self.datasets, self.begins, self.taken = datasets, begins, taken

    def __len__(self) -> int:
        return self.begins[-1]

    def __getitem__(self, index: int) -> Any:
        number = bisect_right(self.begins, index) - 1
        sample = self.datasets[number][index - self.begins[number]]
        if self.taken is not None and isinstance(sample, Mapping) and self.taken in sample:
            raise PlanError(f"the sample has a field {self.taken!r}, which a mixture adds; rename it")
        return sample


def _merged(indices: Int64Array, found: list[Records], order: Int64Array) -> Records:
    """Merge the records of several parts.

    order  (n,) int64: the place of each record among the records of all parts, one part after another
    """
    first = found[0]
    files = {name: merged_files([each.files[name] for each in found], order) for name in first.files}
    rows = {name: _merged_rows([each.rows[name] for each in found], order) for name in first.rows}
    plain = {name: np.concatenate([each.plain[name] for each in found])[order] for name in first.plain}
    ragged = {name: RaggedRows.merged([each.ragged[name] for each in found], order) for name in first.ragged}
    sizes = [each.sizes for each in found if each.sizes is not None]
    of_all = np.concatenate(sizes)[order] if len(sizes) == len(found) else None
    texts = {name: Paths.merged([each.texts[name] for each in found], order) for name in first.texts}
    merged = Records(indices, files=files, rows=rows, plain=plain, ragged=ragged, sizes=of_all, texts=texts)
    shapes = [each.shapes for each in found if each.shapes is not None]
    if len(shapes) < len(found):
        return merged
    firsts = np.cumsum([0, *(len(each.ends) for each in shapes)])
    numbers = [
        RaggedRows(first + np.arange(len(each.ends)), records.ragged[BOXES].ends)
        for first, each, records in zip(firsts, shapes, found, strict=False)
    ]
    chosen = RaggedRows.merged(numbers, order).values.astype(np.int64)
    return replace(merged, shapes=RaggedRows.merged(shapes, chosen))


def _merged_rows(found: list[Rows], order: Int64Array) -> Rows:
    """Merge rows into one entry per array, with row −1 for records that are in another array."""
    arrays = {id(part.array): part.array for rows in found for part in rows.parts}
    merged = []
    for key, array in arrays.items():
        pieces = []
        for rows in found:
            inside = [part.rows for part in rows.parts if id(part.array) == key]
            pieces.append(inside[0] if inside else np.full(len(rows.rows), -1))
        merged.append(Rows(array, np.concatenate(pieces)[order]))
    return replace(merged[0], others=tuple(merged[1:]))


def merged_files(found: list[Files], order: Int64Array) -> Files:
    """Merge files into one ``Files``; ``order`` as for ``_merged``."""
    return Files(
        Paths.merged([files.paths for files in found], order),
        np.concatenate([files.offset for files in found])[order],
        np.concatenate([files.length for files in found])[order],
        _merged_facts([files.file_bytes for files in found], found, order),
        _merged_facts([files.mtime_ns for files in found], found, order),
        _merged_facts([files.crc32c for files in found], found, order),
    )


def _merged_facts(facts: list[Int64Array | None], found: list[Files], order: Int64Array) -> Int64Array | None:
    """Merge sizes, times or checksums of the parts' files; -1 where a part doesn't know them, None if no part does."""
    if all(each is None for each in facts):
        return None
    known = [
        np.full(len(files.offset), -1) if each is None else each
        for each, files in zip(facts, found, strict=True)
    ]
    return np.concatenate(known)[order]


def _difference(first: OpenSource, other: OpenSource) -> str | None:
    """Return why two sources can't be joined, for an error; None if they can."""
    if isinstance(first, PythonSource) != isinstance(other, PythonSource):
        return "one takes samples from Python, the other doesn't"
    if isinstance(first, PythonSource) and isinstance(other, PythonSource) and first.names != other.names:
        return f"its fields are named {other.names}, not {first.names}"
    for name in sorted({*first.fields, *other.fields}):
        mine, theirs = first.fields.get(name), other.fields.get(name)
        if isinstance(first, PythonSource) and isinstance(mine, Encoded) != isinstance(theirs, Encoded):
            return f"its field {name!r} is encoded, or that of the other. Give the same encoded= to both"
        if mine is None or theirs is None:
            return f"it has {'a' if mine is None else 'no'} field {name!r}"
        if mine != theirs:
            return f"its field {name!r} is {theirs}, not {mine}"
    if isinstance(first, PythonSource) and box_form(first) != box_form(other):
        return f"its boxes are {box_form(other)}, not {box_form(first)}"
    if first.classes == other.classes:
        return None
    if first.classes is None or other.classes is None:
        return "the labels of one are class names, those of the other are numbers"
    for what, more in (
        ("has", {*other.classes} - {*first.classes}),
        ("lacks", {*first.classes} - {*other.classes}),
    ):
        if more:
            return f"it {what} the {'class' if len(more) == 1 else 'classes'} {', '.join(map(repr, sorted(more)[:3]))}"
    return "it has its classes in another order"


def _described(source: object) -> str:
    return source.describe() if isinstance(source, Source) and not isinstance(source, type) else repr(source)
