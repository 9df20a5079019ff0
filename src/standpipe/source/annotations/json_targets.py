"""Read instances from JSON, where each image has an object of its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from standpipe.source.annotations.table import BOX_AND_LABEL, MOST_POINTS, Instances
from standpipe.source.index.with_fields import is_field_name
from standpipe.source.targets import (
    BOXES,
    FORMS,
    FURTHER,
    KEYPOINTS,
    LABELS,
    NO_COLUMNS,
    SEGMENTATION,
    BoxForm,
    key_of_target,
)
from standpipe.spec import AnyArray, ArraySpec

FORM = "an object with boxes and labels, or with a list of annotations as COCO has them"


class JsonTargets(Instances):
    """The instances of images, each in a JSON object of its own.

    An object has ``boxes``, ``labels``, and perhaps ``keypoints`` and further lists with a number for each instance; or
    ``annotations``, a list of objects with ``bbox``, ``category_id`` and the like; or it is that list. The first image
    with instances says which further values all images have. With masks, ``segmentation`` is as COCO has it.

    taken  names of the records' other fields, which instances' values can't have
    """

    def __init__(self, form: BoxForm, taken: Collection[str] = ()) -> None:
        super().__init__(form, {})
        self._taken = {*NO_COLUMNS, *taken}

    def read(self, text: bytes | None) -> None:
        """Read the next image's object; None: the image has no instances. Raises ``ValueError`` for another form."""
        target = {BOXES: [], LABELS: []} if text is None else _target(text)
        names = {name: _named(name, target) for name in (BOXES, LABELS)}
        count = len(target[names[BOXES]])
        if len(target[names[LABELS]]) != count:
            raise ValueError("it has different numbers of boxes and labels")
        if count and not self.columns:
            self.columns = self._found(target, names, count)
        values = {}
        for name, spec in self.columns.items() if count else ():
            key = names.get(name) or _named(name, target)
            values[name] = _values(key, target[key], spec, count)
        shapes = target.get(SEGMENTATION, [None] * count) if self.form.instance_masks else ()
        if self.form.instance_masks and (not isinstance(shapes, list) or len(shapes) != count):
            raise ValueError(f"its {SEGMENTATION!r} must be a list with a mask for each box")
        self.add(count, values, names[BOXES], shapes)

    def _found(self, target: Mapping[str, Any], names: Mapping[str, str], count: int) -> dict[str, ArraySpec]:
        """Return shape and dtype of the values that an image's instances have."""
        columns = {**BOX_AND_LABEL}
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
                columns[name] = FORMS.get(name, FURTHER)
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
    found = _numbers(key, value)
    of_integers = spec.dtype.kind in "ib"
    if found is None or found.shape != (count, *spec.shape) or (of_integers and found.dtype.kind not in "bi"):
        what = "integers" if of_integers else "numbers"
        raise ValueError(
            f"{key!r} must be {what} of the shape {(count, *spec.shape)}, as in the first image with instances"
        )
    with np.errstate(over="ignore"):  # infinity
        return found.astype(spec.dtype)
