"""Move the instances of a batch where their images' pixels went, and write them into its slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standpipe.batch.collate import Shape, SlotOverflow
from standpipe.batch.instances import ORIG_SIZE, TO_ORIGINAL, InstanceFields
from standpipe.batch.masks import DrawnMasks
from standpipe.contracts import RaggedRows, Records
from standpipe.engine.workers import Assignment, Failure
from standpipe.source.targets import BOXES, KEYPOINTS
from standpipe.spec import MASKS, SIZE, AnyArray, Int64Array, UInt8Array
from standpipe.transform.instances import mirrored, moved_boxes, moved_points, to_stored, whole_areas
from standpipe.transform.shapes import left_over, moved_shapes

if TYPE_CHECKING:
    from standpipe.engine.moves import Moves, Traced
    from standpipe.plan.parts import InstancePlan
    from standpipe.plan.plan import Plan
    from standpipe.transform.pixels.instances import SanitizeBoundingBoxes


def instances_of(plan: Plan, lists: Mapping[str, list[Any]], indices: Int64Array) -> Records:
    """Return the instances of rows, and the sizes of their images, as workers handed them over."""
    assert plan.batch.instances is not None
    ends = np.cumsum([len(boxes) for boxes in lists[BOXES]])
    columns = plan.batch.instances.columns
    ragged = {name: RaggedRows(np.concatenate(lists[name]), ends) for name in columns}
    shapes = RaggedRows.merged(lists[MASKS], np.arange(ends[-1])) if plan.batch.instances.masks else None
    return Records(indices, ragged=ragged, sizes=np.array(lists[SIZE], np.int64), shapes=shapes)


@dataclass(frozen=True, slots=True)
class Moved:
    """The instances of rows as they are in one image of each row.

    columns  their values by name
    shapes   their shapes; None without any
    layers   that of each, as in ``Traced``; None if nothing is pasted
    """

    columns: Mapping[str, RaggedRows]
    shapes: RaggedRows | None
    layers: Int64Array | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """The instances of a batch that were put into its slot.

    shapes    shapes of the fields that differ from batch to batch
    lists     fields that aren't in the slot, with a value for each row
    failures  the rows whose instances don't fit
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    lists: Mapping[str, list[Any]] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


def put_instances(plan: Plan, assignment: Assignment, slot: UInt8Array, pictures: Mapping[str, Shape]) -> Put:
    """Write the instances of a batch into its slot.

    slot      the slot's memory
    pictures  shapes of the images that are padded to the largest of the batch
    """
    form, traced, at = plan.batch.instances, assignment.traced, assignment.at
    how, layout = plan.samples_at(at).instances, plan.layout_at(at)
    if form is None or traced is None or how is None:
        return Put()
    moved = {
        image: moved_instances(traced, traced.moves[image], how, how.filters[image])
        for image in form.prefixes
    }
    try:
        values = instance_values(form, traced, moved)
    except SlotOverflow as error:
        return Put(failures=[Failure(error.row, "batch", error.reason)])
    shapes = {name: values[name].shape for name in form.regions if name in values}
    fields = {**assignment.views, **layout.shaped(slot, shapes)}
    for name, value in values.items():
        fields[name][...] = value
    lists: dict[str, list[Any]] = {}
    for image, each in moved.items():
        if form.masks is None or each.shapes is None:
            continue
        name, sizes = form.prefixes[image] + MASKS, traced.of_rows(image)[:, -1, 9:11].astype(np.int64)
        masks = DrawnMasks(form.masks, form.length, each.shapes, each.columns[BOXES].ends, each.layers)
        if name in form.listed:
            lists[name] = masks.by_row(sizes)
        else:
            shapes[name] = masks.shape(form.masks.sides_of(sizes, pictures.get(image)))
            masks.draw(layout.shaped(slot, {name: shapes[name]})[name])
    return Put(shapes, lists)


def instance_values(form: InstanceFields, traced: Traced, moved: Mapping[str, Moved]) -> dict[str, AnyArray]:
    """Return the fields of rows that come from instances, except masks.

    moved  the instances in each image

    Raises ``SlotOverflow`` if those of a row don't fit.
    """
    values: dict[str, AnyArray] = {ORIG_SIZE: traced.sizes}
    for image, prefix in form.prefixes.items():
        values |= form.values(image, moved[image].columns)
        values[prefix + TO_ORIGINAL] = to_stored(traced.of_rows(image))
    return values


def moved_instances(
    traced: Traced, moves: Moves, how: InstancePlan, drops: SanitizeBoundingBoxes | None
) -> Moved:
    """Return the instances of the rows as they are in an image of each, without those that ``drops`` drops."""
    ends = traced.instances[BOXES].ends
    counts = np.diff(ends, prepend=0)
    rows = np.repeat(np.arange(len(counts)), counts)
    values: dict[str, AnyArray] = {name: each.values for name, each in traced.instances.items()}
    stored, shapes = values[BOXES], traced.shapes
    boxes = moved_boxes(stored, rows, moves).astype(np.float32)
    if shapes is not None:
        inside = np.asarray(np.all(boxes[:, 2:] > boxes[:, :2], axis=1))
        shapes, hulls = moved_shapes(shapes.where(inside), rows, moves)
        boxes = hulls if how.boxes_from_shapes else boxes
    layers = None if traced.layers is None else traced.layers[rows]
    if layers is not None and shapes is not None:
        boxes = left_over(boxes, shapes, layers, moves[rows, -1, 9:11].astype(np.int64))
    values[BOXES] = boxes
    if KEYPOINTS in values:
        points = moved_points(values[KEYPOINTS], rows, moves)
        values[KEYPOINTS] = _sides_swapped(points, mirrored(moves)[rows], how.pairs)
    if drops is not None:
        whole = None
        if drops.min_visibility > 0:
            whole = whole_areas(stored, rows, moves, of=drops.visibility_of)
            if how.boxes_from_shapes and traced.shapes is not None and drops.visibility_of == "source":
                hulls = moved_shapes(traced.shapes, rows, moves, cut=False)[1].astype(np.float64)
                whole = np.asarray((hulls[:, 2:] - hulls[:, :2]).prod(axis=1))
        kept = drops.keeps(boxes, whole)
        values = {name: each[kept] for name, each in values.items()}
        shapes = None if shapes is None else shapes.take(np.flatnonzero(kept))
        layers = None if layers is None else layers[kept]
        ends = np.cumsum(np.bincount(rows[kept], minlength=len(counts)))
    if traced.parts is not None:
        ends = ends[traced.parts[1:] - 1]
    return Moved({name: RaggedRows(each, ends) for name, each in values.items()}, shapes, layers)


def _sides_swapped(
    points: NDArray[np.float32], turned: NDArray[np.bool_], pairs: tuple[tuple[int, int], ...]
) -> NDArray[np.float32]:
    """Return points (n, K, 3) with left and right ones swapped where ``turned``, (n,), is True."""
    order = np.arange(points.shape[1])
    for left, right in pairs:
        order[[left, right]] = right, left
    return np.where(turned[:, None, None], points[:, order], points)
