"""Where index files lie, who builds one, and what becomes of one that doesn't fit any more.

An index beside the data is used when it fits, then one in the user's cache folder. When there is none, a small one
is built in memory; a larger one in the cache folder, by one process while the others of the machine wait. Where
nothing can be written, each process builds its own in an unnamed temporary file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.errors import PenstockError, PlanError
from penstock.source._index_file import Damaged, Facts, IndexFile, read_index
from penstock.source._index_writer import NoRoom, Room, TooLarge, Writer
from penstock.source._paths import shown

if TYPE_CHECKING:
    import logging

SUFFIX = b".penstock-index"
BUILDING = b".building"
COARSE_TICK_NS, FINE_TICK_NS = 2_000_000_000, 20_000_000

Progress: TypeAlias = Callable[[int, int | None], None]
Finish: TypeAlias = Callable[[Writer, Facts, IndexFile], Facts]  # what else goes into an index once it stands


class Subject(Protocol):
    """What is indexed: a list or a folder, as it is now."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def path(self) -> bytes:
        """Absolute; an index may lie beside it."""

    @property
    def key(self) -> str:
        """What an index of it in the cache folder is named by: another path or other options, another key."""

    @property
    def base(self) -> bytes:
        """The folder that relative paths start from, with a slash at its end."""

    @property
    def kind(self) -> str:
        """``"list"`` or ``"folder"``."""

    @property
    def around(self) -> tuple[bytes, bytes, bytes]:
        """What may stand before a path, after it, and never in it."""

    @property
    def files(self) -> int:
        """Descriptors that it holds."""

    def objection(self, index: IndexFile) -> str | None:
        """Why an index doesn't fit: ``"it changed since"``; None when it does."""

    def build(self, writer: Writer, on_progress: Progress | None) -> Facts:
        """Write an index. Raises ``PlanError`` for what can't be indexed."""

    def text(self, index: IndexFile) -> tuple[int, int, int]:
        """Where the paths are that its index speaks of: descriptor, first byte, end."""

    def check_unchanged(self) -> None:
        """Raise ``PenstockError`` if what its paths are read from isn't what was opened."""


class Unfit(Exception):
    """An index can't be used; the text says why, and is empty where there is none."""


def open_index(subject: Subject) -> IndexFile:
    """The index of a subject, built if there is none that fits."""
    path = beside(subject)
    try:
        return fitting(path, subject)
    except Unfit as why:
        if str(why):
            _logger().warning("the index %s isn't used: %s", shown(path), why)
    path = cached_path(subject)
    try:
        return fitting(path, subject)
    except Unfit:
        pass
    with contextlib.suppress(TooLarge):
        return build_unnamed(subject, Room(None))
    try:
        return build_shared(subject, path)
    except NoRoom as error:
        room = os.fsencode(tempfile.gettempdir())
        _logger().warning(
            "can't write %s (%s): this process indexes %s in an unnamed file of %s, and so will every other "
            "one; write the index once by: penstock index PATH --output FILE",
            shown(path),
            error,
            subject.name,
            shown(room),
        )
        return _last_resort(subject, room)


def beside(subject: Subject) -> bytes:
    """Where an index beside the data lies: next to a list, next to a folder and not in it."""
    return subject.path.rstrip(b"/") + SUFFIX


def cached_path(subject: Subject) -> bytes:
    """Where an index in the user's cache folder lies."""
    cache = os.environb.get(b"XDG_CACHE_HOME", b"")
    if not cache.startswith(b"/"):  # the standard says that a relative one is to be ignored
        cache = os.path.expanduser(b"~/.cache")  # noqa: PTH111 (pathlib has no bytes)
    return cache + b"/penstock/index/" + subject.key.encode()


