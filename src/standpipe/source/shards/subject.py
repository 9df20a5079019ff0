"""The subject of a ``TarShards``' index: the members of tar shards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.source.files.list_subject import LabelWriter
from standpipe.source.index.file import (
    HEADERS,
    PLACE,
    REPEATED,
    Facts,
    IndexFile,
    place_sections,
)
from standpipe.source.index.listing import SKIPPED
from standpipe.source.index.store import OwnPaths, Progress, is_settled
from standpipe.source.index.writer import IndexWriter, RecordDigest, places_of
from standpipe.source.shards.faults import refuse
from standpipe.source.shards.fields import IMAGES, PICKLES, Fields, image_fields
from standpipe.source.shards.instances import MemberInstances
from standpipe.source.shards.wids import ListedShard
from standpipe.source.targets import BoxForm
from standpipe.system.paths import open_for_reading, path_text, reading

MOST_NAMED = 9  # extensions in a message
RECORDS_AT_ONCE = 1 << 14
MEMBERS_AT_ONCE = 1 << 6  # on slow storage each takes about a millisecond, and Ctrl-C waits for all
CHEAP_SHARDS, CHEAP_BYTES = 64, 256 << 20  # that are indexed again each time
UNMARKED = "no end mark: "  # in an index's counts, before the first shard without the zeros at its end
LEFT_OUT = "left out: "  # in an index's counts, before an extension that isn't read


@dataclass(frozen=True, slots=True)
class TarSubject(OwnPaths):
    """A ``Subject`` of tar shards.

    shards  absolute paths, sorted
    fields  extensions of each field, as the user gave them; None: images and labels that the first record has
    index   the path of its index, if the user gave one
    listed  the shards as a list of wids has them, to be compared with what they are
    members the extension of JSON members with instances; None: there are none
    form    the form of their boxes
    base    the folder of all shards, with a slash at the end
    """

    shards: tuple[bytes, ...]
    name: str
    fields: Fields | None
    index: bytes | None
    listed: tuple[ListedShard, ...] | None = None
    members: str | None = None
    form: BoxForm = field(default_factory=BoxForm)
    base: bytes = field(init=False)

    kind = "tar"
    stays = True

    def __post_init__(self) -> None:
        folders = {os.path.dirname(shard) for shard in self.shards}  # noqa: PTH120 (pathlib has no bytes)
        base = os.path.join(os.path.commonpath(folders), b"")  # noqa: PTH118
        object.__setattr__(self, "base", base)

    @property
    def path(self) -> bytes:
        """The first shard's path, and the number of the others: an index is beside the shards."""
        first = self.shards[0]
        return first if len(self.shards) == 1 else b"%s+%d" % (first, len(self.shards) - 1)

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of the shards' paths and the fields."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(f"tar {self._options()!r}".encode(), digest_size=16)
        for shard in self.shards:
            digest.update(shard + b"\0")
        return digest.hexdigest()

    @property
    def costly(self) -> bool:
        """True for many or large shards, whose headers may take long to read where storage is slow, and for members."""
        if len(self.shards) > CHEAP_SHARDS or self.members is not None:
            return True
        try:
            return sum(os.stat(shard).st_size for shard in self.shards) > CHEAP_BYTES  # noqa: PTH116
        except OSError:  # opening the shard says more
            return False

    def names(self) -> list[bytes]:
        """Return the shards' paths without ``base``."""
        return [shard[len(self.base) :] for shard in self.shards]

    def objection(self, index: IndexFile) -> str | None:
        """Return why the index doesn't fit; None if all shards have the same names, sizes and modification times."""
        facts = index.facts
        if facts.kind != self.kind or facts.options != self._options():
            return "it was built with other options"
        count = len(self.shards)
        text = b"".join(name + b"\0" for name in self.names())
        sections = facts.sections
        if sections["shards"].size != 16 * count or sections["text"].size != len(text):
            return "it is the index of other shards"
        if b"".join(block.tobytes() for block in index.blocks("text")) != text:
            return "it is the index of other shards"
        known = index.part("shards", "<u8", (2,), 0, count).tolist()
        for shard, before in zip(self.shards, known, strict=True):
            try:
                now = os.stat(shard)  # noqa: PTH116
            except OSError as error:
                return f"{path_text(shard)} can't be examined any more: {error.strerror}"
            if [now.st_size, now.st_mtime_ns] != before:
                return f"{path_text(shard)} changed since"
            if not is_settled(now.st_mtime_ns, facts.began_ns):
                return f"{path_text(shard)} may have changed again without a new modification time"
        return None

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Read all headers of all shards, and write their index."""
        began_ns = time.time_ns()
        fields = self.fields or self._first_fields()
        taken = [(list(extensions), name == "label") for name, extensions in fields.items()]
        instances = None
        if self.members is not None:
            taken.append(([self.members], False))
            instances = MemberInstances(writer, self.name, self.members, self.form, tuple(fields))
        records = _native.TarRecords(
            taken,
            ["cls"] if self.fields is None and "label" not in fields else [],
            PICKLES if self.fields is None else (),
        )
        work = _Work(writer, tuple(fields), instances)
        begin = 0
        for number, shard in enumerate(self.shards):
            listed = None if self.listed is None else self.listed[number]
            self._take(shard, listed, records, work, begin)
            begin += len(shard) - len(self.base) + 1
            if on_progress is not None:
                on_progress("shards", number + 1, len(self.shards))
        if work.rows == 0:
            raise PlanError(f"{self.name} has no images{_others(sorted(records.left_out))}")
        if work.image_bytes == 0:
            raise PlanError(f"{self.name}: all images are empty; pack the shards again")
        writer.add("text", b"".join(name + b"\0" for name in self.names()))
        left_out = {
            f"{LEFT_OUT}{path_text(each) or 'names without one'}": n for each, n in records.left_out.items()
        }
        label = work.finish_labels()
        facts = Facts(
            kind=self.kind,
            options=self._options(),
            seen={SKIPPED: work.skipped, REPEATED: work.repeated, **left_out, **work.unmarked},
            began_ns=began_ns,
            rows=work.rows,
            manifest=work.manifest.hexdigest(labels="label" in fields, classes=None),
            classes=None,
            empty=(),
            label=label,
            outside=0,
            encoded=work.encoded,
        )
        return facts if instances is None else instances.finish(facts)

    def _take(
        self,
        shard: bytes,
        listed: ListedShard | None,
        records: _native.TarRecords,
        work: _Work,
        name_at: int,
    ) -> None:
        with open_for_reading(shard) as file, reading(shard):
            before = os.fstat(file.fileno())
            if before.st_size == 0:
                raise PlanError(f"{path_text(shard)} is empty; copy it again, or leave it out")
            work.begin(shard, shard[len(self.base) :], name_at)
            records.begin(file.fileno(), before.st_size)
            more = True
            while more:
                more = records.take(RECORDS_AT_ONCE)
                if (fault := records.fault) is not None:
                    refuse(shard, before.st_size, fault, (*work.fields, f".{self.members}"))
                work.take(records)
            samples = work.end(records)
            if listed is not None:
                _compare(listed, samples, before.st_size, self.name)
            if records.unmarked:
                work.count_unmarked()
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise PlanError(
                    f"{path_text(shard)} changed while it was read; start again when it is complete"
                )
        work.writer.add("shards", np.array([before.st_size, before.st_mtime_ns], "<u8"))

    def _options(self) -> dict[str, bool]:
        fields = self.fields or {}
        options = {f"{name}={';'.join(extensions)}": True for name, extensions in fields.items()}
        if self.members is not None:
            options[f"instances={self.members} {self.form}"] = True
        if self.listed is not None:
            from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

            says = repr([(shard.samples, shard.size or shard.end) for shard in self.listed])
            options[f"listed {blake2b(says.encode(), digest_size=16).hexdigest()}"] = True
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


def _compare(listed: ListedShard, samples: int, size: int, name: str) -> None:
    """Raise ``PlanError`` if a shard isn't as its list says."""
    wrong = f"{samples:,} samples" if samples != listed.samples else ""
    says = f"{listed.samples:,}"
    if listed.size is not None and size != listed.size:
        wrong, says = f"{size:,} bytes", f"{listed.size:,}"
    if size < listed.end:
        wrong, says = f"{size:,} bytes", f"at least {listed.end:,}"
    if wrong:
        raise PlanError(
            f"{path_text(listed.path)} has {wrong}, but {name} says {says}; copy the shard or list again, or name the "
            "shards instead of the list"
        )


