"""Columns of a source, for orders, and the grouping of records by a column's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.order.table import ROWS_AT_ONCE, Table, sorted_by
from standpipe.spec import AnyArray, Int64Array, UInt64Array

MOST_GROUPS = 1 << 16  # whose sizes are kept in memory
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
PLACE_BITS = 32  # of a place's hash, below its group's number: sorting takes a pass for each 11 bits


class Columns(Protocol):
    """Access to the columns of a source's records, or of selected records, without reading a sample.

    A record's *place* is its index among these records, in [0, ``num_records``). Its *number* is its index in
    the source.
    """

    @property
    def num_records(self) -> int:
        """The number of records."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None if labels are plain numbers or absent."""

    def read(self, name: str, start: int, stop: int) -> AnyArray:
        """Return column ``name`` for the records at places [start, stop), (stop − start,)."""

    @property
    def is_source(self) -> bool:
        """True if nothing was selected, so that a record's place is its number."""

    @property
    def source_records(self) -> int:
        """Number of records in the source."""

    @property
    def source_digest(self) -> str:
        """The source's ``digest``."""

    def numbers(self, start: int, stop: int) -> Int64Array:
        """Return the source's numbers of the records at places [start, stop), (stop − start,) int64."""

    def name(self, number: int) -> str | None:
        """Return a printable name of the record with a number, such as its path, or None."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The records, grouped by their values in a column, with a random order inside each group.

    values  (k,) int64, ascending: the column's different values
    sizes   (k,) int64: number of records with each value
    begins  (k,) int64: where each group begins in ``places``
    places  the records' places, group after group
    """

    values: Int64Array
    sizes: Int64Array
    begins: Int64Array
    places: Table


def grouped(columns: Columns, name: str, *, key: int, asked_by: str) -> Groups:
    """Group records by column ``name``, of integers.

    key       key of the random order inside a group
    asked_by  the caller's name, for errors

    Raises ``PlanError`` if there is no such column, its dtype isn't integer, or it has more than 65,536
    values.
    """
    values = _distinct(columns, name, asked_by)
    sizes = np.zeros(len(values), np.int64)

    def keys() -> Iterator[Int64Array]:
        for start, chunk in chunks(columns, name, asked_by):
            groups = np.searchsorted(values, chunk.astype(np.int64))
            sizes[:] += np.bincount(groups, minlength=len(values))
            drawn = mixed(key, np.arange(start, start + len(chunk), dtype=np.uint64)) >> np.uint64(
                64 - PLACE_BITS
            )
            yield (groups << PLACE_BITS) | drawn.view(np.int64)

    places = sorted_by(keys())
    return Groups(values, sizes, np.cumsum(sizes) - sizes, places)


def chunks(columns: Columns, name: str, asked_by: str) -> Iterator[tuple[int, AnyArray]]:
    """Yield a column in pieces, each with the place of its first record.

    asked_by  the caller's name, for errors

    Raises ``PlanError`` if there is no column of that name.
    """
    if not isinstance(name, str) or name not in columns.names:
        known = ", ".join(map(repr, columns.names)) or "none"
        raise PlanError(f"{asked_by}: the source has no column {name!r}. Its columns are {known}")
    for start in range(0, columns.num_records, ROWS_AT_ONCE):
        yield start, columns.read(name, start, min(start + ROWS_AT_ONCE, columns.num_records))


def bits(values: AnyArray) -> UInt64Array:
    """Return a 64-bit word for each of ``values``, (n,) uint64; equal numbers have equal words.

    0.0 and −0.0 have the same word, and so have all NaNs.
    """
    if values.dtype.kind in "biu":
        return values.astype(np.int64).view(np.uint64)
    floats = values.astype(np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def mixed(key: int, words: UInt64Array) -> UInt64Array:
    """Return ``_native.mix(key, word)`` for each of ``words``, (n,) uint64: a hash of both."""
    inner = _scrambled(np.array([key], np.uint64) + np.uint64(_GOLDEN))
    return _scrambled(inner ^ (words * np.uint64(_WORD) + np.uint64(1)))


def key_of(seed: int, purpose: int) -> int:
    """Return the key of a seed's random numbers for one purpose.

    purpose  a constant below 2^62 that no other use of the seed has
    """
    return _native.mix(_native.mix(0, seed), purpose)


def _scrambled(words: UInt64Array) -> UInt64Array:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _distinct(columns: Columns, name: str, asked_by: str) -> Int64Array:
    """Return the different values of a column, ascending.

    Raises ``PlanError`` if the dtype isn't integer, or there are more than 65,536 values.
    """
    values = np.empty(0, np.int64)
    for _, chunk in chunks(columns, name, asked_by):
        if chunk.dtype.kind not in "biu":
            raise PlanError(f"{asked_by}: the column {name!r} must be integers, but is {chunk.dtype}")
        values = np.union1d(values, chunk.astype(np.int64))
        if len(values) > MOST_GROUPS:
            raise PlanError(f"{asked_by}: the column {name!r} has more than {MOST_GROUPS:,} values")
    return values
