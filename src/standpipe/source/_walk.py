"""Walk a folder tree of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from standpipe.errors import PlanError
from standpipe.source._listing import is_image_name, some
from standpipe.source._paths import reading, shown

NAMES_AT_ONCE = 4096

Identity: TypeAlias = tuple[int, int]


class Folder(NamedTuple):
    """A folder that was walked.

    path      from the root on; ``b"."`` is the root itself
    mtime_ns  when it was changed last, before its entries were read
    inode     its number
    """

    path: bytes
    mtime_ns: int
    inode: int


@dataclass(slots=True)
class _Found:
    """One folder's entries, as they are met."""

    folders: list[bytes] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    not_files: list[bytes] = field(default_factory=list)
    lost_links: list[bytes] = field(default_factory=list)

    def add(self, entry: os.DirEntry[bytes]) -> None:
        is_image = is_image_name(entry.name)
        # Nearly all entries are no links, and need no stat.
        if is_image and entry.is_file(follow_symlinks=False):
            self.images.append(entry.name)
        elif _is_folder(entry):
            self.folders.append(entry.name)
        elif is_image:
            (self.images if _is_safe_to_open(entry) else self.not_files).append(entry.name)
        elif entry.is_symlink() and not _has_target(entry):
            self.lost_links.append(entry.name)

    def check(self, folder: bytes) -> None:
        if self.not_files:
            raise PlanError(
                f"{some(map(shown, self.not_files))} in {shown(folder)}: pipes, sockets or devices with image names; "
                "remove or rename them"
            )
        if self.lost_links:
            raise PlanError(
                f"{some(map(shown, self.lost_links))} in {shown(folder)}: links whose target is gone, which may be "
                "folders of images; mount or repair the target, or remove the link"
            )


def class_folders(base: bytes, found_folder: Callable[[Folder], None]) -> list[bytes]:
    """Names of the direct subfolders, sorted.

    base          the root, with a slash at its end
    found_folder  called with every folder before its entries are read

    Raises ``PlanError`` for what ``ImageFolder`` says a walk may not meet.
    """
    found, num_images = _Found(), 0
    with reading(base):
        found_folder(_status(base, b".").folder)
        with os.scandir(base) as entries:
            for entry in entries:
                found.add(entry)
                num_images += len(found.images)
                found.images.clear()
    if found.folders:
        found.not_files.clear()  # like every image beside the class folders, they are no records
        found.check(base)
        return sorted(found.folders)
    if num_images:
        raise PlanError(
            f"{shown(base)} holds {num_images} images but no class folders; move each class into a "
            "folder of its own, or list the files with FileList"
        )
    found.check(base)
    raise PlanError(f"{shown(base)} holds no class folders; check the path")


def images_below(
    base: bytes, class_folder: bytes, found_folder: Callable[[Folder], None]
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield (folder from the root on, some image names in it) for a class folder and all folders below."""
    with reading(base):
        waiting = [(class_folder, frozenset({_status(base, b".").identity}))]
    while waiting:
        path, above = waiting.pop()
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
    except OSError:  # a link whose target can't be reached
        return False


def _has_target(link: os.DirEntry[bytes]) -> bool:
    try:
        link.stat()
    except OSError:
        return False
    return True


def _is_safe_to_open(entry: os.DirEntry[bytes]) -> bool:
    """Whether it is a file, or a link whose target can't be reached: opening that fails at once."""
    try:
        return entry.is_file() or not _has_target(entry)
    except OSError:
        return True
