"""Images and their instances, as annotation files have them: look for faults, and write an index."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Paths, RaggedRows
from standpipe.errors import PlanError
from standpipe.source.annotations.shapes import OTHER_SIZE, ShapeReader, in_pixels
from standpipe.source.index.file import OWN, SIZES, Column, Facts, column_section
from standpipe.source.index.instances import write_instances, write_shapes
from standpipe.source.index.writer import IndexWriter, RecordDigest, places_of
from standpipe.source.targets import (
    BOXES,
    FORMS,
    KEYPOINTS,
    LABELS,
    BoxForm,
    Invalid,
    checked_boxes,
    shown_box,
)
from standpipe.spec import AnyArray, ArraySpec, Int64Array

WithoutInstances = Literal["keep", "drop"]
FAULT = "fault: "  # in an index's counts, before a kind of fault
MOST = "most instances"  # in an index's counts: of one image
SIDES = (
    "left and right points"  # section of an index, where it is known which keypoints those are: their pairs
)
BONES = "lines between points"  # section of an index: pairs of keypoints
FAULTS = "faults"  # section of an index: the texts of all faults, each ended by a NUL byte
# Shape and dtype of what each instance has, as files have them.
BOX_AND_LABEL: Mapping[str, ArraySpec] = {BOXES: ArraySpec((4,), np.dtype(np.float64)), LABELS: FORMS[LABELS]}
MOST_LABEL = 65_535  # class names are listed by label
MOST_POINTS = 1000  # an instance without keypoints takes the room of as many


class Faults:
    """Faults of annotations, by kind. With ``invalid="error"``, ``finish`` raises ``PlanError``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: dict[str, list[str]] = {}

    def add(self, kind: str, text: str) -> None:
        """Note a fault. ``text``: the place and the value."""
        self._found.setdefault(kind, []).append(text)

    def add_all(self, kind: str, wrong: NDArray[np.bool_], text: Callable[[int], str]) -> NDArray[np.bool_]:
        """Note a fault for each number at which ``wrong`` is True; return ``wrong``."""
        for number in np.flatnonzero(wrong).tolist():
            self.add(kind, text(number))
        return wrong

    def refuse(self, invalid: Invalid) -> None:
        """Raise ``PlanError`` for the first fault, with ``invalid="error"``."""
        if self._found and invalid == "error":
            kind, texts = next(iter(self._found.items()))
            total = sum(map(len, self._found.values()))
            raise PlanError(
                f"{self.name}: {total:,} faults, first {kind}: {texts[0]}. Correct them, or leave out invalid='error': "
                "what can't be used is dropped then, counted, and listed by check_files"
            )

    def counts(self) -> dict[str, int]:
        """Return the number of faults of each kind."""
        return {kind: len(texts) for kind, texts in self._found.items()}

    def finish(self, writer: IndexWriter, invalid: Invalid) -> dict[str, int]:
        """Write all texts into an index; return the counts for its facts."""
        self.refuse(invalid)
        for kind, texts in self._found.items():
            for text in texts:
                writer.add(FAULTS, f"{kind}: {text}\0".encode("utf-8", "backslashreplace"))
        return {f"{FAULT}{kind}": count for kind, count in self.counts().items()}


@dataclass(frozen=True, slots=True)
class Masks:
    """The shapes of m instances.

    shapes   the shapes of all instances that were read
    numbers  (m,) int64: the shape of each instance
    sizes    height and width of the picture of each shape in runs of pixels, (…, 2) int64; 0 for polygons
    faults   number of a shape that isn't valid, and what is wrong, as kind and text
    """

    shapes: RaggedRows
    numbers: Int64Array
    sizes: Int64Array
    faults: Mapping[int, tuple[str, str]]

    @classmethod
    def of(cls, reader: ShapeReader, images: Int64Array | None = None) -> Masks:
        """Return all shapes that were read.

        images  (…, 2) heights and widths of their images, if polygons are fractions of the images' sides
        """
        shapes, sizes = reader.take()
        if images is not None:
            shapes = in_pixels(shapes, sizes, images)
        return cls(shapes, np.arange(len(shapes.ends)), sizes, reader.faults)

    def wrong(self, images: Int64Array, place: Callable[[int], str], faults: Faults) -> NDArray[np.bool_]:
        """Note the faults of the instances, and return whether each has any, (m,) bool.

        images  (m, 2) heights and widths of the instances' images
        """
        sizes = self.sizes[self.numbers]
        wrong = faults.add_all(OTHER_SIZE, ((sizes != images) & (sizes > 0)).any(axis=1), place)
        for number in np.flatnonzero(np.isin(self.numbers, [*self.faults])).tolist():
            kind, text = self.faults[int(self.numbers[number])]
            faults.add(kind, place(number) + text)
            wrong[number] = True
        return wrong


