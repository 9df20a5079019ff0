"""Read instances from JSON, where each image has an object of its own."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from standpipe.contracts import Paths
from standpipe.source.annotations.table import MOST_POINTS, Annotations
from standpipe.source.index.with_fields import is_field_name
from standpipe.source.targets import BOXES, FORMS, KEYPOINTS, LABELS, OTHER_NAMES, BoxForm, key_of_target
from standpipe.spec import AnyArray, ArraySpec, Int64Array

NO_COLUMNS = {"image_id", *OTHER_NAMES[BOXES], *OTHER_NAMES[LABELS]}
FORM = "an object with boxes and labels, or with a list of annotations as COCO has them"


class JsonTargets:
    """The instances of images, each in a JSON object of its own.

    An object has ``boxes``, ``labels``, and perhaps ``keypoints`` and further lists with a number for each instance; or
    ``annotations``, a list of objects with ``bbox``, ``category_id`` and the like; or it is that list. The first image
    with instances says which further values all images have.

    form     the form of the boxes
    taken   names of the records' other fields, which instances' values can't have
    columns  shape and dtype of the values of each instance, from the first image with any on
    """

    def __init__(self, form: BoxForm, taken: Collection[str] = ()) -> None:
        self.form = form
        self._taken = {*NO_COLUMNS, *taken}
        self.columns: dict[str, ArraySpec] = {}
        self._bytes: dict[str, bytearray] = {}
        self._counts = array("q")

    def add(self, text: bytes | None) -> None:
        """Read the next image's object; None: the image has no instances. Raises ``ValueError`` for another form."""
        target = {} if text is None else _target(text)
        names = {} if text is None else {name: _named(name, target) for name in (BOXES, LABELS)}
        counts = {len(target[key]) for key in names.values()}
        if len(counts) > 1:
            raise ValueError("it has different numbers of boxes and labels")
        count = next(iter(counts), 0)
        self._counts.append(count)
        if count == 0:
            return
        if not self.columns:
            self.columns = self._found(target, names, count)
            self._bytes = {name: bytearray() for name in self.columns}
        for name, spec in self.columns.items():
            key = names.get(name) or _named(name, target)
            values = _values(key, target[key], spec, count)
            if name == BOXES:
                values = self.form.corners(key, values.astype(np.float64))
            self._bytes[name] += values.tobytes()

    def take(self, sizes: Int64Array, place: Callable[[int, int], str]) -> Annotations:
        """Return the instances of all images since the last call, without paths.

        sizes  (n, 2) int64: height and width of the images in pixels
        place  the place of an instance, given its image's number and its own in the image
        """
        counts = np.array(self._counts, np.int64)
        rows, begins = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts) - counts
        values: dict[str, AnyArray] = {
            name: np.frombuffer(self._bytes[name], spec.dtype).reshape(-1, *spec.shape)
            for name, spec in self.columns.items()
        }
        self._counts, self._bytes = array("q"), {name: bytearray() for name in self.columns}
        if values:
            values = self.form.in_pixels(values, sizes[rows])
        boxes = values.pop(BOXES, np.empty((0, 4))).astype(np.float64)
        return Annotations(
            paths=Paths.pack([]),
            sizes=sizes,
            rows=rows,
            boxes=boxes,
            labels=values.pop(LABELS, np.empty(0, np.int64)).astype(np.int64),
            values={name: each.astype(self.columns[name].dtype) for name, each in values.items()},
            columns={},
            classes=None,
            place=lambda number: place(int(rows[number]), int(number - begins[rows[number]])),
        )

    def _found(self, target: Mapping[str, Any], names: Mapping[str, str], count: int) -> dict[str, ArraySpec]:
        """Return shape and dtype of the values that an image's instances have."""
        columns = {BOXES: ArraySpec((4,), np.dtype(np.float64)), LABELS: FORMS[LABELS]}
        for name, value in target.items():
            if name in names.values() or name in self._taken or not is_field_name(name):
                continue
            found = _numbers(name, value)
            if found is None or len(found) != count:
                continue
            if name == KEYPOINTS:
                if found.ndim != 3 or found.shape[2] != 3 or found.shape[1] > MOST_POINTS:
                    raise ValueError(
                        f"its keypoints have the shape {found.shape}: x, y and visibility of each are needed"
                    )
                columns[name] = ArraySpec(found.shape[1:], np.dtype(np.float32))
            elif found.ndim == 1:
                columns[name] = FORMS.get(name, ArraySpec((), np.dtype(np.float64)))
        return columns


def _target(text: bytes) -> Mapping[str, Any]:
    """Return the values of an image's instances by name, with a list of all instances' values each."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except ValueError as error:  # damaged text too, and integers of more than 4,300 digits
        raise ValueError(f"it isn't JSON: {error!s:.200}") from None
    if isinstance(found, dict) and BOXES not in found and isinstance(found.get("annotations"), list):
        found = found["annotations"]
    if isinstance(found, list):
        if not all(isinstance(each, dict) for each in found):
            raise ValueError(f"it must be {FORM}")
        names = (
            [name for name in found[0] if all(name in each for each in found)] if found else [BOXES, LABELS]
        )
        found = {name: [each[name] for each in found] for name in names}
    if not isinstance(found, dict):
        raise ValueError(f"it must be {FORM}")
    return found


def _named(name: str, target: Mapping[str, Any]) -> str:
    """Return the key of a field in an image's object."""
    key = key_of_target(name, target)
    if key is None or not isinstance(target[key], list):
        keys = ", ".join(repr(each)[:80] for each in [*target][:9])
        raise ValueError(f"it has no list {name!r}, only {keys or 'an empty object'}; it must be {FORM}")
    return key


def _numbers(name: str, value: Any) -> AnyArray | None:
    """Return values as an array; None if they aren't numbers of one shape."""
    try:
        found = np.array(value)
    except (ValueError, OverflowError):
        return None
    if (
        name == KEYPOINTS and found.ndim == 2 and found.shape[1] % 3 == 0
    ):  # COCO's have no axis for each point
        found = found.reshape(len(found), -1, 3)
    fits = found.dtype.kind in "biuf" and found.ndim > 0 and 0 not in found.shape
    return found if fits else None


def _values(key: str, value: Any, spec: ArraySpec, count: int) -> AnyArray:
    found = _numbers(KEYPOINTS if key == KEYPOINTS else "", value)
    of_integers = spec.dtype.kind in "ib"
    if found is None or found.shape != (count, *spec.shape) or (of_integers and found.dtype.kind not in "bi"):
        what = "integers" if of_integers else "numbers"
        raise ValueError(
            f"{key!r} must be {what} of the shape {(count, *spec.shape)}, as in the first image with instances"
        )
    with np.errstate(over="ignore"):  # infinity
        return found.astype(spec.dtype)
