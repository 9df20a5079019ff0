"""Restore the files that were packed into shards."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError, StandpipeError
from standpipe.jobs.packing.drafts import OPEN_FOLDER
from standpipe.jobs.packing.layout import (
    MOST_TEXT_BYTES,
    PART_BYTES,
    OpenShard,
    Progress,
    ThreadBuffer,
    in_parts,
    packed_facts,
    threads_of,
)
from standpipe.spec import UInt8Array
from standpipe.system.files import closing_descriptor, open_regular, read_all, read_regular, write_all
from standpipe.system.paths import path_text

MARK = ".standpipe-unpacking"  # a file with the shards' facts, until all files are there
DRAFT = f"{MARK}-"  # begins the name of a file that isn't complete
LOCKS = 256
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_LEFT = os.O_RDONLY | os.O_NOFOLLOW  # what an earlier call left


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """The result of ``unpack_shards``.

    Attributes
    ----------
    files : int
        Number of files.
    size_bytes : int
        Bytes of all files.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> sp.unpack_shards("shards", "restored").files
    24
    """

    files: int
    size_bytes: int


def unpack_shards(
    folder: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    num_workers: int | None = None,
    on_progress: Progress | None = None,
) -> UnpackReport:
    """Restore the files that ``pack_shards`` packed, with the same names and bytes.

    Each file's bytes are compared with the CRC-32C that they had when they were packed. If it is interrupted, the same
    call goes on. It never changes an existing file.

    Parameters
    ----------
    folder : path
        A folder that ``pack_shards`` wrote.
    to : path
        The folder in which the files get their paths as they were below the packed folder. It is created, and must be
        empty, or have what an interrupted call left.
    num_workers : int, optional
        Number of threads. Default: one per CPU that this process may use.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total.

    Returns
    -------
    standpipe.reports.UnpackReport

    Raises
    ------
    PlanError
        If the folder has no complete shards of ``pack_shards``, or ``to`` isn't empty.
    StandpipeError
        If a shard is damaged or can't be read, if a file can't be written, or if one exists with other bytes.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> sp.unpack_shards("shards", "restored").files
    24
    >>> sp.ImageFolder("restored").open().digest == sp.ImageFolder("photos").open().digest
    True
    """
    facts = packed_facts(folder)
    target, workers = Path(to), threads_of(num_workers)
    files = size_bytes = 0
    with (
        _begun(target, json.dumps(asdict(facts)).encode()) as base,
        closing(in_parts(Path(folder), facts, workers, _Unpacking(target, base).restored)) as parts,
    ):
        for found in parts:
            if isinstance(found, StandpipeError):
                raise found
            for count, size in found:
                files, size_bytes = files + count, size_bytes + size
            if on_progress is not None:
                on_progress("records", files, facts.records)
        (target / MARK).unlink(missing_ok=True)
    return UnpackReport(files, size_bytes)


@contextmanager
def _begun(target: Path, facts: bytes) -> Iterator[int]:
    """Create the folder of the files, mark it as incomplete, and yield its file descriptor.

    Raises ``PlanError`` if it has other files than those that a call for the same shards left.
    """
    with ExitStack() as ends:
        try:
            target.mkdir(parents=True, exist_ok=True)
            base = os.open(target, OPEN_FOLDER)
            ends.callback(os.close, base)
            fcntl.flock(base, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = set(os.listdir(base))  # noqa: PTH208 (a descriptor)
            marked = MARK in found and read_regular(MARK, MOST_TEXT_BYTES, READ_LEFT, base) == facts
            if found - {MARK} and not marked:
                raise PlanError(f"{target} has files in it; use an empty folder")
            for name in found:
                if name.startswith(DRAFT) or (name == MARK and not marked):
                    os.unlink(name, dir_fd=base)
            if not marked:
                with open(os.open(MARK, NEW_FILE, 0o644, dir_fd=base), "wb") as mark:  # noqa: PTH123 (a descriptor)
                    mark.write(facts)
        except BlockingIOError:
            raise StandpipeError(f"another process unpacks into {target}; wait for its end") from None
        except OSError as error:
            raise StandpipeError(f"can't write to {target}: {error.strerror}") from error
        yield base


class _Unpacking:
    """Restores files below the folder ``target``, which is open as ``base``.

    A file gets its name when it is complete, and an existing file is never changed. Links aren't followed.
    """

    def __init__(self, target: Path, base: int) -> None:
        self._target, self._base = target, base
        self._buffer = ThreadBuffer()
        self._locks = [
            threading.Lock() for _ in range(LOCKS)
        ]  # one for each path, so that one thread makes a file

    def restored(self, shard: OpenShard, records: slice) -> tuple[int, int]:
        """Restore the files of some records of a shard; return how many, and their bytes."""
        each, sums, path = shard.each, shard.sums, shard.path
        part = slice(records.start * each, records.stop * each)
        count = records.stop - records.start
        # The first member of a record is the JSON, the last one the file.
        begins, sizes = (
            values[part].reshape(count, each) for values in (sums.members.begins, sums.members.sizes)
        )
        expected, names = (values[part].reshape(count, each) for values in (sums.content, sums.members.names))
        for row, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
            if size[0] > MOST_TEXT_BYTES:
                raise _damaged(path, names[row, 0])
            text = self._read(path, shard.file, begin[0], size[0])
            if _native.crc32c(text) != expected[row, 0]:
                raise _damaged(path, names[row, 0])
            to, crc = _relative(path, text.tobytes()), int(expected[row, -1])
            with self._locks[hash(to) % LOCKS], self._writing(to), self._folder_of(to) as (folder, name):
                with suppress(FileNotFoundError):
                    self._compare(folder, name, to, size[-1], crc)
                    continue
                draft = f"{DRAFT}{threading.get_ident()}"
                if self._copied(path, shard.file, begin[-1], size[-1], draft) != crc:
                    raise _damaged(path, names[row, -1])
                os.rename(draft, name, src_dir_fd=self._base, dst_dir_fd=folder)
        return count, int(sizes[:, -1].sum())

    @contextmanager
    def _writing(self, to: bytes) -> Iterator[None]:
        """Turn the system's errors into ``StandpipeError``."""
        try:
            yield
        except OSError as error:
            raise StandpipeError(f"can't write {self._shown(to)}: {error.strerror}") from error

    def _shown(self, to: bytes) -> str:
        return path_text(os.path.join(os.fsencode(self._target), to))  # noqa: PTH118 (as bytes)

    @contextmanager
    def _folder_of(self, to: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the folder of a file, and create it if needed; yield its descriptor, and the file's name there."""
        *above, name = to.split(b"/")
        folder = os.dup(self._base)
        try:
            for each in above:
                with suppress(FileExistsError):
                    os.mkdir(each, dir_fd=folder)
                below = os.open(each, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder, name
        finally:
            os.close(folder)

    def _compare(self, folder: int, name: bytes, to: bytes, size: int, crc: int) -> None:
        """Raise ``StandpipeError`` if the file of a record has other bytes, ``FileNotFoundError`` if there is none."""
        same = False
        with suppress(EOFError), closing_descriptor(open_regular(name, READ_LEFT, folder)) as file:
            same = os.fstat(file).st_size == size and (
                _native.crc32c_of_file(file, np.zeros(1, np.int64), np.array([size]))[0] == crc
            )
        if not same:
            raise StandpipeError(
                f"{self._shown(to)} exists with other bytes: another record of the shards has the same path, or the "
                "file was changed; if it was, delete it, and run the same command again"
            )

    def _copied(self, path: Path, file: int, begin: int, size: int, draft: str) -> int:
        """Copy bytes of a shard to the new file ``draft``; return their CRC-32C."""
        crc = 0
        with closing_descriptor(os.open(draft, NEW_FILE, 0o644, dir_fd=self._base)) as out:
            for at in range(0, size, PART_BYTES):
                part = self._read(path, file, begin + at, min(PART_BYTES, size - at))
                crc = _native.crc32c(part, crc)
                write_all(out, part.data, at)
        return crc

    def _read(self, path: Path, file: int, begin: int, size: int) -> UInt8Array:
        """Return bytes of a shard in this thread's buffer, which the next call uses again."""
        part = self._buffer.content[:size]
        try:
            read_all(file, part.data, begin)
        except OSError as error:
            raise StandpipeError(f"can't read {path}: {error.strerror}") from error
        except EOFError as error:
            raise StandpipeError(f"{path} ends too soon") from error
        return part


def _relative(path: Path, text: bytes) -> bytes:
    """Return the path of a record from its JSON. Raises ``StandpipeError`` if it could be outside of the folder."""
    try:
        found = json.loads(text)["path"].encode("utf-8", "surrogateescape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StandpipeError(f"{path} has a record without a path: {text[:80]!r}") from error
    parts = found.split(b"/")
    if b"\0" in found or not {b"", b".", b".."}.isdisjoint(parts) or found.startswith(MARK.encode()):
        raise StandpipeError(f"{path} has a record whose path leads out of its folder: {path_text(found)}")
    return bytes(found)


def _damaged(path: Path, name: bytes) -> StandpipeError:
    return StandpipeError(
        f"{path} is damaged: {name.decode()} has changed; standpipe verify lists all such members"
    )
