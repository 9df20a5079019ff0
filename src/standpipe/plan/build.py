"""Make a plan from a description and options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from standpipe.batch.collate import stored_layout
from standpipe.contracts import (
    Device,
    OpenSource,
    PythonSource,
    ReadsRecords,
    StreamSource,
)
from standpipe.device import HostMemory
from standpipe.errors import PlanError
from standpipe.order import AnyOrder, BudgetOrder, Given, Steps
from standpipe.pipeline.description import Description
from standpipe.plan.cache import CachePlan, cache_plan, with_place
from standpipe.plan.fields import (
    bytes_apart,
    composed,
    device_share,
    divided,
    has_encoded,
    has_more_than_slots,
    matters,
    sample_contents,
    slot_layout,
)
from standpipe.plan.instances import instance_fields, instance_plan
from standpipe.plan.memory import (
    ENGINE_BYTES,
    NATIVE_WORKERS,
    PROCESSES,
    READ_BYTES,
    THREADS,
    MemoryForecast,
    Needs,
    Sizes,
    WorkerCost,
    fit,
)
from standpipe.plan.options import LoaderOptions, check_limits, checked_executor, checked_source
from standpipe.plan.order import (
    check_labels,
    labels_to_check,
    order_bytes,
    planned_order,
    steps_of,
    whole_recipe,
)
from standpipe.plan.parts import BatchPlan, MeasuredSample, MemoryPlan, PoolPlan, SamplePlan, Segment
from standpipe.plan.plan import Plan
from standpipe.plan.remote_images import check_fleet
from standpipe.plan.segments import Fields, Parts, first_of, in_segments
from standpipe.plan.whole_frames import largest_frame
from standpipe.spec import ArraySpec, Executor, Labels, LastBatch, Listed, Store
from standpipe.system import machine
from standpipe.system.launcher import of_machine
from standpipe.system.sharing import promised
from standpipe.transform import ComposedKernel, checked, has_compositions, segments_of

MEASURED_LENGTHS = 256  # records whose lengths are looked up
LEAST_PART = 16  # of the free memory, that a loader takes by default whatever others may take yet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """A plan before its memory is divided; ``Plan`` documents the fields."""

    pipeline: Description
    source: OpenSource
    options: LoaderOptions
    order: AnyOrder
    steps: Steps
    executor: Executor
    samples: SamplePlan
    batch: BatchPlan
    segments: tuple[Segment, ...]
    measured: Fields
    cache: CachePlan | None
    device: Device

    @property
    def whole(self) -> bool:
        """True if a function takes the list of a batch's samples."""
        return any(function.collates for function in self.pipeline.batch_functions)


def make_plan(
    pipeline: Description,
    options: LoaderOptions,
    *,
    before: Plan | None = None,
    measured: Sequence[Fields] | None = None,
) -> Plan:
    """Plan a run of a pipeline. ``Pipeline.plan`` documents the errors.

    before    an earlier plan of this pipeline, whose open source and order are used again
    measured  measured shape and dtype of each field of a sample, for each segment; None before the measurement
    """
    _check(pipeline)
    described = _describe(pipeline, options, before, measured)
    budget = _budget(options) if before is None else before.memory.budget_bytes
    cost = _cost(described) if before is None else before.pool.cost
    frame = largest_frame(described.source, pipeline.decoding)
    needs = _needs(described, cost, sum(frame), described.measured)
    alone = described.executor is Executor.INLINE or described.samples.stream is not None
    alone |= options.fleet is not None and options.fleet.fallback != "local"
    cpus = machine.cpu_count(near=described.device.cpus())
    sizes = fit(needs, budget, 1 if alone else options.num_workers, options, cpus=cpus)
    plan = Plan(
        pipeline=described.pipeline,
        source=described.source,
        options=options,
        order=described.order,
        steps=described.steps,
        samples=described.samples,
        batch=described.batch,
        cache=described.cache,
        device=described.device,
        pool=PoolPlan(
            executor=described.executor,
            workers=sizes.workers,
            most_workers=sizes.most_workers,
            cost=cost,
            worker_bytes=sizes.worker,
        ),
        memory=MemoryPlan(
            budget_bytes=budget,
            forecast=_forecast(needs, sizes, frame.decoded),
            slots=sizes.slots,
            most_slots=sizes.most_slots,
            batches_bytes=sizes.batches,
        ),
        recipe=whole_recipe(described.pipeline, described.source),
        segments=described.segments,
    )
    if options.fleet is not None:
        check_fleet(plan)
    return plan


