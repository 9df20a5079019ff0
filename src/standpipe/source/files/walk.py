"""Walk a folder tree of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from standpipe.errors import PlanError
from standpipe.formats import is_image_name
from standpipe.source.index.listing import some
from standpipe.system.paths import path_text, reading

NAMES_AT_ONCE = 4096
LONGEST_PATH_BYTES = 4095  # that Linux takes
HERE = b"."  # the root, as a folder of its own images

Identity: TypeAlias = tuple[int, int]


class Folder(NamedTuple):
    """A folder that was walked.

    path      relative to the root; ``HERE`` is the root itself
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

    def add(self, entry: os.DirEntry[bytes]) -> None:
        name = entry.name
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


def class_folders(base: bytes, found_folder: Callable[[Folder], None], *, flat: bool) -> list[bytes]:
    """Return the names of the direct subfolders, sorted; none if the root has only images.

    base          the root, with a slash at the end
    found_folder  called with every folder before its entries are read
    flat          True if the root may have only images

    Raises ``PlanError`` in the cases that ``ImageFolder`` names.
    """
    found, num_images = _Found(), 0
    with reading(base):
        found_folder(_status(base, HERE).folder)
        with os.scandir(base) as entries:
            for entry in entries:
                found.add(entry)
                num_images += len(found.images)
                found.images.clear()
    if found.folders or (num_images and flat):
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

    class_folder   its name; ``HERE`` for a root without class folders
    found_special  called with a folder, and the names of pipes, sockets and devices in it

    Folders are relative to the root.
    """
    with reading(base):
        above = frozenset[Identity]() if class_folder == HERE else frozenset({_status(base, HERE).identity})
        waiting = [(class_folder, above)]
    while waiting:
        path, above = waiting.pop()
        if len(base + path) > LONGEST_PATH_BYTES:
            raise PlanError(
                f"a folder below {path_text(base + class_folder)} has a path of {len(base + path):,} bytes, and the "
                f"system takes {LONGEST_PATH_BYTES:,}; shorten the names of folders, or move it up"
            )
        with reading(base + path):
            status = _status(base, path)
            if status.identity in above:
                continue
            found_folder(status.folder)
            found = _Found()
            with os.scandir(base + path) as entries:
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
    status = os.stat(base + path)  # noqa: PTH116 (pathlib has no bytes)
    return _Status(Folder(path, status.st_mtime_ns, status.st_ino), (status.st_dev, status.st_ino))


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link whose target isn't accessible
        return False


def _has_target(link: os.DirEntry[bytes]) -> bool:
    try:
        link.stat()
    except OSError:
        return False
    return True


def _is_safe_to_open(entry: os.DirEntry[bytes]) -> bool:
    """Return True for a file, or a link whose target isn't accessible: opening it fails immediately."""
    try:
        return entry.is_file() or not _has_target(entry)
    except OSError:
        return True
