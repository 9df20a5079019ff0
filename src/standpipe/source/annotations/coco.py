"""Images with the instances of a COCO annotation file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.annotations.coco_file import CocoFile
from standpipe.source.annotations.json_items import JsonItems
from standpipe.source.annotations.listing import AnnotationListing, changed
from standpipe.source.annotations.table import Faults, Invalid, Rules, WithoutInstances, check_choice
from standpipe.source.index.file import Facts, IndexFile, SectionPlace
from standpipe.source.index.store import AROUND, Progress, open_index
from standpipe.source.index.writer import IndexWriter
from standpipe.system.paths import AnyPath, absolute, open_for_reading, path_text, reading

IN = "in "  # in an index's counts, before a folder of images in which one was missing
REPORTED_ITEMS = 10_000  # items between two reports of progress


@dataclass(frozen=True, slots=True)
class Coco:
    """Images with boxes, from an annotation file in COCO's format, for detection and keypoints.

    The records are the images of the file, sorted by ``id``. Their fields:

    - ``image``: an encoded image,
    - ``image_id``, () int64,
    - and for the M instances of an image: ``boxes`` (M, 4) float32, xyxy in pixels; ``labels`` (M,) int64; ``area``
      (M,) float32, in square pixels; ``iscrowd`` (M,) bool; ``id`` (M,) int64, the annotation's; and ``keypoints``
      (M, K, 3) float32, x and y in pixels and the visibility 0, 1 or 2, if annotations have them. An annotation
      without ``area`` has that of its box.

    The file is read once, in pieces, into an index. Later runs use the index while the file stays the same.

    No fault is silent. ``explain()`` counts by kind, and ``check_files`` names each with the annotation's id: a box
    that is empty or isn't finite, or leads out of its image by more than a pixel; an annotation without an image or
    a category in the file; an ``id`` that comes twice, of which the first counts; an image without a file.

    Parameters
    ----------
    images : path
        The folder of the images, below which the file names are.
    annotations : path
        The JSON file, with ``images``, ``annotations`` and ``categories``.
    labels : {"category_id", "contiguous", "contiguous+1"}, default "category_id"
        ``"category_id"`` takes the file's category ids as labels, as torchvision and DETR do: COCO's run from 1 to 90
        with gaps. ``"contiguous"`` counts the categories from 0, sorted by id, as the YOLO family does;
        ``"contiguous+1"`` from 1. ``classes`` has their names by label, and ``""`` for a number between them that
        no category has.
    crowd : {"drop", "keep"}, default "drop"
        Whether annotations with ``iscrowd`` 1 are instances.
    without_instances : {"keep", "drop"}, default "keep"
        Whether images without instances are records.
    invalid : {"clip", "drop", "error"}, default "clip"
        The treatment of faults. ``"clip"`` cuts boxes off at their image's edges, and drops what isn't valid then.
        ``"drop"`` drops boxes that lead out of their image too. ``"error"`` raises for the first fault.
    index : path, optional
        Path of the index file. Default: beside the annotation file if it exists there, else in the user's cache
        folder.

    Raises
    ------
    PlanError
        By ``plan()``, for a file that isn't JSON in COCO's format, with the place.
    """

    images: AnyPath
    annotations: AnyPath
    labels: Literal["category_id", "contiguous", "contiguous+1"] = field(default="category_id", kw_only=True)
    crowd: Literal["drop", "keep"] = field(default="drop", kw_only=True)
    without_instances: WithoutInstances = field(default="keep", kw_only=True)
    invalid: Invalid = field(default="clip", kw_only=True)
    index: AnyPath | None = field(default=None, kw_only=True)

    def open(self) -> OpenSource:
        """Find the index of the annotation file, or read the file and build one.

        Raises ``PlanError`` if the file can't be read, isn't in COCO's format, or has no images; and for a fault with
        ``invalid="error"``.
        """
        subject = self.subject()
        return AnnotationListing(subject, open_index(subject))

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        labels = "" if self.labels == "category_id" else f", labels={self.labels!r}"
        crowd = "" if self.crowd == "drop" else f", crowd={self.crowd!r}"
        index = "" if self.index is None else f", index='{path_text(self.index)}'"
        names = f"'{path_text(self.images)}', '{path_text(self.annotations)}'"
        return f"Coco({names}{labels}{crowd}{self._rules.describe()}{index})"

    @property
    def _rules(self) -> Rules:
        return Rules(self.invalid, self.without_instances)

    def subject(self) -> CocoSubject:
        """Return the annotation file, as the subject of an index."""
        self._rules.check("Coco")
        check_choice("Coco", "labels", self.labels, ("category_id", "contiguous", "contiguous+1"))
        check_choice("Coco", "crowd", self.crowd, ("drop", "keep"))
        return CocoSubject(
            absolute(self.annotations, field="Coco's annotations"),
            os.path.join(absolute(self.images, field="Coco's images"), b""),  # noqa: PTH118 (pathlib has no bytes)
            None if self.index is None else absolute(self.index, field="Coco's index"),
            self.labels,
            self.crowd,
            self._rules,
        )


@dataclass(frozen=True, slots=True)
class CocoSubject:
    """A ``Subject`` of an annotation file of COCO's, and the folder of its images."""

    path: bytes
    base: bytes
    index: bytes | None
    labels: str
    crowd: str
    rules: Rules

    kind = "coco"
    around = AROUND
    stays = True
    costly = True

    @property
    def name(self) -> str:
        """The annotation file's path."""
        return path_text(self.path)

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``standpipe index`` for the same index: it doesn't take annotations."""
        return []

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of paths and options."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        return blake2b(
            repr((self.kind, self.path, self.base, self._options())).encode(), digest_size=16
        ).hexdigest()

    def _options(self) -> dict[str, bool]:
        return {f"labels={self.labels}, crowd={self.crowd}{self.rules.describe()}": True}

    def text(self, index: IndexFile) -> SectionPlace:
        """Return the place of the images' names, which are in the index itself."""
        return index.place("text")

    def check_unchanged(self) -> None:
        """Do nothing: the images' names are read from the index."""

    def objection(self, index: IndexFile) -> str | None:
        """Return None if the file is the same as in the index, and folders with missing images are; else why not."""
        with reading(self.path):
            info = os.stat(self.path)  # noqa: PTH116 (bytes)
        seen = _seen(info) | self._folders([name[3:] for name in index.facts.seen if name.startswith(IN)])
        return changed(index.facts, self.kind, self._options(), seen, info.st_mtime_ns)

    def _folders(self, names: list[str]) -> dict[str, int]:
        """Return the modification times of folders of images, in which an image was missing."""
        times = {}
        for name in names:
            try:
                times[f"{IN}{name}"] = os.stat(self.base + os.fsencode(name)).st_mtime_ns  # noqa: PTH116
            except OSError:
                times[f"{IN}{name}"] = 0
        return times

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Read the annotation file, and write its index."""
        began_ns = time.time_ns()
        content = CocoFile()
        with open_for_reading(self.path) as file, reading(self.path):
            info = os.fstat(file.fileno())
            for byte in _take_all(JsonItems(file, self.path), content):
                if on_progress is not None:
                    on_progress("bytes", byte, info.st_size)
            if _seen(info) != _seen(os.fstat(file.fileno())):
                raise PlanError(f"{self.name} changed while it was read; start again when it is complete")
        faults = Faults(self.name)
        found, missing = content.annotations(self.name, self.base, self.labels, self.crowd, faults)
        folders = sorted({os.fsdecode(name.rpartition(b"/")[0]) for name in missing})
        facts = found.write(writer, faults, self.rules)
        return replace(
            facts,
            kind=self.kind,
            options=self._options(),
            seen={**facts.seen, **_seen(info), **self._folders(folders)},
            began_ns=began_ns,
        )


def _take_all(items: JsonItems, content: CocoFile) -> Iterator[int]:
    """Give all items to ``content``; yield the byte that was reached, now and then."""
    for number, (section, item) in enumerate(items):
        take = content.takers.get(section)
        if take is not None:
            try:
                take(item)
            except KeyError as error:
                raise items.wrong(f"it has no {error}, which COCO's format needs") from None
            except (TypeError, ValueError, OverflowError, AttributeError) as error:
                raise items.wrong(f"it isn't as in COCO's format: {error}") from None
        if number % REPORTED_ITEMS == 0:
            yield items.byte


def _seen(info: os.stat_result) -> dict[str, int]:
    return {"size": info.st_size, "mtime_ns": info.st_mtime_ns, "inode": info.st_ino}
