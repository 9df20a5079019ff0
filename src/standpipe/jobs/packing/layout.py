"""The files of a packed data set: shards, which are plain tar files, and the checksums of their members.

A folder of shards::

    pack.json               what was packed, and how
    shard-000000.tar        the members of some records: NUMBER.json, NUMBER.cls if there are labels, NUMBER.jpg
    shard-000000.crc32c     a line for each member: CRC-32C of its bytes and of its header, size, name
    shard-000001.tar
    …

NUMBER is the record's place in the packed order. The JSON has the record's path in the source, or its number there for
a part of a file, and its class name, columns, texts and instances.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError, StandpipeError
from standpipe.spec import Int64Array, UInt8Array
from standpipe.system.files import drafted, open_regular, read_regular
from standpipe.system.machine import cpu_count
from standpipe.units import is_count

Progress: TypeAlias = Callable[[str, int, int | None], None]

PART_BYTES = 1 << 20  # that a thread reads or writes at once: it fits a core's cache
JOB_BYTES = 16 << 20  # of a shard that is checked or restored by one thread
MOST_THREADS = 1 << 10
FACTS = "pack.json"
MOST_FACTS_BYTES = 1 << 20
MOST_SUMS_BYTES = 1 << 26
VERSION = 1
BLOCK = tarfile.BLOCKSIZE
MOST_TEXT_BYTES = PART_BYTES - 8 * BLOCK  # of a record's JSON, which is in one buffer with the headers
NAME_BYTES, SIZE_AT, SIZE_DIGITS, SUM_AT, SUM_DIGITS = 100, 124, 11, 148, 6  # of a ustar header
MOST_MEMBER_BYTES = 8**SIZE_DIGITS - 1
MOST_MISSING = 1_000  # shards that verify names
MOST_PACKED = 10**18  # of a pack
FIRST_LINE = re.compile(r"# standpipe pack 1: records (\d{1,18}) to (\d{1,18})")
FIELDS = 4  # of a line
LAST_LINE = "# end\n"


class ThreadBuffer(threading.local):
    """A buffer of each thread that uses this object: ``content``, (PART_BYTES,)."""

    def __init__(self) -> None:
        self.content: UInt8Array = np.empty(PART_BYTES, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFacts:
    """The facts of a folder of shards, which its pack.json has.

    source       digest of the packed source
    records      number of records
    order, seed  the order of records: "source", or "shuffled" with its seed
    shard_bytes  the most bytes of a shard, unless a single record has more
    shards       number of shards when all are complete; None before
    """

    source: str
    records: int
    order: str
    seed: int
    shard_bytes: int
    shards: int | None = None
    version: int = VERSION

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the facts of a folder; None if it has none. Raises ``StandpipeError`` if they can't be used."""
        path = folder / FACTS
        try:
            found = json.loads(read_regular(path, MOST_FACTS_BYTES).decode("ascii"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StandpipeError(f"can't read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise StandpipeError(f"{path} is damaged: {error}") from error
        try:
            facts = cls(**found)
        except TypeError as error:
            raise StandpipeError(f"{path} isn't a file of standpipe pack") from error
        if facts.version != VERSION:
            raise StandpipeError(
                f"{path} has version {facts.version}; this standpipe reads version {VERSION}"
            )
        records, shards = facts.records, facts.shards
        if not is_count(records, 1, MOST_PACKED) or not (shards is None or is_count(shards, 1, records)):
            raise StandpipeError(f"{path} is damaged: it must have the numbers of records and shards")
        return facts

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all."""
        with drafted(folder / FACTS) as draft, draft.open("w", encoding="ascii") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())

    def same(self, other: PackFacts) -> bool:
        """Return True if both describe the same shards."""
        return replace(self, shards=None) == replace(other, shards=None)


def packed_facts(folder: str | os.PathLike[str]) -> PackFacts:
    """Return the facts of a folder whose shards are complete. Raises ``PlanError`` for other folders."""
    if Path(folder).is_file():
        raise PlanError(f"{folder} is a file; name the folder of the shards, {Path(folder).parent}")
    facts = PackFacts.read(Path(folder))
    if facts is None:
        raise PlanError(f"{folder} has no {FACTS}: it isn't a folder that standpipe pack wrote")
    if facts.shards is None:
        raise PlanError(f"{folder} isn't complete yet; run the same standpipe pack again, and it goes on")
    most = MOST_MISSING + sum(path.suffix == ".tar" for path in Path(folder).iterdir())
    if facts.shards > most:  # looking for each would take for ever
        raise StandpipeError(
            f"{Path(folder) / FACTS} says that there are {facts.shards:,} shards, and the folder lacks more than "
            f"{MOST_MISSING:,} of them; copy the folder again"
        )
    return facts


def packed_shard_path(folder: Path, number: int) -> Path:
    """Return the path of a shard."""
    return folder / f"shard-{number:06d}.tar"


def sums_path(folder: Path, number: int) -> Path:
    """Return the path of the checksums of a shard."""
    return folder / f"shard-{number:06d}.crc32c"


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a shard, in order, without their bytes.

    names   (m,) S100: their names in the shard
    sizes   (m,) int64: bytes of each
    """

    names: NDArray[np.bytes_]
    sizes: Int64Array

    @property
    def ends(self) -> Int64Array:
        """(m,) int64: the end of each member's blocks in the shard."""
        return np.cumsum(BLOCK + (self.sizes + BLOCK - 1) // BLOCK * BLOCK)

    @property
    def begins(self) -> Int64Array:
        """(m,) int64: the first byte of each member's content; its header is the block before."""
        return self.ends - (self.sizes + BLOCK - 1) // BLOCK * BLOCK

    @property
    def shard_bytes(self) -> int:
        """Bytes of the whole shard: two empty blocks end it, and tar files have whole records."""
        end = int(self.ends[-1]) + 2 * BLOCK
        return -(-end // tarfile.RECORDSIZE) * tarfile.RECORDSIZE

    def headers(self) -> UInt8Array:
        """(m, 512) uint8: the members' headers. They depend on name and size alone."""
        plain = tarfile.TarInfo()
        plain.mode = 0o644
        empty = np.frombuffer(plain.tobuf(tarfile.USTAR_FORMAT), np.uint8)
        headers = np.repeat(empty[None], len(self.sizes), axis=0)
        headers[:, :NAME_BYTES] = self.names.view(np.uint8).reshape(len(self.sizes), NAME_BYTES)
        headers[:, SIZE_AT : SIZE_AT + SIZE_DIGITS] = _octal(self.sizes, SIZE_DIGITS)
        headers[:, SUM_AT : SUM_AT + 8] = ord(" ")  # as the sum counts them
        sums = headers.sum(axis=1, dtype=np.int64)
        headers[:, SUM_AT : SUM_AT + SUM_DIGITS] = _octal(sums, SUM_DIGITS)
        headers[:, SUM_AT + SUM_DIGITS] = 0
        return headers


def _octal(numbers: Int64Array, digits: int) -> UInt8Array:
    """Return numbers as octal digits, (n, digits) uint8."""
    shifts = 3 * np.arange(digits - 1, -1, -1)
    return (ord("0") + (numbers[:, None] >> shifts & 7)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Sums:
    """The checksums of a shard.

    start, stop  its records: places [start, stop) of the packed order
    content      (m,) uint32: CRC-32C of each member's bytes
    headers      (m,) uint32: CRC-32C of each member's header
    """

    start: int
    stop: int
    members: Members
    content: NDArray[np.uint32]
    headers: NDArray[np.uint32]

    def text(self) -> str:
        """Return the text of the file."""
        columns = (
            self.content.tolist(),
            self.headers.tolist(),
            self.members.sizes.tolist(),
            self.members.names.tolist(),
        )
        lines = [
            f"{content:08x} {header:08x} {size} {name.decode()}\n"
            for content, header, size, name in zip(*columns, strict=True)
        ]
        return f"# standpipe pack 1: records {self.start} to {self.stop}\n{''.join(lines)}{LAST_LINE}"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of checksums. Raises ``StandpipeError`` if it is damaged, ``OSError`` if it can't be read."""
        text = read_regular(path, MOST_SUMS_BYTES).decode("ascii", "replace")
        first, _, rest = text.partition("\n")
        head, fields = FIRST_LINE.fullmatch(first), rest.removesuffix(LAST_LINE).split()
        try:
            if head is None or not rest.endswith(LAST_LINE) or not fields:
                raise ValueError
            start, stop = int(head[1]), int(head[2])
            content, headers, sizes, names = (fields[column::FIELDS] for column in range(FIELDS))
            found = cls(
                start,
                stop,
                Members(np.array(names, f"S{NAME_BYTES}"), np.array([int(size) for size in sizes], np.int64)),
                np.array([int(crc, 16) for crc in content], np.uint32),
                np.array([int(crc, 16) for crc in headers], np.uint32),
            )
            if stop <= start or len(fields) % (FIELDS * (stop - start)):
                raise ValueError
            if not 0 <= found.members.sizes.min() <= found.members.sizes.max() <= MOST_MEMBER_BYTES:
                raise ValueError
        except (ValueError, OverflowError) as error:
            raise StandpipeError(f"{path} is damaged") from error
        return found


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard that is open for reading.

    file  descriptor
    """

    path: Path
    file: int
    sums: Sums

    @classmethod
    def open(cls, folder: Path, number: int, start: int | None, stop: int | None) -> Self:
        """Open the shard of the records [start, stop), as far as they are known.

        Raises ``StandpipeError`` if it or its checksums are missing or can't be used.
        """
        path, sums = packed_shard_path(folder, number), sums_path(folder, number)
        try:
            found = Sums.read(sums)
            if start not in (None, found.start) or stop not in (None, found.stop):
                raise StandpipeError(
                    f"{sums} is damaged: its records don't follow those of the shard before it"
                )
            return cls(path, open_regular(path), found)
        except FileNotFoundError as error:
            raise StandpipeError(f"{error.filename} is missing") from error
        except OSError as error:
            raise StandpipeError(f"can't read {error.filename}: {error.strerror}") from error

    @property
    def each(self) -> int:
        """The number of members of a record."""
        return len(self.sums.members.sizes) // (self.sums.stop - self.sums.start)

    def parts(self, part_bytes: int) -> Iterator[slice]:
        """Yield slices of the shard's records, of about as many bytes each."""
        ends = self.sums.members.ends[self.each - 1 :: self.each]
        return parts_of(ends, part_bytes)


def parts_of(ends: Int64Array, part_bytes: int) -> Iterator[slice]:
    """Yield slices of records that end at ``ends``, (n,): each of at most ``part_bytes``, or of one record."""
    done = 0
    while done < len(ends):
        begin = int(ends[done - 1]) if done else 0
        stop = max(int(np.searchsorted(ends, begin + part_bytes, "right")), done + 1)
        yield slice(done, stop)
        done = stop


Result = TypeVar("Result")


def in_parts(
    folder: Path, facts: PackFacts, workers: int, work: Callable[[OpenShard, slice], Result]
) -> Generator[list[Result] | StandpipeError, None, None]:
    """Call ``work`` for parts of the records of all shards, in threads; yield the results, shard by shard.

    A shard that can't be opened gives its error. While the parts of one shard are at work, the next one is opened.
    If the caller closes the generator early, ``work`` can't read its shard any more, and ends.
    """
    shards = facts.shards or 0
    waiting: deque[tuple[OpenShard, list[Future[Result]]] | StandpipeError] = deque()

    def finished() -> list[Result] | StandpipeError:
        first = waiting[0]
        results = first if isinstance(first, StandpipeError) else [job.result() for job in first[1]]
        waiting.popleft()
        if not isinstance(first, StandpipeError):
            os.close(first[0].file)
        return results

    with ThreadPoolExecutor(workers, "standpipe shards") as pool:
        try:
            begin: int | None = 0
            for number in range(shards):
                last = number + 1 == shards
                try:
                    shard = OpenShard.open(folder, number, begin, facts.records if last else None)
                    begin = shard.sums.stop
                    jobs: list[Future[Result]] = []
                    waiting.append((shard, jobs))
                    jobs.extend(pool.submit(work, shard, part) for part in shard.parts(JOB_BYTES))
                except StandpipeError as error:
                    begin = None
                    waiting.append(error)
                if len(waiting) > 1:
                    yield finished()
            while waiting:
                yield finished()
        finally:
            for each in waiting:
                if not isinstance(each, StandpipeError):
                    end_early(each[0].file, each[1])
                    os.close(each[0].file)


def end_early(file: int, jobs: Iterable[Future[Result]]) -> None:
    """Cancel jobs, and wait for those that have begun: whatever they read from ``file`` or write to it next fails.

    file  descriptor that the jobs use. The caller closes it afterwards, as its number may be another file's then
    """
    for job in jobs:
        job.cancel()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 (a descriptor)
        os.dup2(nothing.fileno(), file, inheritable=False)
    wait(jobs)


def threads_of(num_workers: int | None) -> int:
    """Return a number of threads; None: one per CPU. Raises ``PlanError`` for other values."""
    workers = cpu_count() if num_workers is None else num_workers
    if not is_count(workers, 1, MOST_THREADS):
        raise PlanError(f"num_workers must be an integer from 1 to {MOST_THREADS}, got {num_workers!r}")
    return workers
