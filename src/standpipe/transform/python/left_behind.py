"""Find the values of a sample that should have moved with its image, and didn't."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import ArraySpec, Listed
from standpipe.transform.image import ImageTransform, Size
from standpipe.transform.kinds import IMAGE, FieldKind
from standpipe.transform.python.function import Function
from standpipe.transform.python.values import MOST_DEPTH, MOST_PARTS, as_array

# Names of values with places in an image, as data sets and their readers write them.
OF_BOXES = ("box", "boxes", "bbox", "bboxes", "bndbox", "bounding_box", "bounding_boxes")
OF_POINTS = (
    *("keypoint", "keypoints", "kpts", "landmark", "landmarks", "joints", "point", "points"),
    *("polygon", "polygons", "contour", "contours"),
)
OF_PICTURES = (
    *("mask", "masks", "instance_masks", "segmentation", "segmentations", "segmentation_mask"),
    *("semantic_seg", "seg_map", "heatmap", "heatmaps", "depth", "depth_map", "disparity"),
    *("flow", "optical_flow"),
)
OF_PLACES = frozenset(name for each in (*OF_BOXES, *OF_POINTS, *OF_PICTURES) for name in (each, f"gt_{each}"))


@dataclass(frozen=True, slots=True)
class Move:
    """A transform that moves the pixels of an image.

    by        description of the transform
    fields    names of the sample's fields at this time that it doesn't move
    pictures  names of those among them that are pictures
    size_px   (height, width) of the image before the transform's step; None if it isn't known
    """

    by: str
    fields: frozenset[str]
    pictures: frozenset[str]
    size_px: Size | None


@dataclass(frozen=True, slots=True)
class Left:
    """A value that a transform left behind.

    field  name of the sample's field
    path   the value's place: ``target["boxes"]``; the field's name if it is the whole field
    by     description of the transform
    named  True if it is a picture, or its name is in ``OF_PLACES``; False if it only has the image's height and width
    """

    field: str
    path: str
    by: str
    named: bool

    def __str__(self) -> str:
        return f"the field {repr(self.field) if self.path == self.field else self.path}"


def moves(
    transforms: Sequence[Transform],
    sample: Mapping[str, Any],
    kinds: Mapping[str, FieldKind],
    size_px: Size | None = None,
) -> Iterator[Move]:
    """Yield those of a step's transforms that move pixels.

    sample   the sample before the step, or the form of each field
    kinds    the kinds of its pictures, the reference first
    size_px  (height, width) of the reference then; None: if the sample has it
    """
    reference = next(iter(kinds), IMAGE.name)
    shape = _shape(sample.get(reference)) or ()
    if size_px is None and len(shape) == 3:
        size_px = shape[0], shape[1]
    for transform in transforms:
        if not isinstance(transform, ImageTransform | Function) or not transform.moves:
            continue
        moved: Iterable[str] = transform.moves
        if isinstance(transform, ImageTransform):
            moved = [field for field, kind in kinds.items() if kind.name in moved]
        left = frozenset(sample).difference(moved)
        pictures = frozenset[str]() if reference in left else left.intersection(kinds)
        yield Move(transform.describe(), left, pictures, size_px)


def left_behind(moved: Sequence[Move], sample: Mapping[str, Any]) -> tuple[Left, ...]:
    """Return the values that transforms left behind, at most one of each field.

    moved   the transforms that moved the image
    sample  the finished sample, or the form of each field: an ``ArraySpec``, or None if it isn't known
    """
    found: list[Left] = []
    for field, value in sample.items():
        by = [move for move in moved if field in move.fields]
        parts = list(_parts(value, field, field)) if by else []
        is_picture = any(field in move.pictures for move in by)
        named = [
            Left(field, path, by[0].by, True)
            for path, name, part in parts
            if is_picture or _is_place(name, part)
        ]
        alike = [
            Left(field, path, move.by, False)
            for path, _, part in parts
            for move in by
            if _has_size(part, move.size_px)
        ]
        found += (named or alike)[:1]
    return tuple(found)


def checked(left: Iterable[Left], counts: Callable[[str], bool]) -> tuple[Left, ...]:
    """Return the values that only have the image's size. Raise ``PlanError`` for one whose name says what it is.

    counts  says of a field's name whether the field matters
    """
    counted = {each.path: each for each in left if counts(each.field)}
    for each in counted.values():
        if each.named:
            raise PlanError(
                f"{each.by} moves the image's pixels but not {each}, which would no longer fit the image: "
                f"{_ways_out(each)}"
            )
    return tuple(counted.values())


def warning(suspects: Sequence[Left]) -> str:
    """Return a warning's text about values that only have the image's size."""
    return (
        f"{suspects[0].by} moves the image's pixels but not {' and '.join(map(str, suspects))}, as high and wide "
        f"as the image was. If they belong together, {_ways_out(*suspects)}"
    )


def _ways_out(*left: Left) -> str:
    return (
        "move both in a Python function of the whole sample, .map(fn), such as one that calls torchvision's v2 or "
        "albumentations, or use transforms that move no pixels. Pictures and masks are moved if decode(images=…, "
        "masks=…) names them, and masks of instances with MapSource(…, instance_masks=True). If the field fits the "
        "image as it is, write "
        f"map(…, unmoved={tuple(dict.fromkeys(each.field for each in left))!r})"
    )


def _parts(value: Any, path: str, name: str, depth: int = 0) -> Iterator[tuple[str, str, Any]]:
    """Yield a value and the values inside it, each with its path and its name."""
    yield path, name, value
    inside: Iterable[tuple[str, str, Any]] = ()
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        inside = ((f'["{key}"]', str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        inside = ((f"[{number}]", "", part) for number, part in enumerate(value))
    for there, called, part in islice(inside, MOST_PARTS if depth < MOST_DEPTH else 0):
        yield from _parts(part, path + there, called, depth + 1)


def _is_place(name: str, value: Any) -> bool:
    """Return True for coordinates or a picture, by name: at least two numbers, or something encoded.

    Text and a single number are neither, such as the name of a class, or a score.
    """
    return name.lower() in OF_PLACES and sum(_numbers(part) for *_, part in _parts(value, "", name)) > 1


def _numbers(value: Any) -> int:
    """Return how many numbers a value has, roughly, without those of values inside it."""
    if (shape := _shape(value)) is not None:
        return max(shape, default=1)  # no boxes are (0, 4)
    match value:
        case None | Listed():
            return 0
        case str():  # the coordinates of Pascal VOC's files are text
            return int(value.strip().lstrip("-").replace(".", "", 1).isdecimal())
        case Mapping() | list() | tuple():
            return 0 if value else 2  # an image without objects
        case _:
            return 2  # encoded, or of a class of its own


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, a picture, a number or an ``ArraySpec``; None for other values."""
    array = value if isinstance(value, ArraySpec) else as_array(value)
    return None if array is None else array.shape


def _has_size(value: Any, size_px: Size | None) -> bool:
    return size_px in tuple(pairwise(_shape(value) or ()))  # frames may be (n, H, W, 3) or (n, 3, H, W)
