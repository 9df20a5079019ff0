"""Selections that leave out records by their numbers in the source, such as bad records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_POSITIONS, record_numbers
from standpipe.order.columns import Columns
from standpipe.order.table import ROWS_AT_ONCE
from standpipe.spec import Int64Array
from standpipe.system.files import open_regular

MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """A selection of all records except some.

    gaps  (k,) int64, ascending: for each excluded record, the number of remaining records before it
    text  description of the selection, for ``explain()``
    """

    gaps: Int64Array
    text: str

    def count(self, num_records: int) -> int:
        """Return the number of remaining records. Raises ``PlanError`` if there are none."""
        left = num_records - len(self.gaps)
        if left == 0:
            raise PlanError(f"{self.text} leaves nothing of {num_records:,} records")
        return left

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return the record at each of ``places`` among the remaining records, (n,) int64."""
        return places + np.searchsorted(self.gaps, places, side="right")

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Exclude:
    """The description of a selection without the source's records ``rows``, (k,) int64, ascending, without
    repeats.
    """

    rows: Int64Array

    @classmethod
    def of(cls, rows: object) -> Exclude:
        """Make the exclusion from a list or array of record numbers. Raises ``PlanError`` for other values."""
        array = np.unique(record_numbers("exclude() takes a file that lists records, or", rows))
        array.setflags(write=False)
        return cls(array)

    def over(self, columns: Columns) -> Without:
        """Return the selection of the remaining records, among those that ``columns`` has.

        Raises ``PlanError`` if a number isn't below the number of the source's records.
        """
        if len(self.rows) and (largest := int(self.rows[-1])) >= columns.source_records:
            raise PlanError(
                f"exclude() names record {largest:,}, but the source's last record is {columns.source_records - 1:,}"
            )
        places = _places(self.rows, columns)
        return Without(places - np.arange(len(places)), self.describe())

    def describe(self) -> str:
        """Return one phrase with the number of excluded records and a digest of them."""
        from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

        digest = blake2b(self.rows.astype("<i8").tobytes(), digest_size=8).hexdigest()
        return f"exclude({len(self.rows)} records, digest {digest})"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of an exclude file, which names one record.

    line   number of the line, from 1
    index  the record's number in its source
    path   the record's file, printable, or None if the line has none
    """

    line: int
    index: int
    path: str | None


@dataclass(frozen=True, slots=True)
class ExcludeFile:
    """The description of a selection of all records except those that a file of JSON lines names.

    A plan reads the file once.

    A line is an integer, or an object with ``index`` and optionally ``path``, which must be equal to the
    record's path in the source. An object with ``source`` and no ``index`` gives the source's digest. If it
    is this source's digest, paths aren't compared, since a data set may be moved.
    """

    path: Path
    _known: list[tuple[Exclude, list[Entry], str | None]] = field(
        default_factory=list, repr=False, compare=False
    )

    def over(self, columns: Columns) -> Without:
        """Check that the file was made for this source, and return the selection of the remaining records.

        Raises ``PlanError`` if the file belongs to another source.
        """
        rows, entries, source = self._read()
        if source != columns.source_digest:
            for entry in entries:
                self._check(entry, source, columns)
        return rows.over(columns)

    def describe(self) -> str:
        """Return one phrase about the excluded records, without the file's path.

        Raises ``PlanError`` if the file can't be read.
        """
        return self._read()[0].describe()

    def _read(self) -> tuple[Exclude, list[Entry], str | None]:
        if not self._known:
            try:
                with open(self.path, "rb", opener=open_regular) as file:
                    entries, source = self._parsed(file)
            except OSError as error:
                raise PlanError(f"exclude('{self.path}') can't be read: {error.strerror}") from error
            self._known.append((Exclude.of([entry.index for entry in entries]), entries, source))
        return self._known[0]

    def _parsed(self, file: BinaryIO) -> tuple[list[Entry], str | None]:
        entries: list[Entry] = []
        source = None
        for number, raw in _lines(file):
            value = self._value(number, raw)
            if isinstance(value, dict) and "index" not in value and isinstance(value.get("source"), str):
                source = value["source"]
                continue
            index, path = (
                (value.get("index"), value.get("path")) if isinstance(value, dict) else (value, None)
            )
            if type(index) is not int or not 0 <= index < MAX_POSITIONS or not isinstance(path, str | None):
                raise self._bad(
                    number, "doesn't name a record: it must have an index from 0 on, and may have a path"
                )
            entries.append(Entry(number, index, path))
        return entries, source

    def _value(self, number: int, raw: bytes) -> Any:
        if len(raw) > MOST_LINE_BYTES:
            raise self._bad(number, f"is longer than {MOST_LINE_BYTES:,} bytes")
        import json  # a tenth of what importing standpipe costs, and few runs need it

        try:
            return json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._bad(number, f"isn't JSON: {error}") from error

    def _bad(self, line: int, what: str) -> PlanError:
        return PlanError(f"exclude('{self.path}'): line {line} {what}")

    def _check(self, entry: Entry, source: str | None, columns: Columns) -> None:
        """Raise ``PlanError`` unless the record with the entry's number has the entry's path in this source."""
        if entry.index >= columns.source_records:
            raise self._bad(
                entry.line,
                f"names record {entry.index:,}, but the source's last record is {columns.source_records - 1:,}",
            )
        name = columns.name(entry.index)
        if entry.path is None or name is None:
            if source is not None:
                raise PlanError(
                    f"the list of exclude('{self.path}') was made for another source: its digest is {source}, but this "
                    f"source's is {columns.source_digest}. Make the list again with 'standpipe scan'"
                )
        elif entry.path != name:
            raise self._bad(
                entry.line,
                f"names record {entry.index:,} as {entry.path}, but in this source it is {name}: the list belongs to "
                "other data. Make a new one with 'standpipe scan'",
            )


def exclusion(records: object) -> Exclude | ExcludeFile:
    """Return an ``Exclude`` for record numbers, or an ``ExcludeFile`` for a path.

    Raises ``PlanError`` for other values.
    """
    return ExcludeFile(Path(records)) if isinstance(records, str | os.PathLike) else Exclude.of(records)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line of a file that isn't blank, with its number from 1."""
    number = 0
    while raw := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if raw.strip():
            yield number, raw


def _places(rows: Int64Array, columns: Columns) -> Int64Array:
    """Return the places among the selected records of those of the source's ``rows`` that are selected,
    ascending.
    """
    if columns.is_source or len(rows) == 0:
        return rows
    found = [np.empty(0, np.int64)]
    for start in range(0, columns.num_records, ROWS_AT_ONCE):
        numbers = columns.numbers(start, min(start + ROWS_AT_ONCE, columns.num_records))
        at = np.minimum(np.searchsorted(rows, numbers), len(rows) - 1)
        found.append(start + np.flatnonzero(rows[at] == numbers))
    return np.concatenate(found)
