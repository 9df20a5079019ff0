"""Find index files, build them, and replace those that no longer fit.

An index beside the data is used if it fits, otherwise one in the user's cache folder. Without one, a small
index is built in memory unless that may take long, and another one in the cache folder, by one process while the others
on the machine wait. If no folder is writable, each process builds its own in an unnamed temporary file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from standpipe.errors import PlanError, StandpipeError
from standpipe.source.index.file import (
    MAGIC,
    SHARD_KINDS,
    Column,
    DamagedIndex,
    Facts,
    IndexFile,
    SectionPlace,
    column_section,
    read_index,
)
from standpipe.source.index.writer import IndexStorage, IndexWriter, TooLarge
from standpipe.system.claims import NOT_BELIEVED, NoRoom, cache_folder, claimed, is_believed, publish_claimed
from standpipe.system.files import open_regular
from standpipe.system.logs import logger
from standpipe.system.paths import path_text

SUFFIX = b".standpipe-index"
AROUND = (b"\0", b"\0", b"\0")  # paths in an index itself are between NUL bytes
COARSE_TICK_NS, FINE_TICK_NS = 2_000_000_000, 20_000_000  # resolution of file systems' times, upper bounds

Progress: TypeAlias = Callable[[str, int, int | None], None]  # name of the counted things, number done, total
Finish: TypeAlias = Callable[
    [IndexWriter, Facts, IndexFile], Facts
]  # adds columns to an index after its records


class Subject(Protocol):
    """A list, a folder or tar shards to index, in their present state.

    A *subject* is what an index file describes.
    """

    @property
    def name(self) -> str:
        """The subject's name in messages."""

    @property
    def path(self) -> bytes:
        """The absolute path of the list, the folder or the first shard. An index may be beside it."""

    @property
    def index(self) -> bytes | None:
        """The path of its index, if the user gave one."""

    @property
    def key(self) -> str:
        """The name of its index in the cache folder; it depends on the path and the options."""

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments with which ``standpipe index`` builds the same index."""

    @property
    def base(self) -> bytes:
        """The folder that relative paths start from, with a slash at the end."""

    @property
    def kind(self) -> str:
        """The kind of source, such as ``"list"``, ``"folder"`` or ``"tar"``."""

    @property
    def around(self) -> tuple[bytes, bytes, bytes]:
        """Three sets of bytes, for checks: those that may be before a path, after it, and never in it."""

    @property
    def stays(self) -> bool:
        """True if paths may not leave ``base``, by an absolute path or a ``..``."""

    @property
    def costly(self) -> bool:
        """True if an index should be stored even if it is small: building it may take seconds."""

    def objection(self, index: IndexFile) -> str | None:
        """Return why an index doesn't fit, such as ``"the list changed since"``; None if it fits."""

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Write an index. Raises ``PlanError`` if the data can't be indexed."""

    def text(self, index: IndexFile) -> SectionPlace:
        """Return the location of the text that contains the paths: in the index, or in the list."""

    def check_unchanged(self) -> None:
        """Raise ``StandpipeError`` if the file that has its paths was changed since it was opened."""


class OwnPaths:
    """A base class of subjects whose paths are in the index itself."""

    __slots__ = ()
    around = AROUND
    arguments: Sequence[str] = ()  # ``standpipe index`` needs none

    def text(self, index: IndexFile) -> SectionPlace:
        """Return the place of the paths."""
        return index.place("text")

    def check_unchanged(self) -> None:
        """Do nothing: paths are read from the index."""


@runtime_checkable
class Indexed(Protocol):
    """A source whose records are listed in an index file."""

    def subject(self) -> Subject:
        """Return what the index describes. Raises ``PlanError`` if it can't be read."""


class Unfit(Exception):
    """An index can't be used; the text says why. The text is empty if there is no index.

    old  the index, if it has columns or checksums, which only the user can build again; else None
    """

    def __init__(self, reason: str = "", old: IndexFile | None = None) -> None:
        super().__init__(reason)
        self.old = old


