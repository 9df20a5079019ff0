"""A folder of images, one subfolder per class."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.contracts import OpenSource, Paths
from penstock.errors import PlanError
from penstock.source._listing import (
    SLASH,
    Listing,
    is_image_name,
    listing_digest,
    row_blocks,
    smallest_integers,
)
from penstock.source._paths import AnyPath, absolute, reading, shown
from penstock.source._sort import WORD_BYTES, sort_keys
from penstock.spec import Int64Array

NAMES_AT_ONCE = 4096
SORTED_AT_ONCE = 1 << 18

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """Images in class folders, as ``torchvision.datasets.ImageFolder`` reads them, in the same order.

    root         folder whose direct subfolders are the classes
    allow_empty  whether a class folder may hold no image; its label stays taken

    Fields: ``image``, an encoded image, and ``label``, () int64, the number of the record's class among the
    sorted names of root's subfolders. Records are all files at any depth below a class folder whose names end
    in .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp or .gif, in any case (.gif is ours, the others
    are torchvision's), sorted by (class, folder, name). Names are compared as bytes, which for UTF-8 is the
    order of torchvision; names in other encodings work too. Images that lie directly in ``root`` beside class
    folders belong to no class and are no records.

    What a walk may meet, so that no sample is lost in silence:

    - A link to a folder is followed, unless it leads back to a folder it lies in.
    - A link with an image's name whose target is gone is a record; reading it is a ``ReadError``.
    - Any other link whose target is gone is a ``PlanError``: it may be a folder of images on a disk that
      isn't mounted, and as a class it would shift the labels of the others.
    - A pipe, socket or device with an image's name is a ``PlanError``; it is never opened.
    - A folder that can't be listed is a ``PlanError``.
    """

    root: AnyPath
    allow_empty: bool = False

    def open(self) -> OpenSource:
        """List the folder.

        Raises ``PlanError`` when ``root`` is missing, no folder, not readable or without class folders,
        when a class folder holds no image, and for the cases named above.
        """
        base = os.path.join(absolute(self.root, field="ImageFolder's root"), b"")  # noqa: PTH118 (pathlib has no bytes)
        class_folders = _class_folders(base)
        names = _SortedNames()
        empty = []
        for label, folder in enumerate(class_folders):
            count = names.add_class(label, _images_below(base, folder))
            if count == 0:
                empty.append(folder)
        if empty and not self.allow_empty:
            raise PlanError(
                f"no image in {_some(empty)}, below {shown(base)}: remove what is empty, or keep its label with "
                "ImageFolder(..., allow_empty=True)"
            )
        paths, labels = names.finish()
        if len(paths) == 0:
            raise PlanError(f"no class folder in {shown(base)} holds an image; check the path")
        classes = tuple(map(shown, class_folders))
        return Listing(
            base, paths, smallest_integers(labels), classes, listing_digest(paths, labels, classes)
        )

    def describe(self) -> str:
        """One line for ``explain()``."""
        empty = ", allow_empty=True" if self.allow_empty else ""
        return f"ImageFolder('{shown(self.root)}'{empty})"


@dataclass(slots=True)
class _Found:
    """One folder's entries, as they are met."""

    folders: list[bytes] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    not_files: list[bytes] = field(default_factory=list)
    lost_links: list[bytes] = field(default_factory=list)

    def add(self, entry: os.DirEntry[bytes]) -> None:
        is_image = is_image_name(entry.name)
        if is_image and entry.is_file(
            follow_symlinks=False
        ):  # nearly all entries are no links, and need no stat
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
                f"{_some(self.not_files)} in {shown(folder)}: pipes, sockets or devices with image names; "
                "remove or rename them"
            )
        if self.lost_links:
            raise PlanError(
                f"{_some(self.lost_links)} in {shown(folder)}: links whose target is gone, which may be "
                "folders of images; mount or repair the target, or remove the link"
            )


def _class_folders(base: bytes) -> list[bytes]:
    """Names of the direct subfolders, sorted."""
    found = _Found()
    with reading(base), os.scandir(base) as entries:
        for entry in entries:
            found.add(entry)
    if found.folders:
        found.not_files.clear()  # like every image beside the class folders, they are no records
        found.check(base)
        return sorted(found.folders)
    if found.images:
        raise PlanError(
            f"{shown(base)} holds {len(found.images)} images but no class folders; move each class into a "
            "folder of its own, or list the files with FileList"
        )
    found.check(base)
    raise PlanError(f"{shown(base)} holds no class folders; check the path")


def _images_below(base: bytes, class_folder: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield (folder relative to base, some image names in it) for a class folder and all folders below."""
    with reading(base):
        above = frozenset({_identity(base)})
    waiting = [(class_folder, above)]
    while waiting:
        folder, above = waiting.pop()
        with reading(base + folder):
            identity = _identity(base + folder)
            if identity in above:
                continue
            found = _Found()
            with os.scandir(base + folder) as entries:
                for entry in entries:
                    found.add(entry)
                    if len(found.images) == NAMES_AT_ONCE:
                        yield folder, found.images
                        found.images = []
        found.check(base + folder)
        yield folder, found.images
        above |= {identity}
        waiting += [(folder + b"/" + name, above) for name in found.folders]


class _SortedNames:
    """Packs paths and labels of class after class, sorting some hundred thousand at a time.

    Until it is sorted, a path has a NUL byte in place of its last slash: as NUL is the lowest byte and occurs
    in no name, the bytes then sort as (folder, name).
    """

    def __init__(self) -> None:
        self._blob = bytearray()
        self._lengths = array("q")
        self._labels = array("q")
        self._unsorted = bytearray()
        self._num_sorted = 0

    def add_class(self, label: int, images: Iterator[tuple[bytes, list[bytes]]]) -> int:
        """Take the images of one class, given as (folder, names); return how many there are."""
        before = len(self._lengths)
        for folder, names in images:
            prefix = folder + b"\0"
            if names:
                self._unsorted += prefix + prefix.join(names)
            self._lengths.extend([len(prefix) + len(name) for name in names])
        count = len(self._lengths) - before
        self._labels.extend([label] * count)
        if len(self._lengths) - self._num_sorted >= SORTED_AT_ONCE:
            self._sort()
        return count

    def finish(self) -> tuple[Paths, Int64Array]:
        """All paths in order, and their labels (n,) int64."""
        self._sort()
        ends = np.cumsum(np.frombuffer(self._lengths, np.int64))
        return Paths(np.frombuffer(self._blob, np.uint8), ends), np.frombuffer(self._labels, np.int64)

    def _sort(self) -> None:
        self._unsorted += bytes(WORD_BYTES)
        blob = np.frombuffer(self._unsorted, np.uint8)
        lengths = np.frombuffer(self._lengths, np.int64)[self._num_sorted :]
        ends = np.cumsum(lengths)
        labels = np.frombuffer(self._labels, np.int64)[self._num_sorted :]
        order, _ = sort_keys(blob, ends - lengths, lengths, labels)
        unsorted = Paths(blob, ends)
        for rows in row_blocks(len(order)):
            part = unsorted.take(order[rows]).blob
            part[part == 0] = SLASH
            self._blob += part.data
        lengths[:] = lengths[order]
        self._num_sorted += len(order)
        self._unsorted = bytearray()


def _identity(folder: bytes) -> Identity:
    status = os.stat(folder)  # noqa: PTH116 (pathlib has no bytes)
    return status.st_dev, status.st_ino


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


def _some(names: list[bytes]) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{shown(name)}'" for name in names[:3]) + more
