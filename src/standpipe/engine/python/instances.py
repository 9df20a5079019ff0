"""Take the instances out of a dataset's sample, as torchvision's targets have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standpipe.engine.rows import RowFailed, Sample
from standpipe.source.targets import BOXES, CORNERS, BoxForm, checked_boxes, key_of_target, shown_box
from standpipe.spec import SIZE, AnyArray, RaggedSpec
from standpipe.transform.python.values import as_array


def with_instances(sample: Sample, columns: Mapping[str, RaggedSpec], form: BoxForm) -> Sample:
    """Return a sample with its instances as arrays (M, …), which may be in a dict inside it. Boxes are xyxy then.

    columns  shape and dtype of one instance's value, by field
    form     the form of boxes in the sample

    Raises ``RowFailed`` for a sample without them, and for values of another form.
    """
    for name, value in sample.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping) and "bbox" in value[0]:
            raise RowFailed(
                "source",
                f"{name!r} is a list of dicts, as CocoDetection gives them: use sp.Coco(images, annotations), or make "
                "one dict of it, {'boxes': …, 'labels': …}, with an array for all objects",
            )
        if isinstance(value, Mapping) and key_of_target(BOXES, value) is not None:
            sample = {**{other: sample[other] for other in sample if other != name}, **value}
            break
    found = {name: _column(sample, name, spec, form) for name, spec in columns.items()}
    counts = {name: len(array) for name, array in found.items()}
    if len({*counts.values()}) > 1:
        raise RowFailed(
            "source", f"the sample has different numbers of {counts}: one instance is one value of each"
        )
    return {**sample, **found}


def _column(sample: Sample, name: str, spec: RaggedSpec, form: BoxForm) -> AnyArray:
    """Take the values of all instances, (M, …), out of a sample."""
    key = key_of_target(name, sample)
    if key is None:
        raise RowFailed(
            "source",
            f"the sample has no {name!r}, which instances= names; its fields are {', '.join(map(str, sample))}",
        )
    value = sample.pop(key)
    array = np.asarray(value) if isinstance(value, list) else as_array(value)
    if array is not None and array.size == 0:
        array = np.zeros((len(array), *spec.shape))
    if array is None or array.ndim == 0 or array.shape[1:] != spec.shape or array.dtype.kind not in "biuf":
        got = type(value).__name__ if array is None else f"{array.shape} {array.dtype}"
        raise RowFailed("source", f"{key!r} must be {spec} for M instances, but it is {got}")
    if name != BOXES:
        return array.astype(spec.dtype)
    own = str(getattr(getattr(value, "format", None), "value", "")).lower()  # of torchvision's BoundingBoxes
    if own and (own not in CORNERS or form.box_format not in (None, own)):
        raise RowFailed(
            "source",
            f"{key!r} is {own}: leave out box_format=, and convert forms other than {', '.join(CORNERS)}",
        )
    return form.corners(own or key, array.astype(np.float64))


def in_image(sample: Sample, columns: Mapping[str, RaggedSpec], form: BoxForm) -> Sample:
    """Return a finished sample with boxes in pixels of its image, clipped to it.

    Raises ``RowFailed`` for a wrong box, unless ``form`` says otherwise.
    """
    size = np.array(sample[SIZE], np.int64)
    values = form.in_pixels({name: sample[name] for name in columns}, size)
    boxes = values[BOXES].astype(np.float64)
    values[BOXES], faults, dropped = checked_boxes(boxes, size, form.invalid)
    for kind, wrong in faults.items() if form.invalid == "error" else ():
        for number in np.flatnonzero(wrong).tolist():
            raise RowFailed(
                "source",
                f"{kind}: instance {number}, {shown_box(boxes[number], size)}. With invalid='clip' boxes are cut off "
                "at the image's edges, and what isn't valid then is dropped",
            )
    return {**sample, **{name: values[name][~dropped].astype(spec.dtype) for name, spec in columns.items()}}


def without_instances(sample: Sample, columns: Mapping[str, RaggedSpec]) -> Sample:
    """Return a finished sample without its instances."""
    return {name: value for name, value in sample.items() if name not in columns and name != SIZE}
