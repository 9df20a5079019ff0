"""The opened source of images with labels, for ``ImageFolder``, ``FileList`` and shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded, Files, Paths, RaggedRows, Records
from standpipe.contracts.source import FieldSpec, check_part, places_in_ranges
from standpipe.errors import PlanError
from standpipe.source.index.file import (
    ENDS,
    POINT_BYTES,
    RANGE,
    SHAPE_ENDS,
    SHAPES,
    SIZES,
    Column,
    Facts,
    IndexFile,
    checksum_section,
    column_section,
    instance_section,
    place_sections,
    text_sections,
)
from standpipe.source.index.store import Subject, open_index
from standpipe.spec import SIDES, AnyArray, ArraySpec, Int64Array, Listed, RaggedSpec
from standpipe.system.paths import path_text

SKIPPED = "skipped"  # in an index: the number of skipped files, and their paths, each ended by a NUL byte


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """An ``OpenSource`` of the image files in a packed index.

    Its fields are ``image``, ``label`` if there are labels, the columns that were added to the index, and those of
    instances; and further images of a record, each of which has a listing of its own.

    others  the listings of the further images, by the name of their field: record n is entry n of each
    """

    subject: Subject
    index: IndexFile
    others: Mapping[str, Listing] = field(default_factory=dict, kw_only=True)

    @classmethod
    def open(cls, subject: Subject) -> Listing:
        """Find or build the index of a subject."""
        return cls(subject, open_index(subject))

    def beside(self, others: Mapping[str, Listing]) -> Self:
        """Return a listing of all images. Raises ``PlanError`` if a column of the index has a field's name."""
        if taken := [name for name in self.index.facts.columns if name in others]:
            raise PlanError(
                f"the index of {self.subject.name} has a column {taken[0]!r}: give the further field another name"
            )
        return replace(self, others=others)

    @property
    def num_records(self) -> int:
        """The number of listed files."""
        return self.index.facts.rows

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None if labels are numbers or absent."""
        return self.index.facts.classes

    @property
    def digest(self) -> str:
        """A digest of paths as listed, labels, class names, columns, texts and instances, but not of the paths' folder;
        and of the further listings.
        """
        others = "".join(f", {name}s {listing.digest}" for name, listing in self.others.items())
        own = self._own_digest()
        if not others:
            return own
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        return blake2b(f"{own}{others}".encode(), digest_size=16).hexdigest()

    def _own_digest(self) -> str:
        facts = self.index.facts
        if not facts.columns and not facts.encoded and not facts.instances:
            return facts.manifest
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(facts.manifest.encode(), digest_size=16)
        named = [(name, place_sections(name)) for name in facts.encoded]
        for name, sections in named + [(name, text_sections(name)) for name in facts.texts]:
            parts = [facts.sections[section].digest for section in sections]
            digest.update(f"{name!r} {parts};".encode())
        for name, column in sorted(facts.columns.items()):
            content = facts.sections[column_section(name)].digest
            digest.update(f"{name!r} {column.dtype} {column.shape} {content};".encode())
        digest.update(repr(instance_digests(facts)).encode() if facts.instances else b"")
        digest.update(facts.sections[SIZES].digest.encode() if SIZES in facts.sections else b"")
        return digest.hexdigest()

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """The fields: images, encoded; ``label``, () int64, if there are labels; columns; those of instances; texts."""
        label = {} if self.index.facts.label is None else {"label": ArraySpec((), np.dtype(np.int64))}
        columns = self.index.facts.columns
        added = {name: column.spec for name, column in columns.items() if name not in RANGE}
        instances = self.index.facts.instances.items()
        ragged = {name: RaggedSpec(column.spec.shape, column.spec.dtype) for name, column in instances}
        rows, texts = self.num_records, self.index.facts.texts
        return {
            **dict.fromkeys((*self.index.facts.byte_fields, *self.others), Encoded()),
            **label,
            **added,
            **ragged,
            **{name: Listed("str", self._text_bytes(name) // rows) for name in texts},
        }

    @property
    def has_masks(self) -> bool:
        """True if the index has the shapes of instances."""
        return "shapes" in self.index.facts.optional

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of ``label``, if there are labels, of the added columns with one number per record, and of sides.

        These are ``height`` and ``width`` in pixels, where the index has the images' sizes.
        """
        label = () if self.index.facts.label is None else ("label",)
        added = tuple(name for name, column in self.index.facts.columns.items() if not column.shape)
        sides = SIDES if "sizes" in self.index.facts.optional else ()
        return label + added + tuple(name for name in sides if name not in self.index.facts.columns)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column for the records [start, stop), (stop − start,)."""
        check_part(self, name, start, stop)
        facts = self.index.facts
        if name == "label":
            assert facts.label is not None
            return self._checked(self.index.part("labels", facts.label, (), start, stop))
        if name not in facts.columns:
            sizes = self.index.part(SIZES, "<u4", (2,), start, stop)
            return np.ascontiguousarray(sizes[:, SIDES.index(name)]).astype(np.int64)
        column = facts.columns[name]
        return self.index.part(column_section(name), column.dtype, column.shape, start, stop)

    @property
    def index_bytes(self) -> int:
        """Memory in bytes: the size of an index in memory, or the class names' of an index in a file."""
        own = self.index.size if self.index.held else sum(map(len, self.classes or ()))
        return own + sum(listing.index_bytes for listing in self.others.values())

    @property
    def index_note(self) -> str:
        """The index's location and size, and the number of skipped files, for ``explain()``."""
        skipped = self.index.facts.seen.get(SKIPPED, 0)
        note = f"; skipped pipes, sockets and devices with image names: {skipped:,}" if skipped else ""
        others = [f"; of {name}: {listing.index_note}" for name, listing in self.others.items()]
        return "".join([self._place, note, *others])

    @property
    def _place(self) -> str:
        place = "in an unnamed file" if self.index.path is None else path_text(self.index.path)
        checksums = ", with checksums" if "checksums" in self.index.facts.optional else ""
        return f"index: {self.index.size:,} bytes, {'in memory' if self.index.held else place}{checksums}"

    def skipped(self) -> Iterator[str]:
        """Yield the printable paths of pipes, sockets and devices with image names, which aren't records."""
        rest = b""
        for block in self.index.blocks(SKIPPED) if SKIPPED in self.index.facts.sections else ():
            *whole, rest = (rest + block.tobytes()).split(b"\0")
            yield from (path_text(self.subject.base + path) for path in whole)
        for listing in self.others.values():
            yield from listing.skipped()

    def here(self) -> str:
        """Return the folders of relative paths, on which the digest doesn't depend."""
        return "; ".join([os.fsdecode(self.subject.base), *(each.here() for each in self.others.values())])

    def locate(self, indices: Int64Array) -> Records:
        """Return the records' absolute paths and byte ranges, ``label`` (n,) int64, columns, instances and texts."""
        facts, index = self.index.facts, self.index
        paths = self.paths(indices)
        files = {
            name: Files(paths, *self._ranges(name, indices), crc32c=self._checksums(name, indices))
            for name in facts.byte_fields
        }
        files |= {name: listing.locate(indices).files["image"] for name, listing in self.others.items()}
        plain: dict[str, AnyArray] = {}
        if facts.label is not None:
            plain["label"] = self._checked(index.rows("labels", facts.label, (), indices))
        for name, column in facts.columns.items():
            if name not in RANGE:
                plain[name] = index.rows(column_section(name), column.dtype, column.shape, indices)
        ragged, shapes = self._instances(indices)
        sizes, texts = self.sizes(indices), self._texts(indices)
        return Records(
            indices, files=files, plain=plain, ragged=ragged, sizes=sizes, texts=texts, shapes=shapes
        )

    def _instances(self, indices: Int64Array) -> tuple[dict[str, RaggedRows], RaggedRows | None]:
        """Return the ragged columns of the records ``indices``, and the shapes of their instances.

        First the ends are read, then the values of all instances.
        """
        columns, index = self.index.facts.instances, self.index
        if not columns:
            return {}, None
        begins, stops = self._limits(ENDS, index.instances, indices)
        numbers, ends = places_in_ranges(begins, stops)
        found = {
            name: RaggedRows(index.rows(instance_section(name), column.dtype, column.shape, numbers), ends)
            for name, column in columns.items()
        }
        return found, self._shapes(numbers, ends[stops > begins]) if self.has_masks else None

    def _shapes(self, numbers: Int64Array, ends: Int64Array) -> RaggedRows:
        """Return the shapes of instances.

        numbers  (n,) int64: the instances of records, which are consecutive in each record
        ends     end of each record's among these; records without instances are left out
        """
        total = self.index.facts.sections[SHAPES].size // POINT_BYTES
        begins, stops = self._limits(SHAPE_ENDS, total, numbers)
        limits = (
            begins[np.concatenate([[0], ends[:-1]])[: len(ends)]] * POINT_BYTES,
            stops[ends - 1] * POINT_BYTES,
        )
        points = self.index.parts(SHAPES, zip(*(each.tolist() for each in limits), strict=True))
        return RaggedRows(points.blob.view("<f4").reshape(-1, 2), np.cumsum(stops - begins))

    def _texts(self, indices: Int64Array) -> dict[str, Paths]:
        """Return the texts of the records ``indices``."""
        found = {}
        for name in self.index.facts.texts:
            section, ends = text_sections(name)
            begins, stops = self._limits(ends, self._text_bytes(name), indices)
            found[name] = self.index.parts(section, zip(begins.tolist(), stops.tolist(), strict=True))
        return found

    def _text_bytes(self, name: str) -> int:
        return self.index.facts.sections[text_sections(name)[0]].size

    def _limits(self, section: str, total: int, indices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the limits of the values of the records ``indices`` among ``total`` ones, by a section of ends."""
        around = self.index.rows(section, "<i8", (), np.concatenate([np.maximum(indices - 1, 0), indices]))
        begins, stops = around.astype(np.int64, copy=False).reshape(2, -1)
        begins = np.where(indices > 0, begins, 0)
        if not (begins >= 0).all() or not (begins <= stops).all() or not (stops <= total).all():
            with self.index.told():
                raise ValueError(
                    f"its section '{section}' has an end outside [0, {total}], or less than the one before"
                )
        return begins, stops

    def sizes(self, indices: Int64Array) -> Int64Array | None:
        """Return the height and width in pixels of the images of records, (n, 2) int64; None if the index has none."""
        if "sizes" not in self.index.facts.optional:
            return None
        return self.index.rows(SIZES, "<u4", (2,), indices).astype(np.int64)

    def _ranges(self, name: str, indices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the offset and length of a byte field in its file, (n,) int64; 0 and -1 for whole files."""
        facts = self.index.facts
        if name not in facts.encoded and RANGE[0] not in facts.columns:
            return np.zeros(len(indices), np.int64), np.full(len(indices), -1, np.int64)
        sections = place_sections(name) if name in facts.encoded else map(column_section, RANGE)
        offset, length = (
            self.index.rows(section, "<i8", (), indices).astype(np.int64, copy=False) for section in sections
        )
        if (offset < 0).any() or (length < -1).any():
            with self.index.told():
                raise ValueError("a byte range is negative")
        return offset, length

    def _checksums(self, name: str, indices: Int64Array) -> Int64Array | None:
        """Return the CRC-32C of a byte field of records, (n,) int64; None if the index has none."""
        if "checksums" not in self.index.facts.optional:
            return None
        return self.index.rows(checksum_section(name), "<u4", (), indices).astype(np.int64)

    def paths(self, indices: Int64Array) -> Paths:
        """Return the absolute paths of the records ``indices``, (n,) int64."""
        self.subject.check_unchanged()
        places = self.index.place("places")
        text, around = self.subject.text(self.index), self.subject.around
        with self.index.told():
            blob, ends = _native.packed_paths(
                places, text, around, self.subject.base, self.subject.stays, indices
            )
        self.subject.check_unchanged()
        return Paths(blob, ends)

    def name(self, index: int) -> str:
        """Return the record's path, printable."""
        return path_text(self.paths(np.array([index], np.int64))[0])

    def _checked(self, labels: AnyArray) -> Int64Array:
        """Return labels as (n,) int64. Raises ``StandpipeError`` if there are class names and one isn't a class."""
        classes = self.classes
        wide: Int64Array = labels.astype(np.int64)
        if classes is not None and len(wide) and not 0 <= wide.min() <= wide.max() < len(classes):
            with self.index.told():
                raise ValueError("a label isn't the number of a class")
        return wide


def instance_digests(facts: Facts) -> list[tuple[str, str, tuple[int, ...], str]]:
    """Return each ragged column's name, dtype, shape and digest, and those of the records' ends; none without any."""
    columns = {ENDS: ENDS} | {name: instance_section(name) for name in sorted(facts.instances)}
    found = []
    for name, section in columns.items() if facts.instances else ():
        column = facts.instances.get(name, Column("<u8", (), ""))
        found.append((name, column.dtype, column.shape, facts.sections[section].digest))
    shapes = (SHAPE_ENDS, SHAPES) if "shapes" in facts.optional else ()
    return found + [(section, "", (), facts.sections[section].digest) for section in shapes]


def some(names: Iterable[str]) -> str:
    """Return the first three names in sorted order, and the number of others."""
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more
