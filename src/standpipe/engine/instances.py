"""Move the instances of a batch where their images' pixels went, and write them into its slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standpipe.batch.collate import Shape, SlotOverflow
from standpipe.batch.instances import ORIG_SIZE, TO_ORIGINAL, InstanceFields
from standpipe.contracts import RaggedRows, Records
from standpipe.engine.workers import Assignment, Failure
from standpipe.source.targets import BOXES, KEYPOINTS
from standpipe.spec import SIZE, AnyArray, Int64Array, UInt8Array
from standpipe.transform.instances import mirrored, moved_boxes, moved_points, to_stored, whole_areas

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
    return Records(indices, ragged=ragged, sizes=np.array(lists[SIZE], np.int64))


def put_instances(
    plan: Plan, assignment: Assignment, slot: UInt8Array
) -> tuple[dict[str, Shape], list[Failure]]:
    """Write the instances of a batch into its slot.

    slot  the slot's memory

    Return the shapes of fields that differ from batch to batch, and the rows whose instances don't fit.
    """
    form, traced, at = plan.batch.instances, assignment.traced, assignment.at
    how = plan.samples_at(at).instances
    if form is None or traced is None or how is None:
        return {}, []
    try:
        values = instance_values(form, traced, how)
    except SlotOverflow as error:
        return {}, [Failure(error.row, "batch", error.reason)]
    shapes = {name: values[name].shape for name in form.regions}
    fields = {**assignment.views, **plan.layout_at(at).shaped(slot, shapes)}
    for name, value in values.items():
        fields[name][...] = value
    return shapes, []


def instance_values(form: InstanceFields, traced: Traced, how: InstancePlan) -> dict[str, AnyArray]:
    """Return the fields of rows that come from instances. Raises ``SlotOverflow`` if those of a row don't fit."""
    values: dict[str, AnyArray] = {ORIG_SIZE: traced.sizes}
    for image, prefix in form.prefixes.items():
        moves, parts = traced.moves[image], traced.parts
        found = moved_instances(traced.instances, moves, how, how.filters[image])
        if parts is not None:
            found = {name: RaggedRows(each.values, each.ends[parts[1:] - 1]) for name, each in found.items()}
            moves = moves[parts[:-1]]
        values |= form.values(image, found)
        values[prefix + TO_ORIGINAL] = to_stored(moves)
    return values


def moved_instances(
    instances: Mapping[str, RaggedRows],
    moves: Moves,
    how: InstancePlan,
    drops: SanitizeBoundingBoxes | None,
) -> dict[str, RaggedRows]:
    """Return the instances of the rows as they are in the rows' images, without those that ``drops`` drops."""
    ends = instances[BOXES].ends
    counts = np.diff(ends, prepend=0)
    rows = np.repeat(np.arange(len(counts)), counts)
    values: dict[str, AnyArray] = {name: each.values for name, each in instances.items()}
    stored = values[BOXES]
    boxes = moved_boxes(stored, rows, moves).astype(np.float32)
    values[BOXES] = boxes
    if KEYPOINTS in values:
        points = moved_points(values[KEYPOINTS], rows, moves)
        values[KEYPOINTS] = _sides_swapped(points, mirrored(moves)[rows], how.pairs)
    if drops is not None:
        of = drops.visibility_of if drops.min_visibility > 0 else None
        whole = None if of is None else whole_areas(stored, rows, moves, of=of)
        kept = drops.keeps(boxes, whole)
        values = {name: each[kept] for name, each in values.items()}
        ends = np.cumsum(np.bincount(rows[kept], minlength=len(counts)))
    return {name: RaggedRows(each, ends) for name, each in values.items()}


def _sides_swapped(
    points: NDArray[np.float32], turned: NDArray[np.bool_], pairs: tuple[tuple[int, int], ...]
) -> NDArray[np.float32]:
    """Return points (n, K, 3) with left and right ones swapped where ``turned``, (n,), is True."""
    order = np.arange(points.shape[1])
    for left, right in pairs:
        order[[left, right]] = right, left
    return np.where(turned[:, None, None], points[:, order], points)
