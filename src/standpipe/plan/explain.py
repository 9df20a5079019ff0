"""The text of ``Plan.explain()``."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, assert_never

import numpy as np

from standpipe.contracts import KeepsIndex, PythonSource
from standpipe.errors import CacheError
from standpipe.plan.cache import room_bytes
from standpipe.plan.fields import ALL, has_encoded, has_files
from standpipe.plan.instances import instance_lines
from standpipe.plan.memory import MOST_REQUESTS
from standpipe.plan.options import HAS_PROCESSES
from standpipe.plan.order import within_budget
from standpipe.plan.remote_images import fleet_lines
from standpipe.plan.storage import storage_costs
from standpipe.spec import Executor, ReadOptions, shape_text
from standpipe.system import published
from standpipe.transform import (
    FunctionStep,
    NativeStep,
    decoder_name,
    is_scheduled,
    simd_paths,
)
from standpipe.units import show_bytes

if TYPE_CHECKING:  # which print themselves
    from standpipe.plan.plan import Plan
    from standpipe.plan.tuning import Tuning

STEPS = "  with another batch size or world size, steps begin elsewhere, and get other shapes"
COLUMNS = 80
SHOWN = 20  # trials, the newest
ALONE = "this loader sees no other loader: it can't write a file to $XDG_RUNTIME_DIR or /dev/shm"
NAME_COLUMNS = 12  # two of indentation, and the longest name of a place


def explain(plan: Plan) -> str:
    """Return the text of ``Plan.explain()``: every place, and every byte of the forecast, in lines of 80
    columns.
    """
    lines = [f"standpipe plan, rank {plan.steps.rank} of {plan.steps.world_size} data ranks"]
    for name, texts in (
        ("source", _source(plan)),
        ("order", _order(plan)),
        ("read", _read(plan)),
        ("transform", _transform(plan)),
        *([("cache", _cache(plan))] if plan.pipeline.cached is not None else []),
        ("batch", _batch(plan)),
        *([("fleet", fleet_lines(plan))] if plan.options.fleet is not None else []),
        ("device", plan.device.describe(plan.batch.layout.in_slot, plan.samples.finish)),
        *([("carried", plan.carried.describe())] if plan.carried is not None else []),
        ("memory", _memory(plan)),
        (
            "recipe",
            [f"digest {plan.digest}", environment()],
        ),
    ):
        lines += _placed(name, texts)
    return "\n".join(lines)


def tuning_text(tuning: Tuning) -> str:
    """Return the part of ``explain()`` on what a loader's tuning found."""
    now = f"{tuning.num_workers} worker{'s' if tuning.num_workers > 1 else ''}, {tuning.prefetch + 1} slots"
    texts = [
        f"{now}, {'settled' if tuning.settled else 'not settled yet'}",
        *map(str, tuning.trials[-SHOWN:]),
    ]
    return "\n".join(_placed("tuning", texts))