@dataclass(frozen=True, slots=True)
class Annotations:
    """n images and m instances, as annotation files have them.

    paths    (n,) paths of the images below the base folder
    sizes    (n, 2) int64: heights and widths of the images in pixels
    rows     (m,) int64: image of each instance
    boxes    (m, 4) float64: xyxy in pixels of the image
    labels   (m,) int64
    values   further values of the instances by name, (m, …) each
    place    the place of an instance in its file, such as ``"annotation 7"``
    columns  further values of the images by name, (n,) each
    classes  class names by label, empty for a number that no class has; None: classes have no names
    pairs    numbers of left and right keypoints, which swap where an image is mirrored; None: they aren't known
    bones    numbers of keypoints between which lines are drawn
    masks    the shapes of the instances; None without any
    """

    paths: Paths
    sizes: Int64Array
    rows: Int64Array
    boxes: NDArray[np.float64]
    labels: Int64Array
    values: Mapping[str, AnyArray]
    place: Callable[[int], str]
    columns: Mapping[str, Int64Array] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    pairs: tuple[tuple[int, int], ...] | None = None
    bones: tuple[tuple[int, int], ...] = ()
    masks: Masks | None = None

    def of_images(self, kept: NDArray[np.bool_]) -> Annotations:
        """Return the images where ``kept`` is True, and their instances."""
        chosen = np.flatnonzero(kept)
        new = np.cumsum(kept) - 1
        return replace(
            self._of_instances(kept[self.rows]),
            paths=self.paths.take(chosen),
            sizes=self.sizes[chosen],
            rows=new[self.rows[kept[self.rows]]],
            columns={name: values[chosen] for name, values in self.columns.items()},
        )

    def _of_instances(self, kept: NDArray[np.bool_]) -> Annotations:
        numbers = np.flatnonzero(kept)
        place = self.place
        return replace(
            self,
            rows=self.rows[numbers],
            boxes=self.boxes[numbers],
            labels=self.labels[numbers],
            values={name: values[numbers] for name, values in self.values.items()},
            place=lambda number: place(int(numbers[number])),
            masks=None if self.masks is None else replace(self.masks, numbers=self.masks.numbers[numbers]),
        )

    def valid(self, faults: Faults, invalid: Invalid) -> Annotations:
        """Return the instances with valid boxes, clipped to their images."""
        sizes = self.sizes[self.rows]
        clipped, kinds, dropped = checked_boxes(self.boxes, sizes, invalid)
        for kind, wrong in kinds.items():
            faults.add_all(kind, wrong, lambda i: f"{self.place(i)}: {shown_box(self.boxes[i], sizes[i])}")
        if KEYPOINTS in self.values:
            finite = np.all(np.isfinite(self.values[KEYPOINTS]), axis=(1, 2))
            dropped = dropped | faults.add_all("keypoints that aren't finite", ~finite, self.place)
        if self.masks is not None:
            dropped = dropped | self.masks.wrong(sizes, self.place, faults)
        return replace(self, boxes=clipped)._of_instances(~dropped)

    def write(
        self, writer: IndexWriter, faults: Faults, invalid: Invalid, without_instances: WithoutInstances
    ) -> Facts:
        """Write an index of what is valid; return its facts, of which kind, options and time are still empty."""
        found = self.valid(faults, invalid)
        if without_instances == "drop":
            found = found.of_images(np.bincount(found.rows, minlength=len(found.paths)) > 0)
        counts = faults.finish(writer, invalid)
        paths, rows = found.paths, len(found.paths)
        if rows == 0:
            raise PlanError(
                f"{faults.name} has no images{' with instances' if len(self.paths) else ''}{_most(counts)}"
            )
        lengths = np.diff(paths.ends, prepend=0)
        writer.add("text", np.insert(paths.blob, paths.ends, 0))  # a NUL byte behind each
        writer.add("places", places_of(0, paths.ends + np.arange(rows), lengths))
        manifest = RecordDigest()
        manifest.add_paths(paths.blob, lengths)
        for name, column in found.columns.items():
            writer.add(column_section(name), column.astype("<i8"))
        for section, numbers in ((SIDES, found.pairs), (BONES, found.bones)):
            if numbers is not None:
                writer.add(section, np.array(numbers, "<i8").reshape(-1, 2))
        instances, each = found.write_rows(writer)
        counts[MOST] = int(each.max())
        return Facts(
            kind="",
            options={},
            seen=counts,
            began_ns=0,
            rows=rows,
            manifest=manifest.hexdigest(labels=False, classes=found.classes),
            classes=found.classes,
            empty=(),
            label=None,
            outside=0,
            columns={name: Column("<i8", (), OWN) for name in found.columns},
            optional=optional_groups(has_masks=found.masks is not None),
            instances=instances,
        )

    def write_rows(self, writer: IndexWriter, total: int = 0) -> tuple[dict[str, Column], Int64Array]:
        """Write the sizes of images, and their instances behind ``total`` others.

        Returns the descriptions of the columns of instances, and the number of each image's instances, (n,).
        """
        each = np.bincount(self.rows, minlength=len(self.sizes))
        order = np.argsort(self.rows, kind="stable")
        values: dict[str, AnyArray] = {
            BOXES: self.boxes.astype(np.float32),
            LABELS: self.labels,
            **self.values,
        }
        writer.add(SIZES, self.sizes.astype("<u4"))
        sorted_values = {name: array[order] for name, array in values.items()}
        if self.masks is not None:
            write_shapes(writer, self.masks.shapes, self.masks.numbers[order])
        return write_instances(writer, total + np.cumsum(each), sorted_values), each


