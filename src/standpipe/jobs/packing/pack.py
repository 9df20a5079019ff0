"""Pack the images of a source into shards: plain tar files that WebDataset reads.

All threads work on one shard at a time. The sizes of its files give the place of each member beforehand, so threads
write where they are. A shard gets its name when all of it is on the disk: a process that is killed leaves one part of
a shard, which the next one writes again. No byte of a shard depends on threads, time or machine.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import Encoded, KnownHere, OpenSource, Source
from standpipe.errors import PlanError, ReadError, StandpipeError
from standpipe.jobs.packing.drafts import OPEN, claimed_folder, draft, explain_errors, part, suffix, sync
from standpipe.jobs.packing.layout import (
    BLOCK,
    MOST_MEMBER_BYTES,
    MOST_TEXT_BYTES,
    NAME_BYTES,
    PART_BYTES,
    Members,
    PackFacts,
    Progress,
    Sums,
    ThreadBuffer,
    end_early,
    packed_shard_path,
    parts_of,
    sums_path,
    threads_of,
)
from standpipe.jobs.packing.records import OrderedColumn, PackedImage, images_of, lists_of
from standpipe.order import Sequential, Shuffled
from standpipe.source import ImageFolder, TarShards
from standpipe.source.build_index import built_index
from standpipe.source.index.file import RANGE
from standpipe.source.index.listing import Listing
from standpipe.source.index.with_fields import is_field_name
from standpipe.source.shards.tar_subject import TarSubject
from standpipe.spec import ArraySpec, Int64Array, UInt8Array
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor, read_all, write_all
from standpipe.units import parse_bytes

RECORDS_AT_ONCE = 1 << 12
MOST_RECORDS = 1 << 16  # of a shard: what is known of them is in memory
SETTLED_NS = 3 * 10**9
CHANGED = "was changed while it was packed"


@dataclass(frozen=True, slots=True)
class PackReport:
    """The shards that ``pack_shards`` wrote.

    Attributes
    ----------
    folder : pathlib.Path
        The folder of the shards.
    records, shards : int
        Number of records and of shards.
    size_bytes : int
        Bytes of all shards.
    written : int
        Shards that this call wrote; the others were complete before.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> report.records, report.shards, report.written
    (24, 1, 1)
    """

    folder: Path
    records: int
    shards: int
    size_bytes: int
    written: int


def pack_shards(
    source: Source,
    folder: str | os.PathLike[str],
    *,
    shard_size: int | str = "512MiB",
    order: Literal["shuffled", "source"] = "shuffled",
    seed: int = 0,
    num_workers: int | None = None,
    on_progress: Progress | None = None,
) -> PackReport:
    """Pack the images of a source into tar files in WebDataset's format.

    A record becomes up to three members of one key, which is its place in the packed order: the image's bytes as they
    are, such as ``000000007.jpg``; ``.cls`` with its label; and ``.json`` with its path, its class name, columns, texts
    and instances. The path of a part of a file, as in TFRecord files, is its number in the source, such as
    ``000000042.jpg``. ``unpack_shards`` restores the files. WebDataset and other programs read the shards too. The
    shards' index has the columns, so that ``TarShards`` gives the same batches as the source, apart from texts;
    ``TarShards(…, instances="json")`` reads boxes. ``HuggingFace`` turns photos as their EXIF orientation says: with
    the shards, ``decode(orientation="apply")`` does.

    If the call is interrupted or killed, the same call continues. It writes at most one shard again, and the shards
    have the same bytes as without the interruption.

    Parameters
    ----------
    source : Source
        A source of one image per record in files, or in parts of files: ``ImageFolder``, ``FileList``, ``TarShards``,
        ``TFRecords``, ``MDS``, ``Arrow``, ``HuggingFace``, ``Coco``, ``YoloLabels`` or ``PascalVoc``.
    folder : path
        The folder of the shards. It is created, and must be empty at first.
    shard_size : int or str, default "512MiB"
        Most bytes of a shard. One that would get more, or more than 65,536 records, ends. A record that has more
        alone has a shard of its own.
    order : {"shuffled", "source"}, default "shuffled"
        The order of records in the shards. ``"shuffled"`` lets programs that read shards from the beginning to the
        end get all classes. ``"source"`` keeps record numbers.
    seed : int, default 0
        Another seed gives another shuffled order.
    num_workers : int, optional
        Number of threads. Default: one per CPU that this process may use.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total.

    Returns
    -------
    standpipe.reports.PackReport

    Raises
    ------
    PlanError
        If records aren't one image in a file, if files aren't below one folder, or if the folder of shards has
        something else in it.
    ReadError
        If a record can't be read, or has another checksum than its source noted.
    StandpipeError
        If a shard can't be written.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards", shard_size="16KiB", num_workers=2)
    >>> report.records, report.shards > 1
    (24, True)
    """
    shard_bytes = parse_bytes("shard_size", shard_size)
    if order not in ("shuffled", "source"):
        raise PlanError(f"order must be 'shuffled' or 'source', got {order!r}")
    _check_folder(source, folder)
    opened = source.open()
    _check(opened)
    records = opened.num_records
    in_order = Sequential(records) if order == "source" else Shuffled(records, seed)
    facts = PackFacts(
        source=opened.digest,
        records=records,
        order=order,
        seed=seed if order == "shuffled" else 0,
        shard_bytes=shard_bytes,
    )
    path, workers = Path(folder), threads_of(num_workers)
    with claimed_folder(path, facts) as complete:
        return _Packer(path, opened, in_order, facts, workers, on_progress).run(complete)


def _check_folder(source: Source, folder: str | os.PathLike[str]) -> None:
    """Raise ``PlanError`` if the folder of shards would be a class folder of the source."""
    if isinstance(source, ImageFolder):
        target, root = os.path.realpath(folder), os.fsdecode(os.path.realpath(source.root))
        if target.startswith(os.path.join(root, "")):  # noqa: PTH118 (as text, whatever its bytes)
            raise PlanError(f"{folder} is inside of {root}, the folder to pack; use a folder outside of it")


def _check(source: OpenSource) -> None:
    """Raise ``PlanError`` if a record isn't one image in a file."""
    located = source.locate(np.zeros(1, np.int64))
    encoded = [name for name, spec in source.fields.items() if isinstance(spec, Encoded)]
    if encoded != ["image"] or [*located.files] != encoded or not isinstance(source, KnownHere):
        raise PlanError(
            "only records of one image in a file, or in a part of one, can be packed, and it must be the only encoded "
            "field, 'image': use a source of files, such as ImageFolder, FileList, TFRecords or HuggingFace"
        )
    if located.shapes is not None:
        raise PlanError("shards have no masks of instances: pack the source without instance_masks=True")


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard before it is written.

    stop     its records are those up to this place of the packed order
    images   where the records' images are, (n,)
    texts    JSON and label of each record: the contents of the members before its image
    """

    number: int
    start: int
    stop: int
    images: list[PackedImage]
    texts: list[tuple[bytes, ...]]
    members: Members


class _Packer:
    """The packing of one source."""

    def __init__(
        self,
        folder: Path,
        source: OpenSource,
        order: Sequential | Shuffled,
        facts: PackFacts,
        workers: int,
        on_progress: Progress | None,
    ) -> None:
        self.folder, self.facts = folder, facts
        self._source, self._order, self._on_progress = source, order, on_progress
        assert isinstance(source, KnownHere)
        self._base = os.fsencode(os.path.join(source.here(), ""))  # noqa: PTH118 (as text, whatever its bytes)
        self._pool = ThreadPoolExecutor(workers, "standpipe pack")
        self._buffer = ThreadBuffer()
        self._written = 0

    def run(self, complete: bool) -> PackReport:
        """Write the shards that are missing, and their index. ``complete``: True if all had been written before."""
        start = number = size_bytes = 0
        try:
            while start < self.facts.records:
                stop = self._complete(number, start)
                if stop is None:
                    stop = self._write(self._planned(number, start))
                    self._written += 1
                size_bytes += packed_shard_path(self.folder, number).stat().st_size
                start, number = stop, number + 1
                self._progress(start)
        finally:
            self._pool.shutdown(cancel_futures=True)
        if self._written or not complete:
            shards = TarShards([packed_shard_path(self.folder, each) for each in range(number)])
            built_index(shards.subject(), self._columns(), _checksums)
            replace(self.facts, shards=number).write(self.folder)
        return PackReport(self.folder, self.facts.records, number, size_bytes, self._written)

    def _progress(self, done: int) -> None:
        if self._on_progress is not None:
            self._on_progress("records", done, self.facts.records)

    def _complete(self, number: int, start: int) -> int | None:
        """Return where a complete shard stops; None if it isn't complete."""
        path = packed_shard_path(self.folder, number)
        if not path.exists():
            return None
        advice = f"delete {path}, and run the same command again"
        try:
            sums = Sums.read(sums_path(self.folder, number))
        except FileNotFoundError as error:
            raise StandpipeError(f"{error.filename} is missing; {advice}") from error
        except OSError as error:
            raise StandpipeError(f"can't read {error.filename}: {error.strerror}; {advice}") from error
        except StandpipeError as error:
            raise StandpipeError(f"{error}; {advice}") from error
        if sums.start != start or path.stat().st_size != sums.members.shard_bytes:
            raise StandpipeError(f"{path} is damaged; {advice}")
        return sums.stop

    def _planned(self, number: int, start: int) -> _Shard:
        """Choose the records of a shard, and the place of each member."""
        images: list[PackedImage] = []
        texts: list[tuple[bytes, ...]] = []
        names: list[bytes] = []
        sizes: list[int] = []
        shard_bytes = 2 * BLOCK
        most = min(self.facts.records, start + MOST_RECORDS)
        for first in range(start, most, RECORDS_AT_ONCE):
            records = self._order.indices(0, first, min(first + RECORDS_AT_ONCE, most))
            for place, record in enumerate(self._described(records), first):
                image, suffix_of, texts_of = record
                contents = [*map(len, texts_of), image.size]
                shard_bytes += sum(BLOCK + -(-each // BLOCK) * BLOCK for each in contents)
                if shard_bytes > self.facts.shard_bytes and images:
                    return _Shard(number, start, place, images, texts, _members(names, sizes))
                key = b"%09d" % place
                suffixes = (b".json", b".cls")[: len(texts_of)]
                names += [*(key + each for each in suffixes), key + suffix_of]
                sizes += contents
                images.append(image)
                texts.append(texts_of)
        return _Shard(number, start, most, images, texts, _members(names, sizes))

    def _described(self, records: Int64Array) -> Iterator[tuple[PackedImage, bytes, tuple[bytes, ...]]]:
        """Yield each record's image, its suffix, and its JSON and label."""
        located = self._source.locate(records)
        columns = {name: values.tolist() for name, values in located.plain.items() if name != "label"}
        columns |= {name: texts.texts() for name, texts in located.texts.items()}
        columns |= {name: lists_of(ragged) for name, ragged in located.ragged.items()}
        labels = located.plain["label"].tolist() if "label" in located.plain else None
        classes = self._source.classes or ()
        for row, image in enumerate(images_of(located.files["image"])):
            record = int(records[row])
            ending = suffix(image.path, image.offset, image.size, is_part=image.is_part)
            is_named = isinstance(self._source, Listing) and not image.is_part
            own = self._relative(image.path, record) if is_named else f"{record:09d}{ending.decode()}"
            if image.size < 0:
                self._unknown_size(image.path, record)
            facts: dict[str, Any] = {"path": own}
            if labels is not None and 0 <= labels[row] < len(classes):
                facts["class"] = classes[labels[row]]
            facts |= {name: values[row] for name, values in columns.items() if name not in facts}
            text = json.dumps(facts).encode()
            if image.size > MOST_MEMBER_BYTES or len(text) > MOST_TEXT_BYTES:
                raise PlanError(
                    f"{self._source.name(record)} has {image.size:,} bytes, and {len(text):,} bytes of columns and "
                    f"texts; there can be {MOST_MEMBER_BYTES:,}, and {MOST_TEXT_BYTES:,}"
                )
            yield image, ending, (text,) if labels is None else (text, str(labels[row]).encode())

    def _columns(self) -> dict[str, Any]:
        """Return the columns of numbers, in the packed order, for the shards' index."""
        specs = {name: spec for name, spec in self._source.fields.items() if isinstance(spec, ArraySpec)}
        return {
            name: OrderedColumn(self._source, self._order, name, spec)
            for name, spec in specs.items()
            if is_field_name(name) and name not in RANGE
        }

    def _relative(self, path: bytes, record: int) -> str:
        """Return a path as it is below the source's folder. Raises ``PlanError`` for other places."""
        below = path.removeprefix(self._base)
        if not path.startswith(self._base) or b".." in below.split(b"/"):
            raise PlanError(
                f"{self._source.name(record)} isn't below {os.fsdecode(self._base)}; use "
                "FileList(…, root=…) with a folder that contains all files"
            )
        return below.decode("utf-8", "surrogateescape")

    def _unknown_size(self, path: bytes, record: int) -> NoReturn:
        """Raise ``ReadError`` for a file whose size couldn't be found out."""
        try:
            os.stat(path)  # noqa: PTH116 (bytes)
            raise self._unreadable(CHANGED, record)
        except OSError as error:
            raise self._unreadable(f"can't be examined: {error.strerror}", record) from error

    def _unreadable(self, reason: str, record: int) -> ReadError:
        return ReadError(reason, place="read", index=record, path=self._source.name(record))

    def _write(self, shard: _Shard) -> int:
        """Write a shard and its checksums; return where its records stop."""
        target, sums = packed_shard_path(self.folder, shard.number), sums_path(self.folder, shard.number)
        with explain_errors(target), draft(target) as file:
            os.ftruncate(file, shard.members.shard_bytes)
            found = self._filled(file, shard)
            # An index of a file that has just been changed isn't believed, and one is built right after the last shard.
            before_ns = time.time_ns() - SETTLED_NS
            os.utime(file, ns=(before_ns, before_ns))
            os.fsync(file)
            with draft(sums) as text:
                write_all(text, memoryview(found.text().encode()), 0)
                os.fsync(text)
            faultpoint("pack.publish.before", shard.number)
            os.rename(part(sums), sums)  # noqa: PTH104
            os.rename(part(target), target)  # noqa: PTH104
            faultpoint("pack.publish.after", shard.number)
            sync(self.folder)
        return shard.stop

    def _filled(self, file: int, shard: _Shard) -> Sums:
        """Write all members of a shard with all threads; return their checksums."""
        members, each = shard.members, len(shard.texts[0]) + 1
        ends, begins, headers = members.ends, members.begins, members.headers()
        whole = Sums(
            shard.start,
            shard.stop,
            members,
            np.empty(len(ends), np.uint32),
            _native.crc32c_of(headers.reshape(-1), np.arange(len(ends)) * BLOCK, np.full(len(ends), BLOCK)),
        )
        jobs: list[Future[int]] = []
        try:
            jobs.extend(
                self._pool.submit(self._write_part, file, shard, part, begins, headers, whole.content)
                for part in parts_of(ends[each - 1 :: each], PART_BYTES)
            )
            for job in jobs:
                self._progress(shard.start + job.result())
        except BaseException:
            end_early(file, jobs)
            raise
        return whole

    def _write_part(
        self,
        file: int,
        shard: _Shard,
        part: slice,
        begins: Int64Array,
        headers: UInt8Array,
        sums: NDArray[np.uint32],
    ) -> int:
        """Write some records of a shard; return how many of its records are before the next part."""
        each = len(shard.texts[0]) + 1
        members = slice(part.start * each, part.stop * each)
        at, sizes = begins[members], shard.members.sizes[members]
        base = int(at[0]) - BLOCK
        span = int(at[-1] + -(-sizes[-1] // BLOCK) * BLOCK) - base
        large = span > PART_BYTES  # a single record
        if large:
            span = int(at[-1]) - base
        out = self._buffer.content[:span]
        out[:] = 0
        data, places = out.data, (at - base).tolist()
        for member, place in enumerate(places):
            data[place - BLOCK : place] = headers[members.start + member].data
        for record in range(part.start, part.stop):
            own = places[(record - part.start) * each :]
            for text, place in zip(shard.texts[record], own, strict=False):
                data[place : place + len(text)] = text
            if not large:
                size = int(shard.members.sizes[record * each + each - 1])
                place = own[each - 1]
                with self._opened(shard, record) as image:
                    self._read(shard, record, image, data[place : place + size], 0)
        small = len(at) - large
        sums[members][:small] = _native.crc32c_of(out, at[:small] - base, sizes[:small])
        faultpoint("pack.write", shard.start + part.start)
        write_all(file, data, base)
        if large:
            sums[members.stop - 1] = self._copy(file, shard, part.start, int(at[-1]), int(sizes[-1]))
        for record, found in zip(
            range(part.start, part.stop), sums[members][each - 1 :: each].tolist(), strict=True
        ):
            if shard.images[record].crc32c not in (-1, found):
                raise self._failed(
                    shard, record, "damaged, or changed since it was indexed: its CRC-32C differs"
                )
        stop: int = part.stop
        return stop

    def _copy(self, file: int, shard: _Shard, record: int, begin: int, size: int) -> int:
        """Copy a file that is larger than the buffer into a shard; return its CRC-32C."""
        buffer, crc = self._buffer.content, 0
        with self._opened(shard, record) as image:
            for at in range(0, size, PART_BYTES):
                part = buffer[: min(PART_BYTES, size - at)]
                self._read(shard, record, image, part.data, at)
                crc = _native.crc32c(part, crc)
                write_all(file, part.data, begin + at)
        return crc

    @contextmanager
    def _opened(self, shard: _Shard, record: int) -> Iterator[int]:
        """Open the file of a record. Raises ``ReadError`` if it isn't a regular file, or has changed."""
        image = shard.images[record]
        try:
            file = os.open(image.path, OPEN)
        except OSError as error:
            raise self._failed(shard, record, f"can't be opened: {error.strerror}") from error
        with closing_descriptor(file):
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise self._failed(shard, record, "isn't a regular file")
            known = zip((image.file_bytes, image.mtime_ns), (status.st_size, status.st_mtime_ns), strict=True)
            if any(before not in (-1, now) for before, now in known):
                raise self._failed(shard, record, CHANGED)
            yield file

    def _read(self, shard: _Shard, record: int, file: int, out: memoryview, at: int) -> None:
        """Read all of ``out`` from byte ``at`` of an image on."""
        try:
            read_all(file, out, shard.images[record].offset + at)
        except OSError as error:
            raise self._failed(shard, record, f"can't be read: {error.strerror}") from error
        except EOFError as error:
            raise self._failed(shard, record, CHANGED) from error

    def _failed(self, shard: _Shard, record: int, reason: str) -> ReadError:
        place = shard.start + record
        return self._unreadable(reason, int(self._order.indices(0, place, place + 1)[0]))


def _checksums(shards: Listing) -> Iterator[tuple[str, NDArray[np.uint32]]]:
    """Yield the checksums of the images in each shard, which are the last members of their records."""
    assert isinstance(shards.subject, TarSubject)
    for shard in shards.subject.shards:
        sums = Sums.read(Path(os.fsdecode(shard)).with_suffix(".crc32c"))
        each = len(sums.content) // (sums.stop - sums.start)
        yield "image", sums.content[each - 1 :: each]


def _members(names: list[bytes], sizes: list[int]) -> Members:
    return Members(np.array(names, f"S{NAME_BYTES}"), np.array(sizes, np.int64))