def _placed(name: str, texts: Iterable[str]) -> list[str]:
    """Return the lines of one part of the text, with its name before the first one."""
    wrapped = [line for text in texts for line in _wrapped(text)]
    return [f"  {name if i == 0 else '':<10s}{line}" for i, line in enumerate(wrapped)]


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text, wrapped between words only, so that a long path stays whole."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    room = COLUMNS - NAME_COLUMNS
    return textwrap.wrap(text, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _source(plan: Plan) -> list[str]:
    source = plan.source
    classes = f", {sum(map(bool, source.classes)):,} classes" if source.classes is not None else ""
    fields = ", ".join(f"{name}: {spec}" for name, spec in source.fields.items())
    if isinstance(source, PythonSource) and source.declared is None:
        fields = "fields measured at start" if plan.batch.open else "fields measured"
    records = (
        f"{source.num_records:,} records" if plan.ends_known or plan.pipeline.batch_sampler else "a stream"
    )
    index = [source.index_note] if isinstance(source, KeepsIndex) else []
    return [plan.pipeline.source.describe(), f"{records}{classes}; {fields}", *index]


def _order(plan: Plan) -> list[str]:
    if plan.pipeline.batch_sampler:
        return [plan.order.describe()]
    steps = (
        plan.steps.describe()
        if plan.ends_known
        else f"steps of {plan.steps.batch} rows, until the stream ends"
    )
    scattered = plan.pipeline.shuffled and plan.pipeline.block is None
    return [plan.order.describe(), steps, *storage_costs(plan.source, scattered=scattered)]


def _read(plan: Plan) -> list[str]:
    if isinstance(plan.source, PythonSource):
        what = "samples with encoded images" if has_encoded(plan.source) else "samples"
        return [f"{what} by the dataset, in the workers"]
    if not has_files(plan.source):
        return ["rows in memory"]
    ahead = show_bytes(plan.memory.forecast.read_ahead)
    if plan.fetches:
        by = f"a process fetches byte ranges, at most {MOST_REQUESTS} at once and {ahead} ahead"
        return [by, _reads(plan.options.reads)]
    by = (
        f"decoding threads read cached files, reading threads read slow ones, at most {ahead} ahead"
        if plan.samples.program is None
        else "workers read files"
    )
    return [by, _reads(plan.options.reads)]


def _reads(reads: ReadOptions) -> str:
    again = "isn't tried again"
    if reads.retries > 0:
        times = "once" if reads.retries == 1 else f"{reads.retries} times"
        again = f"is tried again, up to {times}, first after {reads.backoff_s:g} s"
    hedged = "" if reads.hedge_after_s is None else f"; a second read starts after {reads.hedge_after_s:g} s"
    return f"a read that fails {again}{hedged}"


def _transform(plan: Plan) -> list[str]:
    decoding, limits = plan.pipeline.decoding.describe(), plan.pipeline.limits
    decode = f"decode {decoding}, max_pixels={limits.max_pixels:,}, max_scans={limits.max_scans}"
    if plan.samples.program is not None:
        kinds = {NativeStep: "native", FunctionStep: "Python"}
        steps = [f"{kinds[type(step)]}: {step.describe()}" for step in plan.samples.program.steps]
        steps += [f"  {each.describe()}" for each in plan.pipeline.transforms if is_scheduled(each)]
        drawn = [] if plan.not_reproducible is None else [plan.not_reproducible]
        return [f"per sample, in {_workers(plan)}", *(steps or ["nothing"]), *_conversions(plan), *drawn]
    kernel = plan.samples.kernel
    if kernel is None:
        return ["none: rows are copied into the slot"]
    kernels = "one kernel"
    if kernel.views:
        kernels = f"one kernel of {kernel.views} views"
    elif len(kernel.image.stages) > 1:
        kernels = f"one kernel of {len(kernel.image.stages)} stages"
    made = f"{kernels}: decode + {kernel.describe()}"
    if (composed := plan.samples.composed) is not None:
        made = composed.describe()
    if plan.cache is not None and plan.cache.before is not None:
        before = plan.cache.before.describe()
        made = f"two kernels, with the cache between: decode + {before}; {kernel.describe()}"
    return [
        made,
        *(f"  {transform.describe()}" for transform in plan.pipeline.transforms),
        *(composed.notes if composed is not None else []),
        *_conversions(plan),
        decode,
    ]


def _conversions(plan: Plan) -> list[str]:
    """Return the lines on where the objects of ``map(…, native="auto")`` run, or on what it would bring."""
    report = plan.pipeline.conversions
    if not report:
        from standpipe.transform.converted.automatic import offer  # it imports all transforms

        return offer(plan.pipeline.transforms)
    return ['map(native="auto") converted:', *(f"  {line}" for line in report)]


def _cache(plan: Plan) -> list[str]:
    """Return the lines on what is kept of each record, where, and what that brings."""
    cached, kept = plan.pipeline.cached, plan.cache
    assert cached is not None
    if kept is None:
        return [cached.why or "off: memory=0"]
    after = cached.after
    made = plan.pipeline.transforms[:after]
    what = {
        "encoded": "bytes of files",
        "images": f"images, {kept.before.image.output}" if kept.before is not None else "",
        "samples": "samples, as Python code returned them",
    }[kept.kind]
    place = f"after {made[-1].describe()}" if made else "right after the source"
    checked = {
        "loader": "rows are compared with their files once after a start",
        "epoch": "rows are compared with their files once per epoch",
        "never": "rows aren't compared with their files: rows of changed files are still used",
    }[kept.cache.validate]
    return [
        f"{place}: {what}",
        *([cached.why] if cached.why else []),
        f"session {kept.cache.name!r}, set {kept.identity.digest}",
        *_room(plan),
        checked if has_files(plan.source) else "rows aren't compared with files, as the source has none",
    ]


def _room(plan: Plan) -> list[str]:
    """Return the lines on how many rows are kept, and when a cache pays off."""
    kept = plan.cache
    assert kept is not None
    try:
        found = kept.look()
    except CacheError as error:
        return [f"none: {error}"]
    room, there = room_bytes(found), "no row is stored"
    if (present := found.present) is not None and present.rows:
        there = f"{present.rows:,} rows are stored, {show_bytes(present.bytes + present.bytes_on_disk)}"
    lines = [f"at most {show_bytes(room)} of rows, not counted in memory=; {there}"]
    if kept.row_bytes is not None:
        fraction = min(room // kept.row_bytes / kept.records, 1)
        lines.append(
            f"all {kept.records:,} rows would take {show_bytes(kept.row_bytes * kept.records)}; "
            f"later epochs find {fraction:.0%} of them"
        )
    pays = "reading" if kept.kind == "encoded" else "making samples"
    return [*lines, f"pays off from the second epoch on, where {pays} limits the run"]


def _workers(plan: Plan) -> str:
    many = "s" if plan.pool.workers > 1 else ""
    match plan.pool.executor:
        case Executor.INLINE:
            return "the thread that asks for a batch"
        case Executor.THREAD:
            asked = HAS_PROCESSES or plan.options.executor is not None
            return f"{plan.pool.workers} Python thread{many}" + (
                "" if asked else ", as worker processes need Linux"
            )
        case Executor.PROCESS:
            return f"{plan.pool.workers} worker process{'es' if many else ''}"
        case unknown:
            assert_never(unknown)


def _batch(plan: Plan) -> list[str]:
    rows = f"≤{plan.batch.layout.rows}" if plan.steps.unit == "batches" else str(plan.batch.layout.rows)
    tried = f", up to {most} are tried" if (most := plan.pool.most_workers) > plan.pool.workers else ""
    workers = f"{plan.pool.workers} worker{'s' if plan.pool.workers > 1 else ''}{tried}"
    return [
        *(
            f"{name}: {shape_text(rows, *spec.shape)} {spec.dtype}"
            for name, spec in plan.batch.fields.items()
        ),
        *(
            f"{name}: {region}, room for {region.most:,}"
            for name, region in plan.batch.layout.regions.items()
        ),
        *_shapes_by_epoch(plan, rows),
        *instance_lines(plan),
        *(f"{name}: a list of {rows}, outside the slots" for name in plan.batch.listed),
        *(
            "all other fields: measured at start" if name == ALL else f"{name}: measured at start"
            for name in plan.batch.open
        ),
        *within_budget(plan.pipeline),
        *_functions(plan),
        *_checks(plan),
        plan.pipeline.bad.describe(),
        _deadlines(plan),
        f"{_slots(plan)}; {workers}",
    ]


def _shapes_by_epoch(plan: Plan, rows: str) -> list[str]:
    """Return a line for each epoch from which on a field has another shape than in the largest batches, or several."""
    lines: list[str] = []
    drawn = False
    for name, largest in plan.batch.fields.items():
        before = {largest.shape}
        for start, segments in groupby(plan.segments, lambda each: each.first_epoch):
            shapes = {each.layout.fields[name].shape for each in segments}
            if shapes != before:
                first, last = min(shapes), max(shapes)
                to = (
                    f" to {shape_text(rows, *last)}, one of {len(shapes)} shapes per step"
                    if first != last
                    else ""
                )
                lines.append(f"  from epoch {start} on, {name}: {shape_text(rows, *first)}{to}")
                drawn |= first != last
            before = shapes
    return [*lines, STEPS] if drawn else lines


def _checks(plan: Plan) -> list[str]:
    """Return the lines on checks of values."""
    pipeline = plan.pipeline
    finite = (
        []
        if pipeline.finite is None
        else [f"floats of {', '.join(pipeline.finite) or 'all fields'} must be finite"]
    )
    return [*finite, *(f"{labels.field}: {labels.describe()}" for labels in pipeline.labels)]


def _deadlines(plan: Plan) -> str:
    slow, stalled = (
        f"a row that takes {plan.options.slow_sample_s:g} s is logged",
        plan.options.stall_timeout_s,
    )
    return slow if stalled is None else f"{slow}, one that takes {stalled:g} s is stalled"


def _functions(plan: Plan) -> list[str]:
    """Return the lines on functions of whole batches."""
    where = "on the device" if plan.samples.mixings else "in the workers"
    functions = [
        text
        for function in plan.pipeline.batch_functions
        for text in (f"then {function.describe()}, {where}", function.note)
        if text
    ]
    if plan.gathers:
        return [*functions, "the arrays that it returns are outside the slots, and no forecast counts them"]
    return [*functions, "arrays that keep shape and dtype stay in the slot"] if plan.functions else functions


def _slots(plan: Plan) -> str:
    if plan.batch.open:
        return f"{plan.memory.slots} slots of a size measured at start, more if they are held"
    size = show_bytes(plan.batch.layout.stride_bytes)
    return f"{plan.memory.slots} slots of {size}, up to {plan.memory.most_slots} when batches are held"


def _memory(plan: Plan) -> list[str]:
    forecast = plan.memory.forecast
    owners = [
        ("process so far", forecast.process, "without the index"),
        ("index", forecast.index, ""),
        ("slots", forecast.slots, "without what is measured at start" if plan.batch.open else ""),
        *([("outside slots", forecast.waiting, "samples outside the slots")] if forecast.waiting else []),
        ("workers", forecast.workers, _memory_per_worker(plan)),
        *([("read-ahead", forecast.read_ahead, "")] if forecast.read_ahead else []),
        *([("fetching", forecast.fetch, "a process that gets bytes of URLs")] if forecast.fetch else []),
        *([("cache", forecast.cache, "without its rows, which all jobs share")] if forecast.cache else []),
        *(
            [("images", forecast.frames, "of earlier rows too, of which rows are made")]
            if forecast.frames
            else []
        ),
        ("engine", forecast.engine, ""),
        *(
            [("whole frames", forecast.whole, "one for each worker, as large as the first samples'")]
            if forecast.whole
            else []
        ),
        ("forecast", forecast.expected, "together"),
        ("side arena", forecast.side, "at most; progressive JPEGs, other formats"),
        ("ceiling", plan.memory.budget_bytes, "memory=, for all but the process so far"),
        *(
            [("cache's rows", rows, "at most, for all jobs; not in memory=")]
            if (rows := _rows_bytes(plan))
            else []
        ),
    ]
    return [
        *(f"{name:<15s}{show_bytes(size):>10s}  {note}".rstrip() for name, size, note in owners),
        *([] if published.is_possible() else [ALONE]),
    ]


def _rows_bytes(plan: Plan) -> int:
    """Return the bytes of memory that a cache's rows may use."""
    try:
        return 0 if plan.cache is None else plan.cache.look().limits.memory
    except CacheError:
        return 0


def _memory_per_worker(plan: Plan) -> str:
    shared = plan.pool.cost.shared
    if not shared:
        return f"for {most}" if (most := plan.pool.most_workers) > plan.pool.workers else ""
    measured = "; measured at start" if plan.batch.open else ""
    return (
        f"{show_bytes(shared)} shared, each is replaced above {show_bytes(plan.pool.worker_bytes)}{measured}"
    )


def environment() -> str:
    """Return the versions of Python, NumPy and the decoder, and the instruction set."""
    return (
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {decoder_name()}, SIMD {simd_paths()[-1]}"
    )