class _Work:
    """A writer of records into an index.

    fields   names of all fields, the first image before others
    encoded  those of byte fields
    """

    def __init__(
        self, writer: IndexWriter, fields: tuple[str, ...], instances: MemberInstances | None
    ) -> None:
        self.writer, self._instances = writer, instances
        self.manifest = RecordDigest()
        self.rows = self.skipped = self.repeated = self.image_bytes = 0
        self.fields, self.encoded = fields, tuple(name for name in fields if name != "label")
        self._label = fields.index("label") if "label" in fields else None
        self._labels = LabelWriter(writer)
        self._path = self._shard = b""
        self._shard_place, self._begin = np.zeros(1, PLACE), 0
        self._skipped_before = 0
        self.unmarked: dict[str, int] = {}

    def begin(self, path: bytes, shard: bytes, at: int) -> None:
        """Begin with a shard; ``at``: offset of its name in the text of all names."""
        self._path, self._shard = path, shard
        self._begin, self._skipped_before = self.rows, self.skipped
        self._shard_place = places_of(at, np.array([len(shard)]), np.array([len(shard)]))

    def take(self, records: _native.TarRecords) -> None:
        """Write the records that were taken last."""
        headers = records.headers
        self.rows += len(headers)
        self.writer.add("places", np.repeat(self._shard_place, len(headers)))
        self.writer.add(HEADERS, headers.astype("<u2"))
        for name in self.encoded:
            number = self.fields.index(name)
            for section, values in zip(
                place_sections(name), (records.offsets(number), records.lengths(number)), strict=True
            ):
                self.writer.add(section, values.astype("<i8"))
        if self._instances is not None:
            images, members = (
                np.stack([records.offsets(number), records.lengths(number)])
                for number in (0, len(self.fields))
            )
            self._instances.add(self._path, images, members)
        self.image_bytes += int(records.lengths(0).sum())
        self.manifest.add_paths(records.names, records.name_lengths)
        if self._label is not None:
            self._labels.add(records.numbers(self._label))
        if records.num_skipped:
            names = records.skipped.split(b"\0")[:-1]
            self.writer.add(SKIPPED, b"".join(self._shard + b": " + name + b"\0" for name in names))
            self.skipped += len(names)

    def end(self, records: _native.TarRecords) -> int:
        """Write which records of the shard have the same key; return the number of its samples."""
        if pairs := records.duplicates():
            self.writer.add(REPEATED, np.array(pairs, "<i8") + self._begin)
            self.repeated += len(pairs)
        return self.rows - self._begin + self.skipped - self._skipped_before

    def count_unmarked(self) -> None:
        """Count a shard without the zeros that mark its end, under the name of the first one."""
        first = next(iter(self.unmarked), f"{UNMARKED}{path_text(self._shard)}")
        self.unmarked[first] = self.unmarked.get(first, 0) + 1

    def finish_labels(self) -> str | None:
        """Write the labels; return their dtype."""
        if self._label is None:
            return None
        self._labels.finish(self.manifest, [])
        return self._labels.dtype
