"""Divide a run into segments, in which the parameters of transforms keep their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from standpipe.contracts import Device
from standpipe.errors import PlanError
from standpipe.pipeline.description import Description
from standpipe.plan.parts import BatchPlan, SamplePlan, Segment
from standpipe.spec import ArraySpec, Layout, Listed
from standpipe.transform import NativeStep, is_scheduled, segments_of

Fields = Mapping[str, ArraySpec | Listed]
Parts = tuple[SamplePlan, BatchPlan]


def first_of(pipeline: Description) -> Description:
    """Return the first segment's pipeline. Raises ``PlanError`` for a cache behind one that changes."""
    if pipeline.cached is not None and not pipeline.cached.cache.is_off:
        for transform in pipeline.transforms[: pipeline.cached.after]:
            if is_scheduled(transform):
                raise PlanError(
                    f"cache() after {transform.describe()} would keep the images of one value of its parameters. "
                    "Put cache() before the transform with the Schedule or PerStep, such as right after the source"
                )
    return _segments(pipeline)[0][1]


def in_segments(
    pipeline: Description,
    device: Device,
    parts: Callable[[Description, Fields | None], Parts],
    measured: Sequence[Fields] | None,
) -> tuple[SamplePlan, BatchPlan, Fields, tuple[Segment, ...]]:
    """Plan each segment of a pipeline; return the parts with the largest slots, their fields, and all segments.

    parts     plans samples and batches of a pipeline of one segment, given the measured fields of a sample
    measured  these fields, for each segment; None before the measurement

    Raises ``PlanError`` if batches of two segments differ in more than shapes, or a device can't follow.
    """
    first_of(pipeline)
    if not any(map(is_scheduled, pipeline.transforms)):
        (fields,) = measured or (None,)
        return *parts(pipeline, fields), fields or {}, ()
    divided = _segments(pipeline)
    found: Sequence[Fields | None] = measured or [None] * len(divided)
    made = [parts(part, fields) for (_, part), fields in zip(divided, found, strict=True)]
    batches = [batch for _, batch in made]
    _check_alike(made)
    _check_device(device, made)
    room = {
        name: max(batch.layout.fields[name].row_bytes for batch in batches)
        for name in batches[0].layout.fields
    }
    segments = tuple(
        Segment(first_epoch=start, samples=samples, layout=replace(batch.layout, room=room))
        for (start, _), (samples, batch) in zip(divided, made, strict=True)
    )
    largest = max(range(len(made)), key=lambda number: batches[number].layout.slot_bytes)
    samples, batch = made[largest]
    return samples, replace(batch, layout=segments[largest].layout), found[largest] or {}, segments


def _segments(pipeline: Description) -> list[tuple[int, Description]]:
    """Return the first epoch of each segment, and the pipeline with the parameters of that segment."""
    return [
        (start, replace(pipeline, transforms=transforms))
        for start, transforms in segments_of(pipeline.transforms)
    ]


def _check_alike(made: Sequence[Parts]) -> None:
    """Raise ``PlanError`` if batches differ in more than the shapes of fields in the slot."""
    first, *others = (_fixed(*parts) for parts in made)
    for other in others:
        if other != first:
            name = next(name for name in {**first, **other} if first.get(name) != other.get(name))
            raise PlanError(
                f"with Schedule or PerStep, the field {name!r} is {_said(first, name)} in one epoch or step and "
                f"{_said(other, name)} in another. Only sizes may change: give ToDtype, ToLayout and collate= one value"
            )


def _fixed(samples: SamplePlan, batch: BatchPlan) -> Mapping[str, object]:
    """Return what must be the same in all segments, by field name: dtype and order of axes, or the whole form."""
    layouts = _layouts(samples)
    forms: dict[str, object] = {}
    for name, how in {**batch.contents, **batch.layout.fields}.items():
        forms[name] = how
        if isinstance(how, ArraySpec):
            order = f", {layouts[name].value}" if name in layouts else ""
            forms[name] = f"{len(how.shape)}-dimensional {how.dtype}{order}"
    return forms


def _layouts(samples: SamplePlan) -> Mapping[str, Layout]:
    """Return the order of axes of each field that a native kernel is known to make, by name."""
    steps = () if samples.program is None else samples.program.steps
    kernels = [samples.kernel, *(step.kernel for step in steps if isinstance(step, NativeStep))]
    layouts = {head.field: head.layout for kernel in kernels if kernel is not None for head in kernel.heads}
    return layouts if samples.finish is None else {**layouts, "image": samples.finish.layout}


def _said(forms: Mapping[str, object], name: str) -> str:
    return str(forms.get(name, "absent"))


def _check_device(device: Device, made: Sequence[Parts]) -> None:
    """Raise ``PlanError`` if a device can't deliver batches that change as these do."""
    (first, batch), *others = made
    if device.same_shapes and any(other.layout.fields != batch.layout.fields for _, other in others):
        raise PlanError(
            "static_buffers=True needs batches of one shape, and a Schedule or PerStep changes it. Leave out "
            "static_buffers, or use one loader for each size"
        )
    if first.finish is None or device.writes(first.finish) is not None:
        return  # kernels convert bytes to numbers, each with the table of its segment
    tables = [samples.finish.table for samples, _ in made if samples.finish is not None]
    if not all(np.array_equal(table, tables[0]) for table in tables):
        raise PlanError(
            "Normalize can't have a Schedule where the device normalizes images. Give it one value, or use device='cpu'"
        )
