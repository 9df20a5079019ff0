"""Walk a folder tree of images."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from standpipe.errors import PlanError
from standpipe.formats import is_image_name
from standpipe.source.index.listing import some
from standpipe.system.paths import path_text, reading

NAMES_AT_ONCE = 4096
LONGEST_FOLDER_BYTES = 65_000  # an index has 16 bits for a path's length
LONGEST_CALL_BYTES = 4_000  # a path of this length is allowed on every system
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Identity: TypeAlias = tuple[int, int]
_Entry: TypeAlias = os.DirEntry[bytes] | os.DirEntry[str]  # str if the folder was given by its descriptor


class Folder(NamedTuple):
    """A folder that was walked.

    path      relative to the root; ``b"."`` is the root itself
    mtime_ns  modification time, before its entries were read
    inode     inode number
    """

    path: bytes
    mtime_ns: int
    inode: int


@dataclass(slots=True)
class _Found:
    """The entries of a folder so far. ``special``: pipes, sockets and devices with image names."""

    folders: list[bytes] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    special: list[bytes] = field(default_factory=list)
    lost_links: list[bytes] = field(default_factory=list)

    def add(self, entry: _Entry) -> None:
        name = os.fsencode(entry.name)
        is_image = is_image_name(name)
        # Most entries aren't links. Then this needs no stat call.
        if is_image and entry.is_file(follow_symlinks=False):
            self.images.append(name)
        elif _is_folder(entry):
            self.folders.append(name)
        elif is_image:
            (self.images if _is_safe_to_open(entry) else self.special).append(name)
        elif entry.is_symlink() and not _has_target(entry):
            self.lost_links.append(name)

    def check(self, folder: bytes) -> None:
        if self.lost_links:
            raise PlanError(
                f"{some(map(path_text, self.lost_links))} in {path_text(folder)}: links whose target is gone, maybe "
                "folders of images; mount or repair the target, or remove the link"
            )


def class_folders(base: bytes, found_folder: Callable[[Folder], None]) -> list[bytes]:
    """Return the names of the direct subfolders, sorted.

    base          the root, with a slash at the end
    found_folder  called with every folder before its entries are read

    Raises ``PlanError`` in the cases that ``ImageFolder`` names.
    """
    found, num_images = _Found(), 0
    with reading(base):
        found_folder(_status(base, b".").folder)
        with _scanned(base) as entries:
            for entry in entries:
                found.add(entry)
                num_images += len(found.images)
                found.images.clear()
    if found.folders:
        found.check(base)
        return sorted(found.folders)
    if num_images:
        raise PlanError(
            f"{path_text(base)} has {num_images} images but no class folders; move each class into a "
            "folder of its own, or list the files with FileList"
        )
    found.check(base)
    raise PlanError(f"{path_text(base)} has no class folders; check the path")


def images_below(
    base: bytes,
    class_folder: bytes,
    found_folder: Callable[[Folder], None],
    found_special: Callable[[bytes, list[bytes]], None],
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield (folder, names of images in it) for a class folder and all folders below, in blocks of names.

    found_special  called with a folder, and the names of pipes, sockets and devices in it

    Folders are relative to the root.
    """
    with reading(base):
        waiting = [(class_folder, frozenset({_status(base, b".").identity}))]
    while waiting:
        path, above = waiting.pop()
        if len(path) > LONGEST_FOLDER_BYTES:
            raise PlanError(
                f"a folder in {path_text(base + path[:LONGEST_CALL_BYTES])}… has a path of {len(path):,} bytes, over "
                f"{LONGEST_FOLDER_BYTES:,}; does the folder contain itself?"
            )
        with reading(base + path):
            status = _status(base, path)
            if status.identity in above:
                continue
            found_folder(status.folder)
            found = _Found()
            with _scanned(base + path) as entries:
                for entry in entries:
                    found.add(entry)
                    if len(found.images) == NAMES_AT_ONCE:
                        yield path, found.images
                        found.images = []
        found.check(base + path)
        if found.special:
            found_special(path, found.special)
        yield path, found.images
        above |= {status.identity}
        waiting += [(path + b"/" + name, above) for name in found.folders]


class _Status(NamedTuple):
    folder: Folder
    identity: Identity


def _status(base: bytes, path: bytes) -> _Status:
    status = examined(base + path)
    return _Status(Folder(path, status.st_mtime_ns, status.st_ino), (status.st_dev, status.st_ino))


def examined(folder: bytes) -> os.stat_result:
    """Return the status of a folder, however long its path is."""
    try:
        return os.stat(folder)  # noqa: PTH116 (pathlib has no bytes)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    file = _opened_stepwise(folder)
    try:
        return os.fstat(file)
    finally:
        os.close(file)


@contextmanager
def _scanned(folder: bytes) -> Iterator[Iterator[_Entry]]:
    """Open a folder, and return a context with an iterator of its entries; the path may have any length."""
    try:
        entries = os.scandir(folder)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    else:
        with entries:
            yield entries
        return
    file = _opened_stepwise(folder)
    try:
        with os.scandir(file) as named:
            yield named
    finally:
        os.close(file)


def _opened_stepwise(folder: bytes) -> int:
    """Open a folder whose absolute path is longer than one system call allows; return its descriptor."""
    file = os.open(b"/", OPEN_FOLDER)
    rest = folder.strip(b"/")
    while rest:
        cut = len(rest) if len(rest) <= LONGEST_CALL_BYTES else rest.rfind(b"/", 0, LONGEST_CALL_BYTES)
        try:
            # A single name that is too long is passed on, and the system raises the error.
            below = os.open(rest[:cut] if cut > 0 else rest, OPEN_FOLDER, dir_fd=file)
        finally:
            os.close(file)
        file, rest = below, rest[cut:].lstrip(b"/")
    return file


def _is_folder(entry: _Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link whose target isn't accessible
        return False


def _has_target(link: _Entry) -> bool:
    try:
        link.stat()
    except OSError:
        return False
    return True


def _is_safe_to_open(entry: _Entry) -> bool:
    """Return True for a file, or a link whose target isn't accessible: opening it fails immediately."""
    try:
        return entry.is_file() or not _has_target(entry)
    except OSError:
        return True