def measured_plan(
    plan: Plan, samples: Sequence[MeasuredSample], record: int | str, cost: WorkerCost | None = None
) -> Plan:
    """Make a plan again after a sample was measured.

    samples  the sample, measured for each segment
    record   number of the sample's record, or text about it
    cost     measured memory of worker processes; None: as in ``plan``

    Raises the errors of ``make_plan``, and ``PlanError`` for a field that transforms leave behind.
    """
    before = plan if cost is None else replace(plan, pool=replace(plan.pool, cost=cost))
    made = make_plan(plan.pipeline, plan.options, before=before, measured=[each.fields for each in samples])
    known_from = f"in record {record}" if isinstance(record, int) else record
    left = [each for sample in samples for each in sample.left]
    suspects = checked(left, partial(matters, plan.pipeline))
    return replace(
        made,
        samples=replace(made.samples, suspects=suspects),
        batch=replace(made.batch, known_from=known_from, measured=tuple(samples)),
        carried=plan.carried,
    )


def _check(pipeline: Description) -> None:
    """Raise ``PlanError`` for faults of a pipeline that don't depend on the source's content."""
    if pipeline.batch_rows is None and pipeline.budget is None:
        raise PlanError(
            "the pipeline has no batch size. Add .batch(batch_size), or .batch(budget=…, length_column=…), before "
            ".loader()"
        )
    checked_source(pipeline.source, "Pipeline")
    segments_of(pipeline.transforms)
    check_limits(pipeline.limits)
    for function in pipeline.batch_functions:
        function.check()


def _describe(
    pipeline: Description,
    options: LoaderOptions,
    before: Plan | None,
    measured: Sequence[Fields] | None,
) -> _Described:
    """Open the source, and plan the order, the samples, the batch and the cache, but no memory."""
    source = pipeline.source.open() if before is None else before.source
    pipeline = with_place(pipeline, source)
    order = planned_order(pipeline, source) if before is None else before.order
    told, labels = labels_to_check(pipeline, source)
    if before is None:
        check_labels(pipeline, source, told)
    steps = steps_of(pipeline, source, order)
    executor = checked_executor(options.executor)
    _check_round_robin(options, order, executor)
    device = HostMemory() if options.device is None else options.device
    rows = _rows(order, steps)

    def parts(part: Description, fields: Fields | None) -> Parts:
        mixes = device.mixes and options.fleet is None  # makers mix, as they know no device
        made = _samples(part, source, executor, device, labels, mixes=mixes, pads=not options.travels)
        return made, _batch(part, source, made, rows, steps.last_batch, fields)

    samples, batch, fields, segments = in_segments(pipeline, device, parts, measured)
    _check_windows(segments)
    if options.executor is None and not _runs_python(pipeline, source, samples):
        executor = Executor.THREAD
    cache = cache_plan(first_of(pipeline), source, samples.program)
    return _Described(
        pipeline=pipeline,
        source=source,
        options=options,
        order=order,
        steps=steps,
        executor=executor,
        samples=samples,
        batch=batch,
        segments=segments,
        measured=fields,
        cache=cache,
        device=device,
    )


def _check_round_robin(options: LoaderOptions, order: AnyOrder, executor: Executor) -> None:
    if options.round_robin and not (
        isinstance(order, Given) and executor is Executor.PROCESS and options.num_workers != "auto"
    ):
        raise PlanError(
            "round_robin=True requires batch(…, batch_sampler=True), executor='process' and an integer for "
            "num_workers"
        )


def _runs_python(pipeline: Description, source: OpenSource, samples: SamplePlan) -> bool:
    """Return True if workers call Python code of the user's: a dataset's, or functions."""
    if samples.program is None:
        return False
    return isinstance(source, PythonSource) or not samples.program.is_native or bool(pipeline.batch_functions)


def _rows(order: AnyOrder, steps: Steps) -> int:
    """Return the largest number of rows in a batch."""
    return order.most_rows if isinstance(order, BudgetOrder | Given) else steps.batch


def _samples(
    pipeline: Description,
    source: OpenSource,
    executor: Executor,
    device: Device,
    labels: tuple[Labels, ...],
    *,
    mixes: bool,
    pads: bool,
) -> SamplePlan:
    kernel, program, finish, mixings = device_share(
        pipeline, source, executor, device, by_sample=bool(labels), mixes=mixes, pads=pads
    )
    composes = has_compositions(pipeline.transforms)
    samples = SamplePlan(
        python=source if isinstance(source, PythonSource) else None,
        stream=source if isinstance(source, StreamSource) else None,
        kernel=kernel,
        program=program,
        labels=labels,
        finish=finish,
        mixings=mixings,
        suspects=(program or divided(pipeline, source)).suspects,
        composed=composed(pipeline, source, executor, by_sample=bool(labels)) if composes else None,
    )
    return replace(samples, instances=instance_plan(pipeline, source, samples))


def _batch(
    pipeline: Description,
    source: OpenSource,
    samples: SamplePlan,
    rows: int,
    last_batch: LastBatch,
    measured: Mapping[str, ArraySpec | Listed] | None,
) -> BatchPlan:
    fields = sample_contents(pipeline, source, samples.kernel, samples.program, measured)
    most, packing = (None, False) if (limit := pipeline.budget) is None else (limit.most, limit.packing)
    native = [] if samples.kernel is None else samples.kernel.reads
    contents = stored_layout(fields, pipeline.collate, rows, most, packing=packing, native=native)
    instances = instance_fields(pipeline, source, samples, rows, contents)
    layout = slot_layout(contents, rows, last_batch, instances)
    return BatchPlan(layout=layout, contents=contents, instances=instances)


