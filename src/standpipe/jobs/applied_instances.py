"""Move boxes and other values of instances with the images that ``Pipeline.apply`` is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standpipe.batch.collate import SlotOverflow
from standpipe.batch.instances import ORIG_SIZE, TO_ORIGINAL, InstanceFields
from standpipe.contracts import RaggedRows, Records
from standpipe.engine.instances import instance_values, moved_instances
from standpipe.engine.moves import Tracer
from standpipe.errors import PlanError, TransformError
from standpipe.order import Cursor
from standpipe.pipeline.description import Description
from standpipe.plan.instances import check_pairs, filters_of, instance_transforms
from standpipe.plan.parts import InstancePlan
from standpipe.source.annotations.listing import AnnotationSource
from standpipe.source.targets import BOXES, FORMS, KEYPOINTS
from standpipe.spec import MASKS, AnyArray, ArraySpec, Int64Array, RaggedSpec
from standpipe.transform import IMAGE, NativeKernel, field_of_view
from standpipe.transform.instances import to_stored

GIVEN_FORMS = {**FORMS, KEYPOINTS: ArraySpec((-1, 3), np.dtype(np.float32))}

Columns = Mapping[str, RaggedRows]


def has_instances(pipeline: Description) -> bool:
    """Return True if a pipeline's description says that its images have instances, without opening its source."""
    return (
        isinstance(pipeline.source, AnnotationSource)
        or getattr(pipeline.source, "instances", None) is not None
        or pipeline.instances is not None
        or bool(instance_transforms(pipeline.transforms))
    )


def given_instances(given: Mapping[str, Sequence[Any]], count: int) -> Columns:
    """Return the values of the instances of ``count`` images. Raises ``PlanError`` for values of other shapes.

    given  a value for each image, (M, …), by field
    """
    found: dict[str, RaggedRows] = {}
    if MASKS in given:
        raise PlanError(
            f"apply() can't move {MASKS!r}: leave them out, or give them as images of the kind masks"
        )
    for name, values in given.items():
        if len(values) != count:
            raise PlanError(f"apply() got {count} images, and {name!r} of {len(values)}")
        spec = GIVEN_FORMS.get(name)
        shape, dtype = (None, None) if spec is None else (spec.shape, spec.dtype)
        try:
            arrays = [np.asarray(value, dtype) for value in values]
            filled = [
                each.reshape(each.shape if shape is None else (len(each), *shape))
                for each in arrays
                if len(each)
            ]
            nothing = np.zeros((0, *(max(side, 0) for side in shape or ())), dtype)
            whole = np.concatenate(filled or [nothing])
            if whole.dtype.kind not in "biuf":
                raise TypeError(f"got {whole.dtype}")
        except (TypeError, ValueError) as error:
            form = "" if shape is None else f", of the shape {('M', *shape)}"
            raise PlanError(f"apply() takes arrays of numbers for {name!r}{form}: {error}") from None
        found[name] = RaggedRows(whole, np.cumsum([len(each) for each in arrays]))
    if BOXES in found:
        _check_boxes(found[BOXES])
    for name, column in found.items():
        if (wrong := np.flatnonzero(column.ends != found[BOXES].ends)).size:
            raise PlanError(
                f"apply(): {name!r} of input {wrong[0]} has another number of instances than 'boxes'"
            )
    return found


def _check_boxes(boxes: RaggedRows) -> None:
    """Raise ``PlanError`` for a box that is none, with the number of its image."""
    edges = boxes.values.astype(np.float64)
    valid = np.isfinite(edges).all(axis=1) & (edges[:, 2:] >= edges[:, :2]).all(axis=1)
    if not valid.all():
        image = int(np.searchsorted(boxes.ends, int(np.argmin(valid)), "right"))
        raise PlanError(
            f"apply(): a box of input {image} isn't finite, or ends before it begins; boxes are xyxy"
        )


def applied_instances(
    pipeline: Description, kernel: NativeKernel, sizes: Int64Array, columns: Columns
) -> dict[str, AnyArray]:
    """Return the fields of a batch that come from instances; without ``columns`` those that lead back only.

    kernel  the kernel that made the images
    sizes   (rows, 2) heights and widths of the given images
    """
    rows = np.arange(len(sizes))
    traced = Tracer(pipeline, [[kernel]]).trace(
        Cursor(), Records(rows, ragged=columns, sizes=sizes), rows, 0 * rows
    )
    filters = filters_of(pipeline.transforms, IMAGE.name)
    prefixes = {image: field_of_view(image, "", IMAGE.name) for image in filters}
    if not columns:
        back = {prefixes[image] + TO_ORIGINAL: to_stored(traced.moves[image]) for image in filters}
        return {ORIG_SIZE: sizes, **back}
    pairs = pipeline.decoding.pictures.flip_pairs
    if KEYPOINTS in columns:
        check_pairs(pairs, columns[KEYPOINTS].values.shape[1], pipeline.transforms)
    specs = {name: RaggedSpec(each.values.shape[1:], each.values.dtype) for name, each in columns.items()}
    form = InstanceFields(specs, prefixes, len(rows), int(columns[BOXES].ends[-1]), pipeline.instances)
    how = InstancePlan(filters=filters, pairs=pairs or ())
    moved = {
        image: moved_instances(traced, traced.moves[image], how, drops) for image, drops in filters.items()
    }
    try:
        return instance_values(form, traced, moved)
    except SlotOverflow as error:
        raise TransformError(error.reason, place="batch", index=error.row) from None
