"""Lay the instances of a batch out in its slot: one after another, or padded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.batch.collate import Pad, Ragged, Region, SlotOverflow
from standpipe.batch.masks import MaskFields
from standpipe.contracts import RaggedRows
from standpipe.errors import PlanError
from standpipe.spec import MASKS, AnyArray, ArraySpec, Int64Array, RaggedSpec, shape_text

INDEX = "batch_index"  # the row of each instance
OFFSETS = "instance_offsets"  # where each row's instances begin among all
VALID_INSTANCES = "instance_valid"  # False where a row has no instance
ORIG_SIZE = "orig_size"  # height and width of the stored images
TO_ORIGINAL = "to_original"  # matrices from places in the images of the batch to those in the stored images

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class InstanceFields:
    """The fields of a batch that come from its rows' instances.

    columns   shape and dtype of one instance's value, by name of a ragged column
    prefixes  what the names of the fields of each image begin with, by the image's name: ``"a_"`` for a view ``a``,
              ``""`` for the only image
    rows      number of rows of the largest batch
    room      the most instances of a batch, all rows together; not used with ``Pad``
    how       ``Pad`` for instances with padding; else those of all rows are one after another
    handed_over  values that workers hand over row by row with the samples, which Python code makes
    masks    the form of masks; None without any
    """

    columns: Mapping[str, RaggedSpec]
    prefixes: Mapping[str, str]
    rows: int
    room: int
    how: Pad | Ragged | None = None
    handed_over: tuple[str, ...] = ()
    masks: MaskFields | None = None

    @property
    def length(self) -> int | None:
        """The number of instances of each row, with padding; None: rows are one after another."""
        length = self.how.length if isinstance(self.how, Pad) else None
        return length[0] if isinstance(length, tuple) else None

    @property
    def fields(self) -> dict[str, ArraySpec]:
        """The fields with the same shape in each batch: shape and dtype of one row."""
        found = {ORIG_SIZE: ArraySpec((2,), _INT64)}
        for prefix in self.prefixes.values():
            found[prefix + TO_ORIGINAL] = ArraySpec((3, 3), np.dtype(np.float64))
            if self.length is None:
                continue
            for name, spec in self.columns.items():
                found[prefix + name] = ArraySpec((self.length, *spec.shape), spec.dtype)
            found[prefix + VALID_INSTANCES] = ArraySpec((self.length,), np.dtype(np.bool_))
        return found

    @property
    def regions(self) -> dict[str, Region]:
        """The fields whose shape differs from batch to batch."""
        found: dict[str, Region] = {}
        for prefix in self.prefixes.values() if self.length is None else ():
            for name, spec in {**self.columns, INDEX: RaggedSpec((), _INT64)}.items():
                shape = shape_text(f"≤{self.room}", *spec.shape)
                found[prefix + name] = Region(self.room * math.prod(spec.shape), spec.dtype, shape)
            found[prefix + OFFSETS] = Region(self.rows + 1, _INT64, shape_text(f"≤{self.rows + 1}"))
        if self.masks is not None:
            for image, prefix in self.prefixes.items():
                region = self.masks.region(image, self.rows, self.room, self.length)
                found |= {} if region is None else {prefix + MASKS: region}
        return found

    @property
    def listed(self) -> tuple[str, ...]:
        """The fields that aren't stored in a slot: a batch has lists of them."""
        sides = {} if self.masks is None else self.masks.sides
        return tuple(self.prefixes[image] + MASKS for image, largest in sides.items() if largest is None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all these fields."""
        return (*self.fields, *self.regions, *self.listed)

    def values(self, image: str, found: Mapping[str, RaggedRows]) -> dict[str, AnyArray]:
        """Return the fields of one image of the rows. Raises ``SlotOverflow`` if the instances of a row don't fit.

        found  the instances of the rows, by ragged column
        """
        ends = next(iter(found.values())).ends
        counts = np.diff(ends, prepend=0)
        rows = np.repeat(np.arange(len(counts)), counts)
        values: dict[str, AnyArray] = {name: column.values for name, column in found.items()}
        if self.length is None:
            self._check_room(counts, ends)
            values |= {INDEX: rows, OFFSETS: np.concatenate([[0], ends])}
        else:
            self._check_length(counts, self.length)
            places = np.arange(len(rows)) - np.repeat(ends - counts, counts)
            kept = places < self.length
            for name, column in values.items():
                values[name] = padded = np.zeros((len(counts), self.length, *column.shape[1:]), column.dtype)
                padded[rows[kept], places[kept]] = column[kept]
            values[VALID_INSTANCES] = np.arange(self.length) < counts[:, None]
        return {self.prefixes[image] + name: each for name, each in values.items()}

    def _check_length(self, counts: Int64Array, length: int) -> None:
        row = int(np.argmax(counts))
        if counts[row] > length and not (isinstance(self.how, Pad) and self.how.cut):
            raise SlotOverflow(
                row,
                f"it has {counts[row]} instances, and a row has room for {length}: give Pad(length={counts[row]}), or "
                f"Pad(length={length}, cut=True) for the first ones",
            )

    def _check_room(self, counts: Int64Array, ends: Int64Array) -> None:
        if ends[-1] > self.room:
            row = int(np.searchsorted(ends, self.room, "right"))
            raise SlotOverflow(
                row,
                f"it has {counts[row]} instances, and {ends[row]} with the rows before it; a batch has room for "
                f"{self.room}: give instances=Ragged(max_values=…)",
            )

    def by_row(self, batch: Mapping[str, AnyArray]) -> dict[str, Any]:
        """Return a batch with its instances in lists of arrays by row, and with their numbers in place of offsets."""
        found: dict[str, Any] = dict(batch)
        for prefix in self.prefixes.values() if self.length is None else ():
            del found[prefix + INDEX]
            offsets = found[prefix + OFFSETS]
            found[prefix + OFFSETS] = np.diff(offsets)
            names = [*self.columns]
            if self.masks is not None and self.masks.form.masks == "dense" and not self.listed:
                names.append(MASKS)
            found |= {prefix + name: np.split(batch[prefix + name], offsets[1:-1]) for name in names}
        return found


def checked_instances(given: object) -> Pad | Ragged:
    """Return the argument ``instances`` of ``batch``. Raises ``PlanError`` for anything else than it takes."""
    is_padded = isinstance(given, Pad) and isinstance(given.length, tuple) and len(given.length) == 1
    if isinstance(given, Ragged) or (isinstance(given, Pad) and is_padded and given.value == 0):
        return given
    raise PlanError(
        f"batch(instances={given!r}): give sp.Ragged() for instances one after another, or sp.Pad(length=100) for the "
        "same number in each row"
    )
