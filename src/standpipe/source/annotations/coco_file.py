"""The contents of an annotation file in COCO's format: checked values in arrays, and what refers to what."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.annotations.shapes import ShapeReader
from standpipe.source.annotations.table import (
    MOST_LABEL,
    MOST_POINTS,
    Annotations,
    Faults,
    Masks,
    present,
)
from standpipe.source.index.with_fields import is_field_name
from standpipe.source.targets import BOXES, FORMS, FURTHER, KEYPOINTS, LABELS, NO_COLUMNS, SEGMENTATION
from standpipe.spec import AnyArray, Int64Array
from standpipe.system.paths import path_text

MOST_SIDE_PX = 1 << 31
LONGEST_NAME_BYTES = 4096
NO_BOX = (math.nan,) * 4
KNOWN = {*NO_COLUMNS, BOXES, LABELS, KEYPOINTS, "area", "iscrowd", "id"}
Pairs = tuple[tuple[int, int], ...]  # numbers of keypoints


class CocoFile:
    """The contents of an annotation file. ``takers`` has a method for the items of each array that is read.

    masks  True if shapes of instances are read

    A method raises ``KeyError``, ``TypeError``, ``ValueError`` or ``OverflowError`` for an item of another form.
    """

    def __init__(self, masks: bool = False) -> None:
        self._shapes = ShapeReader() if masks else None
        self.takers: dict[str, Callable[[Any], None]] = {
            "images": self._image,
            "annotations": self._annotation,
            "categories": self._category,
        }
        self.categories: dict[int, str] = {}
        self.names: list[bytes] = []
        self._images, self._sizes = array("q"), array("q")
        self._ids, self._image_ids, self._category_ids = array("q"), array("q"), array("q")
        self._boxes, self._areas, self._crowds = array("d"), array("f"), bytearray()
        self._further: dict[str, array[float]] = {}
        self._points, self._points_each = array("f"), 0
        self._points_named: set[tuple[str, ...]] = set()
        self._bones: set[Pairs] = set()

    def _image(self, item: Any) -> None:
        name = item["file_name"]
        if not isinstance(name, str):
            raise TypeError(f"the file name {name!r:.80} isn't text")
        path = name.encode("utf-8", "surrogateescape")
        if len(path) > LONGEST_NAME_BYTES or b"\0" in path or path[:1] == b"/" or b".." in path.split(b"/"):
            raise ValueError(f"the file name {name!r:.80} isn't a path below the folder of images")
        height, width = item["height"], item["width"]
        if not (0 < height < MOST_SIDE_PX and 0 < width < MOST_SIDE_PX):
            raise ValueError(f"an image can't have {width!r:.80} × {height!r:.80} pixels")
        self._sizes.extend((height, width))
        self._images.append(item["id"])
        self.names.append(path)

    def _category(self, item: Any) -> None:
        number, name = item["id"], item["name"]
        if type(number) is not int or not isinstance(name, str):
            raise TypeError(f"the id {number!r:.80} or the name {name!r:.80} has another type")
        if number in self.categories:
            raise ValueError(f"two categories have the id {number}")
        array("q").append(number)  # it must fit into 64 bits
        if points := item.get("keypoints"):
            self._points_named.add(tuple(map(str, points)))
            self._bones.add(_bones(item.get("skeleton")))
        self.categories[number] = path_text(name.encode("utf-8", "backslashreplace"))

    def _annotation(self, item: Any) -> None:
        self._ids.append(item["id"])
        self._image_ids.append(item["image_id"])
        self._category_ids.append(item["category_id"])
        box = item.get("bbox", NO_BOX)
        self._boxes.extend(box if len(box) == 4 else NO_BOX)
        self._areas.append(item.get("area", math.nan))
        self._crowds.append(bool(item.get("iscrowd", 0)))
        if len(self._ids) == 1:
            self._further = {name: array("d") for name in item if name not in KNOWN and is_field_name(name)}
        for name in [*self._further]:
            try:
                self._further[name].append(item[name])
            except (KeyError, TypeError, OverflowError):
                del self._further[name]
        if self._shapes is not None:
            self._shapes.add(item.get(SEGMENTATION))
        points = item.get("keypoints", ())
        if points:
            if self._points_each == 0:
                self._points_each = len(points)
                self._points.extend([0.0] * (len(points) * (len(self._ids) - 1)))
            if len(points) != self._points_each or len(points) % 3 or len(points) > 3 * MOST_POINTS:
                raise ValueError(
                    f"it has {len(points)} numbers of keypoints, the first annotation with any {self._points_each}; "
                    "each point needs 3, and all annotations as many points"
                )
            self._points.extend(points)
        else:
            self._points.extend([0.0] * self._points_each)

    def annotations(
        self, name: str, base: bytes, labels: str, crowd: str, faults: Faults
    ) -> tuple[Annotations, list[bytes]]:
        """Return the images that have a file, with the instances that refer to them, and the images without a file.

        name   the annotation file, for errors
        base   the folder of the images
        """
        ids = np.frombuffer(self._images, np.int64)
        if len(ids) == 0 or not self.categories:
            raise PlanError(
                f"{name} has no {'categories' if len(ids) else 'images'}; is it in COCO's format?"
            )
        order = self._without_repeats(
            "image id that comes twice", ids, lambda i: f"image {ids[i]}, {path_text(self.names[i])}", faults
        )
        order = order[np.argsort(ids[order], kind="stable")]
        ids, names = ids[order], [self.names[i] for i in order.tolist()]
        has_file = present(base, names)
        missing = [names[i] for i in np.flatnonzero(~has_file).tolist()]
        if len(missing) == len(names):
            raise PlanError(
                f"{path_text(base)} has none of the {len(names):,} images of {name}, such as "
                f"{path_text(names[0])}; give the folder that their file names start from"
            )
        faults.add_all("image without a file", ~has_file, lambda i: f"image {ids[i]}, {path_text(names[i])}")
        numbers = self._labels(name, labels)
        sorted_names = [self.categories[number] for number in sorted(self.categories)]
        by_label = dict(zip(numbers.tolist(), sorted_names, strict=True))
        instances = self._instances(ids, numbers, crowd, faults)
        found = Annotations(
            paths=Paths.pack(names),
            sizes=np.frombuffer(self._sizes, np.int64).reshape(-1, 2)[order],
            columns={"image_id": ids},
            classes=tuple(by_label.get(label, "") for label in range(numbers[-1] + 1)),
            pairs=self._pairs(),
            bones=self._skeleton(),
            **instances,
        )
        return found.of_images(has_file), missing

    def _pairs(self) -> Pairs | None:
        """Return the numbers of left and right keypoints by their names; None unless categories have the same names."""
        if len(self._points_named) != 1:
            return None
        (names,) = self._points_named
        places = {name: number for number, name in enumerate(names)}
        return tuple(
            (places[name], places[f"right_{name[5:]}"])
            for name in names
            if name.startswith("left_") and f"right_{name[5:]}" in places
        )

    def _skeleton(self) -> Pairs:
        """Return the numbers of keypoints between which lines are drawn; none unless categories have the same lines."""
        if len(self._bones) != 1:
            return ()
        (bones,) = self._bones
        return tuple(bone for bone in bones if max(bone) < self._points_each // 3)

    def _without_repeats(
        self, kind: str, ids: Int64Array, text: Callable[[int], str], faults: Faults
    ) -> Int64Array:
        """Return the places of the first of each id, in the file's order."""
        first = np.unique(ids, return_index=True)[1]
        again = np.ones(len(ids), np.bool_)
        again[first] = False
        faults.add_all(kind, again, text)
        return np.flatnonzero(~again)

    def _labels(self, name: str, labels: str) -> Int64Array:
        """Return the label of each category, sorted by id."""
        ids = sorted(self.categories)
        if labels != "category_id":
            return np.arange(len(ids)) + (labels == "contiguous+1")
        if ids[0] < 0 or ids[-1] > MOST_LABEL:
            raise PlanError(
                f"{name} has categories with the ids {ids[0]} to {ids[-1]}, which can't be labels: use "
                f"labels='contiguous', or ids from 0 to {MOST_LABEL}"
            )
        return np.array(ids)

    def _instances(
        self, images: Int64Array, labels: Int64Array, crowd: str, faults: Faults
    ) -> dict[str, Any]:
        """Return the fields of ``Annotations`` that are of instances.

        images  the ids of the images, sorted
        labels  the label of each category, sorted by id
        """
        ids = np.frombuffer(self._ids, np.int64)

        def place(number: int) -> str:
            return f"annotation {ids[number]}"

        kept = np.zeros(len(ids), np.bool_)
        kept[self._without_repeats("annotation id that comes twice", ids, place, faults)] = True
        image_ids = np.frombuffer(self._image_ids, np.int64)
        rows, known = _places_among(images, image_ids)
        kept &= ~faults.add_all(
            "annotation without an image", ~known, lambda i: f"{place(i)} of image {image_ids[i]}"
        )
        category_ids = np.frombuffer(self._category_ids, np.int64)
        classes, known = _places_among(np.array(sorted(self.categories)), category_ids)
        kept &= ~faults.add_all(
            "category that isn't in the file", ~known, lambda i: f"{place(i)} of category {category_ids[i]}"
        )
        crowds = np.frombuffer(self._crowds, np.bool_)
        boxes = np.frombuffer(self._boxes, np.float64).reshape(-1, 4)
        areas = np.frombuffer(self._areas, np.float32)
        with np.errstate(all="ignore"):
            areas = np.where(np.isnan(areas), boxes[:, 2] * boxes[:, 3], areas).astype(np.float32)
            boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        values: dict[str, AnyArray] = {"area": areas, "iscrowd": crowds, "id": ids}
        for name, further in self._further.items():
            values[name] = np.frombuffer(further).astype(FORMS.get(name, FURTHER).dtype)
        if self._points_each:
            values[KEYPOINTS] = np.frombuffer(self._points, np.float32).reshape(len(ids), -1, 3)
        if crowd == "drop":
            kept &= ~crowds
        chosen = np.flatnonzero(kept)
        masks = None if self._shapes is None else replace(Masks.of(self._shapes), numbers=chosen)
        return {
            "rows": rows[chosen],
            "boxes": boxes[chosen],
            "labels": labels[classes[chosen]],
            "values": {name: each[chosen] for name, each in values.items()},
            "place": lambda number: place(int(chosen[number])),
            "masks": masks,
        }


def _bones(skeleton: Any) -> Pairs:
    """Return the lines of a category's skeleton, whose points have numbers from 1. Other items of it are left out."""
    bones = []
    for each in skeleton if isinstance(skeleton, list) else ():
        match each:
            case [int(one), int(other)] if 0 < one <= MOST_POINTS and 0 < other <= MOST_POINTS:
                bones.append((one - 1, other - 1))
    return tuple(dict.fromkeys(bones))[:MOST_POINTS]


def _places_among(numbers: Int64Array, asked: Int64Array) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Return where each of ``asked`` is among sorted ``numbers``, and whether it is there."""
    places = np.minimum(np.searchsorted(numbers, asked), len(numbers) - 1)
    return places, numbers[places] == asked