def open_index(subject: Subject) -> IndexFile:
    """Open the index of a subject, or build it if none fits.

    Raises ``PlanError`` if an index that doesn't fit has columns and other records.
    """
    *_, last = candidates = places(subject)
    for path in candidates:
        try:
            return fitting(path, subject)
        except Unfit as why:
            had_checksums = why.old is not None and "checksums" in why.old.facts.optional
            if why.old is not None and had_checksums:
                logger().warning(
                    "the checksums of the index %s aren't used: %s. Write them again: %s",
                    path_text(path),
                    why,
                    command(subject, why.old.facts),
                )
            if why.old is not None and why.old.facts.added:
                return _built(subject, path, _keep_all(subject, path, why.old, str(why)))
            if str(why) and path != last and not had_checksums:
                logger().warning(
                    "the index %s isn't used: %s; run standpipe index to renew it", path_text(path), why
                )
            elif isinstance(why.__cause__, DamagedIndex) and path == subject.index:
                _refuse_others(path)
                logger().warning(
                    "the index %s can't be read: %s. It is built again without the columns that were added to it; add "
                    "them again",
                    path_text(path),
                    why,
                )
    if subject.index is None and not subject.costly:
        try:
            with contextlib.suppress(TooLarge):
                return build_unnamed(subject, IndexStorage(None))
        except NoRoom as error:
            raise PlanError(
                f"the index of {subject.name} can't be stored, not even in memory: {error}; raise this process's "
                "limits (ulimit -f, ulimit -n)"
            ) from error
    return _built(subject, last)


def places(subject: Subject) -> list[bytes]:
    """Return the paths where a subject's index may be, in order. A new index is built at the last path."""
    return [beside(subject), cached_path(subject)] if subject.index is None else [subject.index]


def beside(subject: Subject) -> bytes:
    """Return the path of an index beside the data: next to the list or the folder, never inside the folder."""
    return subject.path.rstrip(b"/") + SUFFIX


def cached_path(subject: Subject) -> bytes:
    """Return the path of an index in the user's cache folder."""
    return cache_folder() + b"/index/" + subject.key.encode()


