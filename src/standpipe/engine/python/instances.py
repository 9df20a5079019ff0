"""Take the instances out of a dataset's sample, as torchvision's targets have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standpipe.contracts import RaggedRows
from standpipe.engine.rows import RowFailed, Sample
from standpipe.source.annotations.shapes import OTHER_SIZE, ShapeReader, in_pixels
from standpipe.source.targets import BOXES, CORNERS, BoxForm, checked_boxes, key_of_target, shown_box
from standpipe.spec import MASKS, SIZE, AnyArray, Int64Array, RaggedSpec
from standpipe.transform.python.values import as_array


def with_instances(sample: Sample, columns: Mapping[str, RaggedSpec], form: BoxForm) -> Sample:
    """Return a sample with its instances as arrays (M, …), which may be in a dict inside it. Boxes are xyxy then.

    With masks, it has points (P, 2) of their shapes, the end of each, (M,), and height and width of those in pixels,
    (M, 2), in a tuple. Both are 0 for polygons, and -1 for what isn't valid.

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
    found: Sample = {name: _column(sample, name, spec, form) for name, spec in columns.items()}
    counts = {name: len(array) for name, array in found.items()}
    if form.instance_masks:
        found[MASKS] = _shapes(sample, form)
        counts["masks"] = len(found[MASKS][1])
    if len({*counts.values()}) > 1:
        raise RowFailed(
            "source", f"the sample has different numbers of {counts}: one instance is one value of each"
        )
    return {**sample, **found}


def _taken(sample: Sample, name: str, wanted: str) -> tuple[str, object]:
    """Take a value out of a sample, and return its key and the value. ``wanted``: other names, and what asks for it."""
    key = key_of_target(name, sample)
    if key is None:
        raise RowFailed(
            "source", f"the sample has no {name!r}, {wanted}; its fields are {', '.join(map(str, sample))}"
        )
    return key, sample.pop(key)


def _column(sample: Sample, name: str, spec: RaggedSpec, form: BoxForm) -> AnyArray:
    """Take the values of all instances, (M, …), out of a sample."""
    key, value = _taken(sample, name, "which instances= names")
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


def _shapes(sample: Sample, form: BoxForm) -> tuple[AnyArray, Int64Array, Int64Array]:
    """Take the shapes of all instances out of a sample, in the form that ``with_instances`` describes."""
    key, value = _taken(sample, MASKS, "'masks' or 'segmentation', which instance_masks=True takes")
    masks = value if isinstance(value, list | tuple) else as_array(value)
    if masks is None or (isinstance(masks, np.ndarray) and not _are_pictures(masks)):
        got = type(value).__name__ if masks is None else f"{masks.shape} {masks.dtype}"
        raise RowFailed(
            "source",
            f"{key!r} must be (M, H, W) of bool or integers, or a list as COCO has it, for M instances, but it is "
            f"{got}. Of one picture (H, W) with instances' numbers make picture == numbers[:, None, None]",
        )
    reader = ShapeReader()
    for each in masks:
        pixels = as_array(each)
        reader.add(each if pixels is None else pixels)
    for number, (kind, text) in reader.faults.items() if form.invalid == "error" else ():
        raise RowFailed("source", f"{kind}: instance {number}{text}")
    shapes, sizes = reader.take()
    sizes[[*reader.faults]] = -1
    return shapes.values, shapes.ends, sizes


def _are_pictures(masks: AnyArray) -> bool:
    return masks.size == 0 or (masks.ndim == 3 and masks.dtype.kind in "biu")


def in_image(sample: Sample, columns: Mapping[str, RaggedSpec], form: BoxForm) -> Sample:
    """Return a finished sample with boxes and shapes in pixels of its image, boxes clipped to it.

    Raises ``RowFailed`` for a wrong box or mask, unless ``form`` says otherwise.
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
    if form.instance_masks:
        points, ends, sizes = sample[MASKS]
        other = ((sizes != size) & (sizes != 0)).any(axis=1)
        for number in np.flatnonzero(other).tolist() if form.invalid == "error" else ():
            height, width = sizes[number]
            raise RowFailed(
                "source",
                f"{OTHER_SIZE}: instance {number}, {width} × {height} pixels, in an image of {size[1]} × {size[0]}",
            )
        dropped |= other
        shapes = RaggedRows(points, ends)
        if form.normalized:
            shapes = in_pixels(shapes, sizes, np.broadcast_to(size, sizes.shape))
        sample = {**sample, MASKS: shapes.take(np.flatnonzero(~dropped))}
    return {**sample, **{name: values[name][~dropped].astype(spec.dtype) for name, spec in columns.items()}}


def without_instances(sample: Sample, columns: Mapping[str, RaggedSpec]) -> Sample:
    """Return a finished sample without its instances."""
    return {name: value for name, value in sample.items() if name not in (*columns, SIZE, MASKS)}
