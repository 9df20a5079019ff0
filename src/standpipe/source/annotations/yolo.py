"""Images with label files in the format of the YOLO family."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from standpipe.errors import PlanError
from standpipe.source.annotations.listing import AnnotationSubject
from standpipe.source.annotations.paired import Format, PairedSource, Pairs, Parsed, images_in
from standpipe.source.annotations.shapes import LEAST_NUMBERS
from standpipe.source.annotations.table import MOST_LABEL, MOST_POINTS, Annotations
from standpipe.source.targets import BOXES, KEYPOINTS, LABELS, BoxForm
from standpipe.spec import ArraySpec
from standpipe.system.files import read_regular
from standpipe.system.paths import AnyPath, absolute, path_text, reading

MOST_YAML_BYTES = 1 << 20
MOST_LIST_BYTES = 1 << 30
IMAGE_FOLDER, LABEL_FOLDER = b"images", b"labels"

# Number of keypoints, of numbers for each, and the numbers of left and right ones, or None if they aren't known.
Points = tuple[int, int, tuple[tuple[int, int], ...] | None]
NO_POINTS: Points = (0, 0, None)


@dataclass(frozen=True, slots=True)
class YoloLabels(PairedSource):
    """Images with a label file each, as the YOLO family has them, for detection and keypoints.

    The records are the images, sorted by path. Their fields are ``image``, encoded, and for the M instances of an
    image ``boxes`` (M, 4) float32, xyxy in pixels, ``labels`` (M,) int64, and ``keypoints`` (M, K, 3) float32, x and
    y in pixels and the visibility, if the description has ``kpt_shape``. Points without a visibility get 2, or 0 at
    (0, 0).

    The label file of ``…/images/a/1.jpg`` is ``…/labels/a/1.txt``, with a line for each instance: class number, and
    centre, width and height of the box as fractions of the image's sides, and then the keypoints. Without keypoints, a
    line may have the points of a polygon, x and y by turns, in place of the box, which is then the one around them. An
    image without a label file has no instances. The sizes of images are read from their headers, and are those of the
    image as its EXIF turns it: photos with an orientation need ``decode(orientation="apply")``.

    All files are read once, into an index. Later runs use it while the images and the sizes and modification times
    of all label files stay the same.

    No fault is silent. ``explain()`` counts by kind, and ``check_files`` names each with file and line: a line of
    another form, a class that the description doesn't name, values that aren't fractions, a line that comes twice,
    an empty box, a label file without an image, an image that can't be read.

    Parameters
    ----------
    data : path
        The description, ``data.yaml``, with ``path``, ``train``, ``val``, ``names`` and perhaps ``kpt_shape`` and
        ``flip_idx``; or a folder with the folders ``images`` and ``labels``. Without a description classes have no
        names.
    split : str, default "train"
        The name of the split in the description: ``"train"``, ``"val"`` or ``"test"``. It may be a folder, a text file
        with a path on each line, or a list of those. A folder without a description has no splits.
    instance_masks : bool, default False
        Whether instances have masks: the field ``instance_masks``, whose form ``batch(masks=…)`` says. Each line needs
        a polygon.
    labels : {"contiguous", "contiguous+1"}, default "contiguous"
        ``"contiguous+1"`` adds 1 to all classes, for torchvision's detectors, whose 0 is the background.
    without_instances, invalid, index
        As for ``Coco``.

    Raises
    ------
    PlanError
        By ``plan()``, for a description that can't be read, and for images without any label file.

    Examples
    --------
    >>> import pathlib, shutil
    >>> for folder in ("pets/images", "pets/labels"):
    ...     pathlib.Path(folder).mkdir(parents=True)
    >>> _ = shutil.copy("photos/cat/000.jpg", "pets/images/a.jpg")  # 96 × 72 pixels
    >>> _ = pathlib.Path("pets/labels/a.txt").write_text("2 0.5 0.5 0.25 0.5")
    >>> source = sp.YoloLabels("pets", index="pets.index")
    >>> with sp.Pipeline(source).map(sp.Resize((36, 48))).batch(1).loader() as loader:
    ...     batch = next(iter(loader))
    >>> batch["boxes"].tolist(), batch["labels"].tolist()
    ([[18.0, 9.0, 30.0, 27.0]], [2])
    """

    data: AnyPath
    split: str = "train"
    instance_masks: bool = field(default=False, kw_only=True)

    def subject(self) -> AnnotationSubject:
        """Return the images and label files, as the subject of an index."""
        path = absolute(self.data, field="YoloLabels' data")
        if os.path.isdir(path):  # noqa: PTH112 (bytes)
            base, parts, names, points = os.path.join(path, b""), [IMAGE_FOLDER], None, NO_POINTS  # noqa: PTH118
        else:
            base, parts, names, points = _description(path, self.split)
        pairs = partial(_pairs, base, parts)
        form = partial(YoloFormat, names, points, masks=self.instance_masks)
        return self.of_pairs("yolo", (path, base), pairs, form, f"{names}, {points}")


def _description(path: bytes, split: str) -> tuple[bytes, list[bytes], list[str], Points]:
    """Read ``data.yaml``: return the base folder, the parts of the split, class names, and the form of keypoints."""
    try:
        import yaml
    except ImportError as error:
        raise PlanError(
            "YoloLabels reads data.yaml by PyYAML, which is missing: pip install pyyaml"
        ) from error
    shown = path_text(path)
    with reading(path):
        text = read_regular(os.fsdecode(path), MOST_YAML_BYTES)
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise PlanError(f"{shown} isn't YAML: {' '.join(str(error).split()):.300}") from error
    if not isinstance(found, dict) or split not in [*found]:
        raise PlanError(f"{shown} has no split {split!r}; it needs path, train, val and names")
    parts = found[split] if isinstance(found[split], list) else [found[split]]
    root = found.get("path", "")
    if not all(isinstance(part, str) and part and "\0" not in part for part in parts) or not isinstance(
        root, str
    ):
        raise PlanError(f"{shown}: path and {split} must be paths, got {root!r:.80} and {found[split]!r:.80}")
    base = os.path.join(os.path.dirname(path), os.fsencode(root), b"")  # noqa: PTH118, PTH120
    return (
        base,
        [os.fsencode(part) for part in parts],
        _names(shown, found.get("names")),
        _points(shown, found),
    )


def _names(shown: str, names: Any) -> list[str]:
    numbered = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(numbered, Mapping) or {*numbered} != {*range(len(numbered))}:
        raise PlanError(
            f"{shown}: names must be a list of class names, or have the numbers from 0, got {names!r:.80}"
        )
    return [
        path_text(str(numbered[number]).encode("utf-8", "backslashreplace"))
        for number in range(len(numbered))
    ]


def _points(shown: str, found: Mapping[Any, Any]) -> Points:
    shape, turned = found.get("kpt_shape"), found.get("flip_idx")
    if shape is None:
        return NO_POINTS
    match shape:
        case [int(count), 2 | 3 as each] if 0 < count <= MOST_POINTS:
            if turned is None:
                return count, each, None
            if isinstance(turned, list) and sorted(map(str, turned)) == sorted(map(str, range(count))):
                pairs = tuple((left, right) for left, right in enumerate(turned) if left < right)
                if all(turned[right] == left for left, right in pairs):
                    return count, each, pairs
            raise PlanError(
                f"{shown}: flip_idx must have each number from 0 to {count - 1}, where left and right points swap, "
                f"got {turned!r:.80}"
            )
    raise PlanError(f"{shown}: kpt_shape must be [number of keypoints, 2 or 3], got {shape!r:.80}")


def _pairs(base: bytes, parts: list[bytes]) -> Pairs:
    """List the images of all parts, and their label files."""
    images: set[bytes] = set()
    lone: list[bytes] = []
    for part in parts:
        whole = os.path.normpath(os.path.join(base, part))  # noqa: PTH118 (bytes)
        if part.startswith(b"../") and not os.path.exists(whole):  # noqa: PTH110
            whole = os.path.normpath(os.path.join(base, part[3:]))  # noqa: PTH118 (as Roboflow writes them)
        if whole.endswith(b".txt"):
            images |= _listed(whole)
            continue
        names, _ = images_in(whole)
        here = {os.path.join(whole, name) for name in names}  # noqa: PTH118
        images |= here
        labels, files = _label_path(os.path.join(whole, b"")), {_label_path(image) for image in here}  # noqa: PTH118
        if labels != whole + b"/" and os.path.isdir(labels):  # noqa: PTH112
            there = (os.path.join(labels, name) for name in images_in(labels)[1])  # noqa: PTH118
            lone += [path for path in there if path.endswith(b".txt") and path not in files]
    ordered = sorted(images)
    below = [image.removeprefix(base) for image in ordered]
    return Pairs(below, [_label_path(image) for image in ordered], sorted(lone))


def _listed(path: bytes) -> set[bytes]:
    """Return the images that a text file lists; relative paths start from its folder."""
    with reading(path):
        lines = read_regular(os.fsdecode(path), MOST_LIST_BYTES).splitlines()
    folder = os.path.dirname(path)  # noqa: PTH120
    names = {line.strip() for line in lines if b"\0" not in line} - {b""}
    return {os.path.normpath(os.path.join(folder, name)) for name in names}  # noqa: PTH118


def _label_path(image: bytes) -> bytes:
    """Return the path of the label file of an image: its last folder ``images`` becomes ``labels``."""
    before, slash, after = image.rpartition(b"/" + IMAGE_FOLDER + b"/")
    changed = before + b"/" + LABEL_FOLDER + b"/" + after if slash else image
    folder, _, name = changed.rpartition(b"/")
    stem = name.rpartition(b".")[0]
    return folder + b"/" + (stem + b".txt" if stem else name)


class YoloFormat(Format):
    """Label files of the YOLO family."""

    def __init__(self, names: list[str] | None, points: Points, *, masks: bool) -> None:
        self.form = BoxForm("cxcywh", normalized=True, instance_masks=masks)
        count, self._numbers_each, self._pairs = points
        self.values = {KEYPOINTS: ArraySpec((count, 3), np.dtype(np.float32))} if count else {}
        self._names = names
        self._classes = MOST_LABEL + 1 if names is None else len(names)
        self._columns = 5 + count * self._numbers_each

    def named(self, found: Annotations) -> Annotations:
        """Return the instances with class names, and with pairs of keypoints."""
        classes = tuple(self._names) if self._names else None
        return replace(found, classes=classes, pairs=self._pairs)

    def parse(self, content: bytes) -> Parsed:
        """Return the instances of a label file."""
        found, lines = Parsed(), set()
        for number, line in enumerate(content.splitlines(), 1):
            words = line.split()
            if not words:
                continue
            try:
                values = [float(word) for word in words]
            except ValueError:
                values = []
            if fault := self._fault(values, tuple(words) in lines):
                found.faults.append((number, fault))
                continue
            lines.add(tuple(words))
            found.lines.append(number)
            found.values[LABELS].append(values[0])
            polygon = values[1:] if self._has_polygon(values) else []
            found.values[BOXES].append(_around(polygon) if polygon else values[1:5])
            if self.form.instance_masks:
                found.shapes.append([polygon])
            if self._numbers_each:
                found.values[KEYPOINTS].append(self._keypoints(values[5:]))
        return found

    def _has_polygon(self, values: list[float]) -> bool:
        """Return True for a line with a class and at least three points, where lines have no keypoints."""
        return not self._numbers_each and len(values) > LEAST_NUMBERS and len(values) % 2 == 1

    def _fault(self, values: list[float], is_repeated: bool) -> str | None:
        has_polygon = self._has_polygon(values)
        if self.form.instance_masks and not has_polygon:
            return "line that isn't of a class and at least three points"
        if len(values) != self._columns and not has_polygon:
            return f"line that isn't of {self._columns} numbers"
        if not all(map(math.isfinite, values)):
            return "line with a number that isn't finite"
        if not 0 <= values[0] < self._classes or values[0] != int(values[0]):
            return "class out of range"
        if not all(-0.01 <= value <= 1.01 for value in values[1 : None if has_polygon else 5]):
            return f"line whose {'polygon' if has_polygon else 'box'} isn't in fractions of the image"
        return "line that comes twice" if is_repeated else None

    def _keypoints(self, values: list[float]) -> list[float]:
        if self._numbers_each == 3:
            return values
        pairs = zip(values[::2], values[1::2], strict=True)
        return [value for x, y in pairs for value in (x, y, 2.0 if x or y else 0.0)]


def _around(polygon: list[float]) -> list[float]:
    """Return centre, width and height of the box around the points of a polygon."""
    (left, right), (top, bottom) = ((min(each), max(each)) for each in (polygon[::2], polygon[1::2]))
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
