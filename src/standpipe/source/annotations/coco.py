"""Images with the instances of a COCO annotation file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from standpipe.errors import PlanError
from standpipe.source.annotations.coco_file import CocoFile
from standpipe.source.annotations.json_items import JsonItems
from standpipe.source.annotations.listing import AnnotationSource, AnnotationSubject
from standpipe.source.annotations.table import Annotations, Faults
from standpipe.source.index.store import Progress
from standpipe.system.paths import AnyPath, absolute, open_for_reading, path_text, reading

IN = "in "  # in an index's counts, before a folder of images in which one was missing
REPORTED_ITEMS = 10_000  # items between two reports of progress


@dataclass(frozen=True, slots=True)
class Coco(AnnotationSource):
    """Images with boxes, from an annotation file in COCO's format, for detection and keypoints.

    The records are the images of the file, sorted by ``id``. Their fields:

    - ``image``: an encoded image,
    - ``image_id``, () int64,
    - and for the M instances of an image: ``boxes`` (M, 4) float32, xyxy in pixels; ``labels`` (M,) int64; ``area``
      (M,) float32, in square pixels; ``iscrowd`` (M,) bool; ``id`` (M,) int64, the annotation's; and ``keypoints``
      (M, K, 3) float32, x and y in pixels and the visibility 0, 1 or 2, if annotations have them. An annotation
      without ``area`` has that of its box. Each further key with a number for every annotation is a column too:
      ``score`` float32, others float64; except ``num_keypoints``, which crops change.

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
    instance_masks : bool, default False
        Whether instances have masks: the field ``instance_masks``, whose form ``batch(masks=…)`` says. They come from
        ``segmentation``: polygons, or runs of pixels as numbers or as text. An annotation without a valid one is a
        fault, and is dropped.
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

    Examples
    --------
    >>> import json, pathlib
    >>> content = {
    ...     "images": [{"id": 7, "file_name": "cat/000.jpg", "height": 72, "width": 96}],
    ...     "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [4, 5, 20, 10]}],
    ...     "categories": [{"id": 3, "name": "cat"}],
    ... }
    >>> _ = pathlib.Path("instances.json").write_text(json.dumps(content))
    >>> source = sp.Coco("photos", "instances.json", index="instances.index")
    >>> with sp.Pipeline(source).map(sp.Resize((36, 48))).batch(1).loader() as loader:
    ...     batch = next(iter(loader))
    >>> batch["boxes"].tolist(), batch["labels"].tolist(), batch["image_id"].tolist()
    ([[2.0, 2.5, 12.0, 7.5]], [3], [7])
    """

    images: AnyPath
    annotations: AnyPath
    labels: Literal["category_id", "contiguous", "contiguous+1"] = field(default="category_id", kw_only=True)
    crowd: Literal["drop", "keep"] = field(default="drop", kw_only=True)
    instance_masks: bool = field(default=False, kw_only=True)

    def subject(self) -> AnnotationSubject:
        """Return the annotation file, as the subject of an index."""
        path = absolute(self.annotations, field="Coco's annotations")
        base = os.path.join(absolute(self.images, field="Coco's images"), b"")  # noqa: PTH118 (pathlib has no bytes)
        read = partial(_read, path, base, self.labels, self.crowd, self.instance_masks)
        return self.made("coco", (path, base), partial(_look, path, base), read)


def _look(path: bytes, base: bytes, before: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Look at the file, and at folders in which an image was missing."""
    with reading(path):
        info = os.stat(path)  # noqa: PTH116 (bytes)
    folders = _folders(base, [name.removeprefix(IN) for name in before if name.startswith(IN)])
    return _seen(info) | folders, info.st_mtime_ns


def _read(
    path: bytes,
    base: bytes,
    labels: str,
    crowd: str,
    masks: bool,
    faults: Faults,
    on_progress: Progress | None,
) -> tuple[Annotations, dict[str, int]]:
    """Read the annotation file."""
    content = CocoFile(masks)
    with open_for_reading(path) as file, reading(path):
        info = os.fstat(file.fileno())
        for byte in _take_all(JsonItems(file, path), content):
            if on_progress is not None:
                on_progress("bytes", byte, info.st_size)
        if _seen(info) != _seen(os.fstat(file.fileno())):
            raise PlanError(f"{path_text(path)} changed while it was read; start again when it is complete")
    found, missing = content.annotations(path_text(path), base, labels, crowd, faults)
    folders = sorted({os.fsdecode(name.rpartition(b"/")[0]) for name in missing})
    return found, _seen(info) | _folders(base, folders)


def _folders(base: bytes, names: list[str]) -> dict[str, int]:
    """Return the modification times of folders of images; 0 for one that there isn't."""
    times = {}
    for name in names:
        try:
            times[f"{IN}{name}"] = os.stat(base + os.fsencode(name)).st_mtime_ns  # noqa: PTH116
        except OSError:
            times[f"{IN}{name}"] = 0
    return times


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