def fitting(path: bytes, subject: Subject) -> IndexFile:
    """The index at ``path``. Raises ``Unfit`` when it isn't that of the subject as it is now.

    Raises ``PlanError`` when it was, and has columns that only the user can make again.
    """
    try:
        index = read_index(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Unfit from None
    except (Damaged, OSError) as error:
        raise Unfit(str(error)) from error
    try:
        objection = subject.objection(index)
    except PenstockError as error:  # its own tables make no sense
        raise Unfit(str(error)) from error
    if objection is None:
        return index
    if index.facts.columns and index.facts.kind == subject.kind:
        names = ", ".join(repr(name) for name in index.facts.columns)
        raise PlanError(
            f"the index {shown(path)} has the columns {names}, and doesn't fit {subject.name} any more: "
            f"{objection}; make it again: {command(subject, index.facts)}, or delete it"
        )
    raise Unfit(objection)


def command(subject: Subject, facts: Facts) -> str:
    """The command that makes such an index."""
    import shlex

    words = ["penstock", "index", shown(subject.path.rstrip(b"/"))]
    words += ["--no-labels"] if facts.options.get("labels") is False else []
    for column in facts.columns.values():
        words += shlex.split(column.origin)
    return shlex.join(words)


def build_unnamed(subject: Subject, room: Room, on_progress: Progress | None = None) -> IndexFile:
    """Build an index that goes when it is closed. Raises ``TooLarge`` or ``NoRoom``."""
    file = room.file()
    try:
        return _build(subject, file, None, room, on_progress, None)
    except BaseException:
        os.close(file)
        raise


def build_shared(subject: Subject, path: bytes) -> IndexFile:
    """Build an index at ``path``, or use the one that another process has built meanwhile.

    Raises ``NoRoom`` when it can't be written there.
    """
    with claimed(path) as file:
        try:
            return fitting(path, subject)
        except Unfit as why:
            reason = f": {why}" if str(why) else ""
            _logger().info("indexing %s in %s%s", subject.name, shown(path), reason)
        return build_at(subject, file, path)


def build_at(
    subject: Subject,
    file: int,
    path: bytes,
    on_progress: Progress | None = None,
    finish: Finish | None = None,
) -> IndexFile:
    """Build an index in ``file``, which is claimed, and move it to ``path``."""
    room = Room(os.path.dirname(path))  # noqa: PTH120
    try:
        os.ftruncate(file, 0)
        own = os.dup(file)
    except OSError as error:
        raise NoRoom(error.strerror) from error
    try:
        index = _build(subject, own, path, room, on_progress, finish)
    except BaseException:
        os.close(own)
        raise
    try:
        os.fsync(file)
        os.rename(path + BUILDING, path)  # noqa: PTH104
        folder = os.open(room.folder or b".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise NoRoom(error.strerror) from error
    return index


@contextlib.contextmanager
def claimed(path: bytes) -> Iterator[int]:
    """Hold the right to build the index ``path``; yields the file to build it in.

    That file is its own lock, which the kernel takes back when its holder dies. What a killed builder left is
    cut and used again. Raises ``NoRoom``.
    """
    building = path + BUILDING
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        while True:
            file = os.open(building, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                _lock(file, path)
                if _is_at(file, building):
                    break
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its holder has finished it, and it has another name now
    except OSError as error:
        raise NoRoom(error.strerror or str(error)) from error
    try:
        yield file
    finally:
        if _is_at(file, building):  # nothing was built
            with contextlib.suppress(OSError):
                os.unlink(building)  # noqa: PTH108
        fcntl.flock(file, fcntl.LOCK_UN)  # or whoever reads the index through a copy would hold it on
        os.close(file)


def is_settled(mtime_ns: int, began_ns: int) -> bool:
    """Whether a change after ``began_ns`` must show in a file's modification time, which was ``mtime_ns`` then.

    Times have ticks: a file that changes twice within one shows one time. Times in whole seconds may stem from
    a file system that has no finer ones.
    """
    tick_ns = COARSE_TICK_NS if mtime_ns % 1_000_000_000 == 0 else FINE_TICK_NS
    return mtime_ns + tick_ns < began_ns


def _build(
    subject: Subject,
    file: int,
    path: bytes | None,
    room: Room,
    on_progress: Progress | None,
    finish: Finish | None,
) -> IndexFile:
    """Write an index to ``file``, which then is the index's."""
    writer = Writer(file, room)
    held = room.folder is None
    try:
        facts = writer.finish(subject.build(writer, on_progress))
        if finish is not None:
            draft = IndexFile(os.dup(file), path, os.fstat(file).st_size, held, facts)
            facts = writer.finish(finish(writer, facts, draft))
    finally:
        writer.close()
    return IndexFile(file, path, os.fstat(file).st_size, held, facts)


def _last_resort(subject: Subject, folder: bytes) -> IndexFile:
    try:
        return build_unnamed(subject, Room(folder))
    except NoRoom as error:
        raise PlanError(
            f"there is no place for the index of {subject.name}: neither {shown(cached_path(subject))} nor "
            f"{shown(folder)} can be written ({error}); free some space, or set XDG_CACHE_HOME to a folder that has"
        ) from error


def _lock(file: int, path: bytes) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _logger().info("waiting for another process that builds %s", shown(path))
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: int, path: bytes) -> bool:
    """Whether ``path`` names this very file."""
    mine = os.fstat(file)
    try:
        there = os.lstat(path)
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing penstock costs beside NumPy

    return logging.getLogger("penstock")