def fitting(path: bytes, subject: Subject) -> IndexFile:
    """Open the index at ``path``. Raises ``Unfit`` unless it fits the subject's present state."""
    try:
        if not is_believed(path):
            raise Unfit(NOT_BELIEVED)
        index = read_index(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Unfit from None
    except (DamagedIndex, OSError) as error:
        raise Unfit(str(error)) from error
    try:
        index.check()
        objection = subject.objection(index)
    except StandpipeError as error:
        objection = str(error)
    if objection is not None:
        kept = index.facts.added or "checksums" in index.facts.optional
        raise Unfit(objection, index if kept and index.facts.kind == subject.kind else None)
    return index


def keep_columns(writer: IndexWriter, old: IndexFile, names: Iterable[str]) -> dict[str, Column]:
    """Copy the columns ``names`` from an index of the same records; return their descriptions by name."""
    for name in names:
        for block in old.blocks(column_section(name)):
            writer.add(column_section(name), block)
    return {name: old.facts.columns[name] for name in names}


def command(subject: Subject, facts: Facts) -> str:
    """Return the command that builds an index with the columns and checksums of ``facts``, or a hint to
    ``build_index``.
    """
    has_checksums = "checksums" in facts.optional
    if facts.instances or not all(column.origin for column in facts.added.values()):
        given = ["columns=…"] * bool(facts.added) + ["checksums=True"] * has_checksums
        return f"by build_index(…, {', '.join(given)})"
    import shlex

    path = subject.name if subject.kind in SHARD_KINDS else path_text(subject.path.rstrip(b"/"))
    words = ["standpipe", "index", path, *subject.arguments]
    words += [] if subject.index is None else ["--output", path_text(subject.index)]
    words += [word for column in facts.added.values() for word in shlex.split(column.origin)]
    return shlex.join(words + ["--checksums"] * has_checksums)


def build_unnamed(
    subject: Subject, room: IndexStorage, on_progress: Progress | None = None, finish: Finish | None = None
) -> IndexFile:
    """Build an index without a name, which disappears when it is closed. Raises ``TooLarge`` or ``NoRoom``."""
    file = room.file()
    try:
        return _build(subject, file, None, room, on_progress, finish)
    except BaseException:
        os.close(file)
        raise


def build_shared(subject: Subject, path: bytes, finish: Finish | None = None) -> IndexFile:
    """Build an index at ``path``, or use one that another process has just built.

    Raises ``NoRoom`` if it can't be written there.
    """
    with claimed(path) as file:
        try:
            return fitting(path, subject)
        except Unfit as why:
            reason = f": {why}" if str(why) else ""
            logger().info("indexing %s in %s%s", subject.name, path_text(path), reason)
        return build_at(subject, file, path, finish=finish)


def build_at(
    subject: Subject,
    file: int,
    path: bytes,
    on_progress: Progress | None = None,
    finish: Finish | None = None,
) -> IndexFile:
    """Build an index in the open and locked temporary file ``file``, and rename the file to ``path``.

    Raises ``PlanError`` if ``path`` is that of ``index=`` and has a file that isn't an index.
    """
    if path == subject.index:
        _refuse_others(path)
    room = IndexStorage(os.path.dirname(path))  # noqa: PTH120
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
    publish_claimed(file, path)
    return index


def _refuse_others(path: bytes) -> None:
    """Raise ``PlanError`` if the file at ``path`` isn't an index, so that no other file is overwritten."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            head = file.read(len(MAGIC))
    except OSError:  # writing the index raises the error
        return
    if head and head != MAGIC:
        raise PlanError(
            f"index={path_text(path)!r} is a file that isn't an index of standpipe; use another path or delete it"
        )


def is_settled(mtime_ns: int, began_ns: int) -> bool:
    """Return True if every change of a file after the time ``began_ns`` would change its modification time.

    File systems have a resolution: a file that changes twice within one tick keeps its time. A time in whole
    seconds may come from a file system with a resolution of up to 2 s.
    """
    tick_ns = COARSE_TICK_NS if mtime_ns % 1_000_000_000 == 0 else FINE_TICK_NS
    return mtime_ns + tick_ns < began_ns


def _build(
    subject: Subject,
    file: int,
    path: bytes | None,
    room: IndexStorage,
    on_progress: Progress | None,
    finish: Finish | None,
) -> IndexFile:
    """Write an index to ``file``, and return it. The index owns ``file`` then."""
    writer = IndexWriter(file, room)
    held = room.folder is None
    try:
        facts = writer.finish(subject.build(writer, on_progress))
        if finish is not None:
            draft = IndexFile(os.dup(file), path, os.fstat(file).st_size, held, facts)
            facts = writer.finish(finish(writer, facts, draft))
    finally:
        writer.close()
    return IndexFile(file, path, os.fstat(file).st_size, held, facts)


def build_temporary(
    subject: Subject, on_progress: Progress | None = None, finish: Finish | None = None
) -> IndexFile:
    """Build an index in the temp folder, for this process alone. Raises ``PlanError`` if it can't be written."""
    folder = _temp_folder()
    try:
        return build_unnamed(subject, IndexStorage(folder), on_progress, finish)
    except NoRoom as error:
        raise PlanError(
            f"the index of {subject.name} can't be stored: the temp folder {path_text(folder)} can't be written either "
            f"({error}); free some space, or pass a path as index="
        ) from error


def _temp_folder() -> bytes:
    import tempfile  # imported here: it loads OpenSSL, which takes time

    try:
        return os.fsencode(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise PlanError(f"{error.strerror}; set TMPDIR to a folder that can be written") from error


def _built(subject: Subject, path: bytes, finish: Finish | None = None) -> IndexFile:
    """Build an index at ``path``, or in the temp folder if ``path`` can't be written."""
    try:
        return build_shared(subject, path, finish)
    except NoRoom as error:
        logger().warning(
            "can't write %s (%s): every process indexes %s for itself, in an unnamed file in %s; pass the source "
            "another path as index=",
            path_text(path),
            error,
            subject.name,
            path_text(_temp_folder()),
        )
        return build_temporary(subject, finish=finish)


def _keep_all(subject: Subject, path: bytes, old: IndexFile, objection: str) -> Finish:
    """Return a function that copies the columns of an outdated index, if its records are still the same."""

    def finish(writer: IndexWriter, facts: Facts, draft: IndexFile) -> Facts:
        if facts.manifest != old.facts.manifest:
            names = ", ".join(repr(name) for name in old.facts.added)
            raise PlanError(
                f"the index {path_text(path)} has the columns {names}, but {subject.name} has other records now "
                f"({objection}); build it again: {command(subject, old.facts)}, or delete it"
            )
        return replace(facts, columns={**facts.columns, **keep_columns(writer, old, old.facts.added)})

    return finish
