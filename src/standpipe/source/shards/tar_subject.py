"""The subject of a ``TarShards``' index: the members of tar shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.source.index.file import HEADERS, REPEATED, Facts
from standpipe.source.index.listing import SKIPPED
from standpipe.source.index.writer import IndexWriter
from standpipe.source.shards.faults import refuse
from standpipe.source.shards.fields import IMAGES, PICKLES, Fields, image_fields, is_image
from standpipe.source.shards.instances import MemberInstances
from standpipe.source.shards.subject import LEFT_OUT, RECORDS_AT_ONCE, ShardPart, ShardReader, ShardSubject
from standpipe.source.targets import BoxForm
from standpipe.system.paths import open_for_reading, path_text, reading

MOST_NAMED = 9  # extensions in a message
MEMBERS_AT_ONCE = 1 << 6  # on slow storage each takes about a millisecond, and Ctrl-C waits for all
UNMARKED = "no end mark: "  # in an index's counts, before the first shard without the zeros at its end


@dataclass(frozen=True, slots=True)
class TarSubject(ShardSubject):
    """A ``Subject`` of tar shards, which are sorted by path.

    fields  extensions of each field, as the user gave them; None: images and labels that the first record has
    members the extension of JSON members with instances; None: there are none
    form    the form of their boxes
    """

    fields: Fields | None
    members: str | None = None
    form: BoxForm = field(default_factory=BoxForm)

    kind = "tar"
    unread = "members left out, by extension"

    @property
    def costly(self) -> bool:
        """True as for other shards, and for JSON members."""
        parent: bool = ShardSubject.costly.fget(self)  # type: ignore[attr-defined]
        return parent or self.members is not None

    def reader(self, writer: IndexWriter) -> ShardReader:
        """Return a reader of all headers."""
        return _TarReader(writer, self, self.fields or self._first_fields())

    def not_images(self, facts: Facts) -> set[str]:
        """Return the names of fields whose members aren't images."""
        given = self.fields or {}
        return {name for name in facts.encoded if not is_image(given.get(name, ()))}

    def options(self) -> dict[str, bool]:
        """Return the extensions of the fields and of JSON members."""
        fields = self.fields or {}
        options = {f"{name}={';'.join(extensions)}": True for name, extensions in fields.items()}
        if self.members is not None:
            options[f"instances={self.members} {self.form}"] = True
        return options

    def _first_fields(self) -> Fields:
        """Return the fields of the first record with an image: its image or images, and ``label`` if it has one."""
        for found in self._first_groups():
            if fields := image_fields(found):
                return fields | {"label": ("cls",)} if "cls" in found else fields
        # Without an image, a label isn't a fault: the error is that there are no images.
        return {"image": IMAGES, "label": ("cls",)}

    def _first_groups(self) -> Iterator[set[str]]:
        """Yield the extensions of each group of members, until a shard ends or is damaged."""
        for shard in self.shards:
            with open_for_reading(shard) as file, reading(shard):
                size, at, key, extensions = os.fstat(file.fileno()).st_size, 0, b"", set[str]()
                while members := _native.tar_members(file.fileno(), size, at, MEMBERS_AT_ONCE)[0]:
                    for _, data, length, is_file, name in members:
                        at = data + -(-length // 512) * 512
                        folder, slash, last = name.rpartition(b"/")
                        stem, _, extension = last.partition(b".")
                        # macOS has members such as "._0.jpg" between those of a record.
                        if not is_file or not stem or not extension:
                            continue
                        if folder + slash + stem != key:
                            yield extensions
                            key, extensions = folder + slash + stem, set()
                        extensions.add(extension.decode("latin-1").lower())
                yield extensions


def _others(left_out: list[bytes]) -> str:
    """Return which members shards without images have, by extension, and what to do."""
    found = ", ".join(f".{path_text(each)}" for each in left_out[:MOST_NAMED] if each)
    more = ", …" if len(left_out) > MOST_NAMED else ""
    dotted = any(each.rpartition(b".")[1:] == (b".", image.encode()) for each in left_out for image in IMAGES)
    why = "; a key ends at the first dot of a name, so pack names without further dots, or" if dotted else ";"
    only = f", only members with {found}{more}" if found else ""
    return f"{only}{why} name the extensions of yours with fields={{'image': 'jpg;png'}}"


class _TarReader(ShardReader):
    """Reads the headers of tar shards.

    fields  extensions of all fields, the first image before others
    """

    def __init__(self, writer: IndexWriter, subject: TarSubject, fields: Fields) -> None:
        super().__init__(writer)
        self._subject, self._fields = subject, tuple(fields)
        taken = [(list(extensions), name == "label") for name, extensions in fields.items()]
        self._instances = None
        if subject.members is not None:
            taken.append(([subject.members], False))
            self._instances = MemberInstances(
                writer, subject.name, subject.members, subject.form, self._fields
            )
        self._records = _native.TarRecords(
            taken,
            ["cls"] if subject.fields is None and "label" not in fields else [],
            PICKLES if subject.fields is None else (),
        )
        self._skipped = self._repeated = 0
        self._unmarked: dict[str, int] = {}

    def read(self, number: int, file: int, size: int) -> Iterator[ShardPart]:
        """Yield the records of a shard."""
        shard, records, subject = self._subject.shards[number], self._records, self._subject
        begin = self.rows
        records.begin(file, size)
        more = True
        while more:
            more = records.take(RECORDS_AT_ONCE)
            if (fault := records.fault) is not None:
                refuse(shard, size, fault, (*self._fields, f".{subject.members}"))
            yield self._part(shard)
        if pairs := records.duplicates():
            self.writer.add(REPEATED, np.array(pairs, "<i8") + begin)
            self._repeated += len(pairs)
        if records.unmarked:
            first = next(iter(self._unmarked), f"{UNMARKED}{path_text(shard[len(subject.base) :])}")
            self._unmarked[first] = self._unmarked.get(first, 0) + 1

    def _part(self, shard: bytes) -> ShardPart:
        """Return the records that were taken last, and write what only tar shards have."""
        records, numbers = self._records, dict(enumerate(self._fields))
        ranges = {
            name: (records.offsets(n), records.lengths(n)) for n, name in numbers.items() if name != "label"
        }
        self.writer.add(HEADERS, records.headers.astype("<u2"))
        if self._instances is not None:
            images, members = (
                np.stack([records.offsets(number), records.lengths(number)])
                for number in (0, len(self._fields))
            )
            self._instances.add(shard, images, members)
        if records.num_skipped:
            names = records.skipped.split(b"\0")[:-1]
            inside = shard[len(self._subject.base) :]
            self.writer.add(SKIPPED, b"".join(inside + b": " + name + b"\0" for name in names))
            self._skipped += len(names)
        labels = {name: records.numbers(n) for n, name in numbers.items() if name == "label"}
        return ShardPart(ranges, labels, records.names, records.name_lengths)

    def check(self, image_bytes: int) -> None:
        """Raise ``PlanError`` for shards without images, or with empty ones alone."""
        if self.rows == 0:
            raise PlanError(f"{self._subject.name} has no images{_others(sorted(self._records.left_out))}")
        if image_bytes == 0:
            raise PlanError(f"{self._subject.name}: all images are empty; pack the shards again")

    def finish(self, facts: Facts) -> Facts:
        """Add what isn't read and what may be wrong, and the instances."""
        left_out = {
            f"{LEFT_OUT}{path_text(each) or 'names without one'}": n
            for each, n in self._records.left_out.items()
        }
        seen = {SKIPPED: self._skipped, REPEATED: self._repeated, **left_out, **self._unmarked}
        facts = replace(facts, seen=seen)
        return facts if self._instances is None else self._instances.finish(facts)