def _needs(
    described: _Described,
    cost: WorkerCost,
    frame: int,
    measured: Mapping[str, ArraySpec | Listed],
) -> Needs:
    pipeline, source, batch = described.pipeline, described.source, described.batch
    rows, whole = batch.layout.rows, described.whole
    read = source.record_bytes if isinstance(source, ReadsRecords) else 0
    masks = 0 if batch.instances is None or batch.instances.masks is None else batch.instances.masks.apart
    return Needs(
        slot=batch.layout.stride_bytes,
        rows=rows,
        waiting=batch.layout.waiting_bytes,
        apart=rows * (read + bytes_apart(measured if whole else batch.contents, whole=whole) + masks),
        index=source.index_bytes + order_bytes(described.order),
        cost=cost,
        cache=0 if described.cache is None else described.cache.memory_bytes(),
        window=max((each.window for each in _composed(described)), default=0),
        frame_of_row=max((each.bytes_of_row for each in _composed(described)), default=0),
        whole=whole or described.options.round_robin,
        makers=0 if (fleet := described.options.fleet) is None else fleet.makers,
        side=has_encoded(source)
        or (
            described.executor is Executor.PROCESS
            and (bool(batch.made_apart) or has_more_than_slots(pipeline, batch.contents))
        ),
        frame=frame,
        fetched=rows * _fetched_bytes(source) if is_remote(source) else 0,
    )


def is_remote(source: OpenSource) -> bool:
    """Return True if the records of a source are behind URLs. A source of yours may have a ``store`` of its own."""
    return isinstance(getattr(source, "store", None), Store)


def _fetched_bytes(source: OpenSource) -> int:
    """Return the mean length of a record's encoded fields together, of some records of the whole source."""
    indices = np.linspace(0, source.num_records - 1, min(source.num_records, MEASURED_LENGTHS)).astype(
        np.int64
    )
    files = source.locate(indices).files.values()
    return 1 + int(sum(np.maximum(each.length, 0).mean() for each in files))


def _check_windows(segments: Sequence[Segment]) -> None:
    """Raise ``PlanError`` if rows are made of images of earlier steps, which may have another size."""
    kernels: dict[int, ComposedKernel] = {}
    for segment in segments:
        if (composed := segment.samples.composed) is None or not composed.window:
            continue
        first = kernels.setdefault(segment.first_epoch, composed)
        if first.frames != composed.frames:
            raise PlanError(
                "with sp.PerStep in front of a mosaic, images of earlier rows have other sizes: give partners='batch' "
                "or partners='any', or only RandomAffine(size=sp.PerStep(…))"
            )


def _composed(described: _Described) -> list[ComposedKernel]:
    """Return the kernels of rows that are made of several images, of all segments."""
    parts = [described.samples, *(each.samples for each in described.segments)]
    return [each.composed for each in parts if each.composed is not None]


def _budget(options: LoaderOptions) -> int:
    """Return the memory budget in bytes: ``memory=``, or a default.

    The default is half of the memory that is free and promised to no other loader, divided equally among the
    processes that a launcher has started on this machine.
    """
    if (given := options.bytes_of("memory")) is not None:
        return given
    left = machine.memory_left()
    _, processes = of_machine(os.environ)
    spare = min(free - promised(pool) for pool, free in left.items())
    return max(spare // 2, min(left.values()) // LEAST_PART) // processes


def _forecast(needs: Needs, sizes: Sizes, frame: int) -> MemoryForecast:
    return MemoryForecast(
        process=max(machine.process_memory_bytes() - needs.index, 0),
        index=needs.index,
        slots=sizes.slots * needs.slot,
        waiting=needs.batches(sizes.slots) - sizes.slots * needs.slot,
        workers=needs.cost.of(sizes.most_workers),
        read_ahead=sizes.read_ahead,
        cache=needs.cache,
        frames=needs.frames(sizes.slots),
        engine=ENGINE_BYTES,
        side=sizes.side,
        whole=min(sizes.most_workers * frame, sizes.side),
        fetch=needs.fetch,
    )


def _cost(described: _Described) -> WorkerCost:
    """Return the memory of a worker. A Python worker also has an encoded image, and two where reads may be hedged."""
    if described.samples.program is None:
        cost = replace(NATIVE_WORKERS, images=has_encoded(described.source))
        for each in _composed(described):
            more = each.memory_bytes(described.pipeline.decoding)
            cost = replace(cost, each=max(cost.each, NATIVE_WORKERS.each + more), slots=2)
    else:
        cost = PROCESSES if described.executor is Executor.PROCESS else THREADS
        if has_encoded(described.source):
            reads = 1 if described.options.reads.hedge_after_s is None else 2
            cost = replace(cost, each=cost.each + READ_BYTES * reads)
    return cost if described.cache is None else described.cache.of_worker(cost)
