"""Boxes and other values of objects in images, as targets have them: names, forms, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError
from standpipe.spec import MASKS, AnyArray, ArraySpec, Int64Array

Invalid = Literal["clip", "drop", "error"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
Boxes = NDArray[np.float64]

BOXES, LABELS, KEYPOINTS = "boxes", "labels", "keypoints"
SEGMENTATION = "segmentation"  # shapes of instances, of which masks are drawn
ROUNDING_PX = 1.0  # a box may be rounded up to this far out of its image
NOT_FINITE, EMPTY, OUTSIDE = "box that isn't finite", "empty box", "box outside its image"
# Shape and dtype of one instance's value, for names that torchvision's and COCO's targets have.
FORMS: Mapping[str, ArraySpec] = {
    BOXES: ArraySpec((4,), np.dtype(np.float32)),
    LABELS: ArraySpec((), np.dtype(np.int64)),
    "area": ArraySpec((), np.dtype(np.float32)),
    "iscrowd": ArraySpec((), np.dtype(np.bool_)),
    "id": ArraySpec((), np.dtype(np.int64)),
    "score": ArraySpec((), np.dtype(np.float32)),
    "scores": ArraySpec((), np.dtype(np.float32)),
}
FURTHER = ArraySpec((), np.dtype(np.float64))  # of other numbers
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    BOXES: ("bbox",),
    LABELS: ("category_id", "category"),
    MASKS: ("masks", SEGMENTATION),
}
# Keys of objects that are no columns. A number of keypoints would be wrong once points have left the image.
NO_COLUMNS = {"image_id", SEGMENTATION, "num_keypoints", *OTHER_NAMES[BOXES], *OTHER_NAMES[LABELS]}
# From the four numbers of each box to its left, top, right and bottom.
CORNERS: Mapping[str, Callable[[Boxes], Boxes]] = {
    "xyxy": lambda boxes: boxes,
    "xywh": lambda boxes: _spanned(boxes[:, :2], boxes[:, 2:]),
    "cxcywh": lambda boxes: _spanned(boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]),
}


@dataclass(frozen=True, slots=True)
class BoxForm:
    """The form of boxes where they come from, and the treatment of wrong ones.

    box_format      the four numbers of a box; None: xywh for boxes named ``bbox``, as COCO has them, else xyxy
    normalized      True if boxes, keypoints and masks are fractions of the image's sides
    instance_masks  True if instances have masks
    """

    box_format: BoxFormat | None = None
    normalized: bool = False
    invalid: Invalid = "clip"
    instance_masks: bool = False

    def check(self, call: str) -> BoxForm:
        """Return this form. Raises ``PlanError`` for other values than the types name."""
        for name, value, known in (
            ("box_format", self.box_format, (None, *get_args(BoxFormat))),
            ("normalized", self.normalized, (False, True)),
            ("instance_masks", self.instance_masks, (False, True)),
            ("invalid", self.invalid, get_args(Invalid)),
        ):
            if not any(value is each or (isinstance(value, str) and value == each) for each in known):
                raise PlanError(f"{call}: {name} must be {' or '.join(map(repr, known))}, got {value!r:.80}")
        return self

    def corners(self, name: str, boxes: Boxes) -> Boxes:
        """Return boxes (M, 4) as xyxy. ``name``: theirs where they come from, or their own format."""
        usual = {BOXES: "xyxy", "bbox": "xywh"}.get(name, name)
        return CORNERS[self.box_format or usual](boxes)

    def in_pixels(self, values: Mapping[str, AnyArray], sizes: Int64Array) -> dict[str, AnyArray]:
        """Return the values of instances with boxes and keypoints in pixels.

        sizes  height and width of their images in pixels: (2,) of one, or (M, 2)
        """
        found = dict(values)
        if self.normalized:
            sides = sizes[..., ::-1]
            found[BOXES] = found[BOXES] * np.concatenate([sides, sides], axis=-1)
            if KEYPOINTS in found:
                ones = np.ones_like(sides[..., :1])
                found[KEYPOINTS] = found[KEYPOINTS] * np.concatenate([sides, ones], axis=-1)[..., None, :]
        return found


def box_form(source: object) -> BoxForm:
    """Return the form of the boxes that a Python source's samples have."""
    form = getattr(source, "form", None)
    return form if isinstance(form, BoxForm) else BoxForm(invalid="error")


def _spanned(begin: Boxes, size: Boxes) -> Boxes:
    return np.concatenate([begin, begin + size], axis=1)


def key_of_target(name: str, given: Mapping[str, object]) -> str | None:
    """Return the name of a field in a target, which may be Hugging Face's or COCO's; None if it isn't there."""
    return next((each for each in (name, *OTHER_NAMES.get(name, ())) if each in given), None)


def checked_boxes(
    boxes: Boxes, sizes: Int64Array, invalid: Invalid
) -> tuple[Boxes, dict[str, NDArray[np.bool_]], NDArray[np.bool_]]:
    """Return boxes clipped to their images, which of them have each kind of fault, and which are to be dropped.

    boxes  (M, 4) xyxy in pixels
    sizes  height and width of their images in pixels: (2,) of one, or (M, 2)
    """
    left, top, right, bottom = boxes.T
    finite = np.all(np.isfinite(boxes), axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        empty = finite & ((right <= left) | (bottom <= top))
        clipped = np.clip(boxes, 0, sizes[..., [1, 0, 1, 0]])
        outside = finite & ~empty & np.any(np.abs(clipped - boxes) > ROUNDING_PX, axis=1)
        small = clipped.astype(np.float32)
        nothing = (small[:, 2] <= small[:, 0]) | (small[:, 3] <= small[:, 1])
    faults = {NOT_FINITE: ~finite, EMPTY: empty | (finite & ~outside & nothing), OUTSIDE: outside}
    return clipped, faults, ~finite | empty | nothing | (outside if invalid == "drop" else False)


def shown_box(box: NDArray[np.floating], size: Int64Array) -> str:
    """Return a box xyxy, and the image's height and width, as text."""
    numbers = ", ".join(f"{value:.6g}" for value in box)
    return f"the box from and to ({numbers}), in an image of {size[1]} × {size[0]} pixels"