class Instances:
    """The instances of images that are read one after another.

    form     the form of the boxes
    columns  shape and dtype of the values of each instance, with boxes in float64
    """

    def __init__(self, form: BoxForm, columns: Mapping[str, ArraySpec]) -> None:
        self.form, self.columns = form, columns
        self._counts, self._bytes, self._shapes = array("q"), dict[str, bytearray](), ShapeReader()

    def add(
        self,
        count: int,
        values: Mapping[str, AnyArray],
        box_name: str = BOXES,
        shapes: Sequence[Any] = (),
    ) -> None:
        """Add the next image's instances.

        box_name  the name of its boxes where they come from
        shapes    each instance's, as ``ShapeReader`` takes it, if they have masks
        """
        self._counts.append(count)
        for shape in shapes:
            self._shapes.add(shape)
        for name, each in values.items():
            found = self.form.corners(box_name, each.astype(np.float64)) if name == BOXES else each
            self._bytes.setdefault(name, bytearray()).extend(found.tobytes())

    def take(self, paths: Paths, sizes: Int64Array, place: Callable[[int, int], str]) -> Annotations:
        """Return the instances of all images since the last call.

        sizes  (n, 2) int64: height and width of the images in pixels
        place  the place of an instance, given its image's number and its own in the image
        """
        counts = np.array(self._counts, np.int64)
        rows, begins = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts) - counts
        values: dict[str, AnyArray] = {
            name: np.frombuffer(self._bytes.get(name, b""), spec.dtype).reshape(-1, *spec.shape)
            for name, spec in self.columns.items()
        }
        masks = None
        if self.form.instance_masks:
            masks = Masks.of(self._shapes, sizes[rows] if self.form.normalized else None)
        self._counts, self._bytes, self._shapes = array("q"), {}, ShapeReader()
        if values:
            values = self.form.in_pixels(values, sizes[rows])
        return Annotations(
            paths=paths,
            sizes=sizes,
            rows=rows,
            boxes=values.pop(BOXES, np.empty((0, 4))).astype(np.float64),
            labels=values.pop(LABELS, np.empty(0, np.int64)).astype(np.int64),
            values={name: each.astype(self.columns[name].dtype) for name, each in values.items()},
            place=lambda number: place(int(rows[number]), int(number - begins[rows[number]])),
            masks=masks,
        )


def optional_groups(*, has_masks: bool) -> dict[str, int]:
    """Return the optional groups of an index with instances."""
    return {"instances": 1, "sizes": 1, **({"shapes": 1} if has_masks else {})}


def _most(counts: Mapping[str, int]) -> str:
    kinds = [f"{count:,} × {kind.removeprefix(FAULT)}" for kind, count in counts.items()]
    return f"; {', '.join(kinds)}" if kinds else ""


def present(base: bytes, names: list[bytes]) -> NDArray[np.bool_]:
    """Return whether each of ``names`` is a file or link below the folder ``base``, (n,) bool.

    Each folder is listed once: a stat for each file would take minutes where storage is slow.
    """
    listed: dict[bytes, frozenset[bytes]] = {}
    found = np.zeros(len(names), np.bool_)
    for number, name in enumerate(names):
        folder, _, last = name.rpartition(b"/")
        if folder not in listed:
            try:
                listed[folder] = frozenset(os.listdir(os.path.join(base, folder)))  # noqa: PTH118, PTH208 (bytes)
            except (OSError, ValueError):
                listed[folder] = frozenset()
        found[number] = last in listed[folder]
    return found
