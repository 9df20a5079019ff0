"""Divide the epochs of a run where scheduled parameters of transforms change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from standpipe.batch.layout import SlotLayout
from standpipe.contracts import Device
from standpipe.errors import PlanError
from standpipe.pipeline.description import Description
from standpipe.plan.parts import BatchPlan, SamplePlan, Segment
from standpipe.spec import ArraySpec, Layout, Listed
from standpipe.transform import NativeStep, at_epoch, first_epochs, is_scheduled

Fields = Mapping[str, ArraySpec | Listed]
Parts = tuple[SamplePlan, BatchPlan]


def first_of(pipeline: Description) -> Description:
    """Return the pipeline as it is in epoch 0. Raises ``PlanError`` for a cache behind a schedule."""
    if pipeline.cached is not None and not pipeline.cached.cache.is_off:
        for transform in pipeline.transforms[: pipeline.cached.after]:
            if is_scheduled(transform):
                raise PlanError(
                    f"cache() after {transform.describe()} would keep the images of one epoch's parameters. Put "
                    "cache() before the transform with the Schedule, such as right after the source"
                )
    return _at(pipeline, 0)


def in_segments(
    pipeline: Description,
    device: Device,
    parts: Callable[[Description, Fields | None], Parts],
    measured: Sequence[Fields] | None,
) -> tuple[SamplePlan, BatchPlan, Fields, tuple[Segment, ...]]:
    """Plan each segment of a pipeline; return the parts with the largest slots, their fields, and all segments.

    parts     plans samples and batches of a pipeline without schedules, given the measured fields of a sample
    measured  these fields, for each segment; None before the measurement

    Raises ``PlanError`` if batches of two segments differ in more than shapes, or a device can't follow.
    """
    starts = first_epochs(pipeline.transforms)
    first_of(pipeline)
    if not starts:
        (fields,) = measured or (None,)
        return *parts(pipeline, fields), fields or {}, ()
    found: Sequence[Fields | None] = measured or [None] * len(starts)
    made = [parts(_at(pipeline, start), fields) for start, fields in zip(starts, found, strict=True)]
    batches = [batch for _, batch in made]
    _check_alike(made)
    _check_device(device, made)
    room = {
        name: max(batch.layout.fields[name].row_bytes for batch in batches)
        for name in batches[0].layout.fields
    }
    segments = tuple(
        Segment(first_epoch=start, samples=samples, layout=replace(batch.layout, room=room))
        for start, (samples, batch) in zip(starts, made, strict=True)
    )
    largest = max(range(len(made)), key=lambda number: batches[number].layout.slot_bytes)
    samples, batch = made[largest]
    return samples, replace(batch, layout=segments[largest].layout), found[largest] or {}, segments


def _at(pipeline: Description, epoch: int) -> Description:
    """Return the pipeline with the parameters that its transforms have in an epoch."""
    if not any(map(is_scheduled, pipeline.transforms)):
        return pipeline
    return replace(pipeline, transforms=at_epoch(pipeline.transforms, epoch))


def _check_alike(made: Sequence[Parts]) -> None:
    """Raise ``PlanError`` if batches differ in more than the shapes of fields in the slot."""
    first, *others = (_fixed(*parts) for parts in made)
    for other in others:
        if other != first:
            name = next(name for name in {**first, **other} if first.get(name) != other.get(name))
            raise PlanError(
                f"with Schedule, the field {name!r} is {_said(first, name)} in one epoch and {_said(other, name)} in "
                "another. Only sizes may change by epoch: give ToDtype, ToLayout and collate= one value for all epochs"
            )


def _fixed(samples: SamplePlan, batch: BatchPlan) -> Mapping[str, object]:
    """Return what must be the same in all epochs, by field name: dtype and order of axes, or the whole form."""
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
    """Raise ``PlanError`` if a device can't deliver batches that change by epoch as these do."""
    (first, batch), *others = made
    if device.same_shapes and any(other.layout.fields != batch.layout.fields for _, other in others):
        raise PlanError(
            "static_buffers=True needs batches of one shape, and a Schedule changes it. Leave out static_buffers, or "
            "use one loader for each size"
        )
    if first.finish is None or device.writes(first.finish) is not None:
        return  # kernels convert bytes to numbers, each with the table of its epoch
    tables = [samples.finish.table for samples, _ in made if samples.finish is not None]
    if not all(np.array_equal(table, tables[0]) for table in tables):
        raise PlanError(
            "Normalize can't have a Schedule where the device normalizes images. Give it one value, or use device='cpu'"
        )


def layouts(segments: Sequence[Segment], layout: SlotLayout) -> tuple[tuple[int, SlotLayout], ...]:
    """Return the first epoch and the layout of each segment; ``layout`` from epoch 0 on if there is none."""
    return tuple((each.first_epoch, each.layout) for each in segments) or ((0, layout),)
