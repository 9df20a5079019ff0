"""From a description and options to a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from standpipe.batch import placed
from standpipe.contracts import (
    Encoded,
    OpenSource,
    PythonSource,
    ReadsRecords,
    StreamSource,
)
from standpipe.device import HostMemory
from standpipe.errors import PlanError
from standpipe.order import Batches, Given
from standpipe.pipeline.pipeline import Pipeline
from standpipe.plan.cache import cache_plan, with_place
from standpipe.plan.fields import bytes_apart, device_share, has_more_than_slots, sample_contents, slot_layout
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
    bytes_of,
    check_labels,
    labels_to_check,
    planned_order,
    steps_of,
    whole_recipe,
)
from standpipe.plan.plan import Plan
from standpipe.plan.whole_frames import largest_frame
from standpipe.spec import Executor, Listed, Reads, Spec
from standpipe.system import machine
from standpipe.system.launcher import of_machine
from standpipe.system.sharing import promised
from standpipe.transform import (
    SampleProgram,
)

LEAST_PART = 16  # of the free memory, that a loader takes by default whatever others may take yet


def make_plan(
    pipeline: Pipeline,
    options: LoaderOptions,
    *,
    before: Plan | None = None,
    measured: Mapping[str, Spec | Listed] | None = None,
) -> Plan:
    """``Pipeline.plan`` says what it raises.

    before    a plan of this pipeline: its source is open, and its order stays
    measured  what the fields of a sample look like, once that is known
    """
    if pipeline.rows is None and pipeline.budget is None:
        raise PlanError("the pipeline has no batch size: add .batch(rows), or .batch(budget=…, by=…)")
    checked_source(pipeline.source, "Pipeline")
    check_limits(pipeline.limits)
    for function in pipeline.batch_functions:
        function.check()
    source = pipeline.source.open() if before is None else before.source
    pipeline = with_place(pipeline, source)
    order = planned_order(pipeline, source) if before is None else before.order
    told, labels = labels_to_check(pipeline, source)
    if before is None:
        check_labels(pipeline, source, told)
    steps = steps_of(pipeline, source, order)
    rows = order.most_rows if isinstance(order, Batches | Given) else steps.batch
    executor = checked_executor(options.executor)
    if options.in_turn and not (
        isinstance(order, Given) and executor is Executor.PROCESS and options.workers != "auto"
    ):
        raise PlanError("in_turn=True takes batch(…, given=True), executor='process' and a number of workers")
    device = HostMemory() if options.device is None else options.device
    kernel, program, finish, mixings = device_share(
        pipeline, source, executor, device, by_sample=bool(labels)
    )
    if program is None and options.executor is None:
        executor = Executor.THREAD  # native ones
    cache = cache_plan(pipeline, source, program)
    samples = sample_contents(pipeline, source, kernel, program, measured)
    most = None if pipeline.budget is None else pipeline.budget.most
    contents = placed(samples, pipeline.collate, rows, most)
    layout = slot_layout(contents, rows, steps.tail)
    budget = _budget(options) if before is None else before.memory_bytes
    whole = any(function.samples for function in pipeline.batch_functions)
    python = source if isinstance(source, PythonSource) else None
    stream = source if isinstance(source, StreamSource) else None
    alone = executor is Executor.INLINE or stream is not None
    asked = 1 if alone else options.workers
    cost = _cost(executor, program, source, options.reads) if before is None else before.cost
    if cache is not None and before is None:
        cost = cache.of_worker(cost)
    frame = largest_frame(source, pipeline.decoding)
    read = source.record_bytes if isinstance(source, ReadsRecords) else 0
    needs = Needs(
        slot=layout.stride_bytes,
        rows=rows,
        waiting=layout.waiting_bytes,
        apart=rows * (read + bytes_apart((measured or {}) if whole else contents, whole=whole)),
        index=source.index_bytes + bytes_of(order),
        cost=cost,
        frames=0 if pipeline.gpu is None else 2 * pipeline.gpu.frame_bytes,
        cache=0 if cache is None else cache.memory_bytes(),
        whole=whole or options.in_turn,
        side=any(isinstance(spec, Encoded) for spec in source.fields.values())
        or (executor is Executor.PROCESS and has_more_than_slots(pipeline, contents)),
        frame=sum(frame),
    )
    sizes = fit(needs, budget, asked, options, cpus=machine.cpu_count(near=device.cpus()))
    return Plan(
        pipeline=pipeline,
        source=source,
        python=python,
        stream=stream,
        order=order,
        steps=steps,
        kernel=kernel,
        program=program,
        layout=layout,
        contents=contents,
        options=options,
        executor=executor,
        cost=cost,
        workers=sizes.workers,
        most_workers=sizes.most_workers,
        depth=sizes.depth,
        most_slots=sizes.most_slots,
        memory_bytes=budget,
        forecast=_forecast(needs, sizes, frame.decoded),
        worker_bytes=sizes.worker,
        batches_bytes=sizes.batches,
        labels=labels,
        device=device,
        finish=finish,
        mixings=mixings,
        cache=cache,
        recipe=whole_recipe(pipeline, source),
    )


def measured_plan(
    plan: Plan, fields: Mapping[str, Spec | Listed], record: int, cost: WorkerCost | None = None
) -> Plan:
    """The plan again, with what was measured at the start. Raises as ``make_plan`` does.

    fields  of a sample
    record  its number
    cost    memory of worker processes
    """
    before = plan if cost is None else replace(plan, cost=cost)
    made = make_plan(plan.pipeline, plan.options, before=before, measured=fields)
    return replace(made, known_from=f"in record {record}")


def _budget(options: LoaderOptions) -> int:
    """The ceiling. By default half of what is free and promised to no other loader, in equal parts for the processes
    that a launcher has started on this machine.
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
        slots=sizes.depth * needs.slot,
        waiting=needs.batches(sizes.depth) - sizes.depth * needs.slot,
        workers=needs.cost.of(sizes.workers),
        read_ahead=sizes.read_ahead,
        frames=needs.frames,
        cache=needs.cache,
        engine=ENGINE_BYTES,
        side=sizes.side,
        whole=min(sizes.workers * frame, sizes.side),
    )


def _cost(executor: Executor, program: SampleProgram | None, source: OpenSource, reads: Reads) -> WorkerCost:
    """What a worker takes; in Python with the files that it reads, of which a hedged read has two."""
    if program is None:
        return NATIVE_WORKERS
    cost = PROCESSES if executor is Executor.PROCESS else THREADS
    if not any(isinstance(spec, Encoded) for spec in source.fields.values()):
        return cost
    return replace(cost, each=cost.each + READ_BYTES * (1 if reads.hedge_after_s is None else 2))
