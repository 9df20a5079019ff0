"""From a description to everything a run needs: sizes, workers, and a forecast of memory."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Unpack

import numpy as np

from penstock import machine
from penstock.batch import Collation, Contents, SlotLayout, placed
from penstock.contracts import Encoded, KeepsIndex, OpenSource, Order, PythonSource, Source, StreamSource
from penstock.errors import PlanError
from penstock.order import Batches, Mixed, Steps, Streamed
from penstock.ordering import (
    bytes_of,
    check_labels,
    files_of,
    labels_to_check,
    order_recipe,
    planned_order,
)
from penstock.pipeline import Pipeline, Settings
from penstock.read import ReadAhead
from penstock.sizing import (
    ENGINE_BYTES,
    MOST_RETRIES,
    NATIVE_WORKERS,
    PROCESSES,
    READ_BYTES,
    THREADS,
    MemoryForecast,
    Needs,
    WorkerCost,
    fit,
    is_count,
    is_seconds,
    parse_bytes,
)
from penstock.spec import PIXEL_CONTRACT, DecodeLimits, Executor, Labels, Listed, Raise, Reads, Spec, Tail
from penstock.transform import (
    ImageKernel,
    NativeStep,
    SampleProgram,
    decoder_version,
    fuse,
    sample_program,
    simd_paths,
)

MOST_CLASSES = 1 << 16  # whose names are in a manifest
ALL = "…"  # stands for fields whose names are measured too


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run needs, checked and sized. ``explain()`` prints it.

    kernel    what native threads do to every image, when no Python code takes part
    program   what workers in Python do to every sample, when some does
    contents  how a batch holds each field of its samples; None for what is measured when a loader starts
    settings  what the plan was asked for with
    cost      memory of the workers: an estimate, which is measured for processes when a loader starts
    labels    those that are looked at sample by sample, as no column tells them
    simd      an instruction set instead of the widest this machine runs: ``"scalar"``, ``"avx2"``, …; all give
              the same bytes

    ``worker_bytes`` is what a worker process may have of its own before another one takes its place,
    ``batches_bytes`` what all slots that there may be take, with samples outside of them.
    """

    pipeline: Pipeline
    source: OpenSource
    order: Order | Batches
    steps: Steps
    kernel: ImageKernel | None
    program: SampleProgram | None
    layout: SlotLayout
    contents: Contents
    settings: Settings
    executor: Executor
    cost: WorkerCost
    workers: int
    depth: int
    most_slots: int
    worker_bytes: int
    batches_bytes: int
    memory_bytes: int
    forecast: MemoryForecast
    lend_wait_s: float
    reads: Reads
    labels: tuple[Labels, ...]
    slow_after_s: float
    stall_timeout_s: float | None
    simd: str | None = None
    recipe: Mapping[str, str | int] = field(default_factory=dict)
    known_from: str = "as declared"

    @property
    def digest(self) -> str:
        """Hex digest of the recipe: equal where equal states give equal batches."""
        import hashlib  # with json a tenth of what importing penstock costs, and no run needs it
        import json

        return hashlib.blake2b(json.dumps(self.recipe, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None."""
        return self.source.classes

    @property
    def most_descriptors(self) -> int:
        """Files that the run has open at once, at most: one per thread that reads, two where reads may be hedged,
        the source's index, tables of the order that don't fit the memory, and the arena of slots.
        """
        index = self.source.descriptors if isinstance(self.source, KeepsIndex) else 0
        reads = any(isinstance(spec, Encoded) for spec in self.source.fields.values())
        threads = self.workers + ReadAhead.for_workers(self.workers, self.forecast.read_ahead).threads
        each = 1 if self.reads.hedge_after_s is None else 2
        return (each * threads if reads else 0) + index + files_of(self.order) + 1

    @property
    def fields(self) -> Mapping[str, Spec]:
        """The fields of a batch that lie in its slot, with shape and dtype of one row."""
        return self.layout.fields

    @property
    def sample_fields(self) -> tuple[str, ...]:
        """Of these, the fields that a sample fills."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, Spec))

    @property
    def listed(self) -> tuple[str, ...]:
        """Fields that lie in no slot: a batch has lists of them."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, Listed))

    @property
    def rows_per_epoch(self) -> int:
        """Rows of an epoch, of all ranks together, without padding."""
        return self.order.num_rows if isinstance(self.order, Batches) else self.order.num_positions

    @property
    def ends_known(self) -> bool:
        """Whether epochs have a known end; not those of a stream without a length."""
        return not isinstance(self.order, Streamed) or self.order.known

    @property
    def gathers(self) -> bool:
        """Whether a function takes the samples of a batch: then one worker makes all of them."""
        return any(function.samples for function in self.pipeline.batch_functions)

    @property
    def made_apart(self) -> tuple[str, ...]:
        """Fields that workers hand over value by value: lists, and what is collated."""
        return (*self.listed, *self.collated)

    @property
    def collated(self) -> Mapping[str, Collation]:
        """Fields whose samples differ in shape, and how they come into the slot."""
        return {name: how for name, how in self.contents.items() if isinstance(how, Collation)}

    @property
    def open(self) -> tuple[str, ...]:
        """Fields that are measured when a loader starts; what the plan says of memory is without them."""
        return tuple(name for name, spec in self.contents.items() if spec is None)

    def measured(
        self, fields: Mapping[str, Spec | Listed], record: int, cost: WorkerCost | None = None
    ) -> Plan:
        """The plan again, with what was measured at the start. Raises as ``make_plan`` does.

        fields  of a sample
        record  its number
        cost    memory of worker processes
        """
        before = self if cost is None else replace(self, cost=cost)
        made = make_plan(self.pipeline, before=before, measured=fields, **self.settings)
        return replace(made, known_from=f"in record {record}")

    def explain(self) -> str:
        """What will happen, for a person: every place, every byte of the forecast."""
        from penstock.explain import explain  # prints plans: its module imports this one

        return explain(self)

    def facts(self) -> dict[str, object]:
        """What ``explain()`` says, as plain values for programs. Sizes in bytes."""
        return {
            "source": self.pipeline.source.describe(),
            "records": self.source.num_records if self.ends_known else None,
            "classes": None if self.source.classes is None else len(self.source.classes),
            "order": self.order.describe(),
            "rank": self.steps.rank,
            "world": self.steps.world,
            "steps_per_epoch": self.steps.per_epoch if self.ends_known else None,
            "dropped_per_epoch": self.steps.dropped_per_epoch if self.ends_known else None,
            "kernel": None if self.kernel is None else self.kernel.describe(),
            "fields": {
                name: {"shape": [self.layout.rows, *spec.shape], "dtype": spec.dtype.name}
                for name, spec in self.fields.items()
            }
            | {
                name: {"shape": region.text, "dtype": region.dtype.name}
                for name, region in self.layout.regions.items()
            },
            "workers": self.workers,
            "slots": self.depth,
            "most_slots": self.most_slots,
            "forecast": {**asdict(self.forecast), "expected": self.forecast.expected},
            "memory": self.memory_bytes,
            "digest": self.digest,
            "recipe": dict(self.recipe),
        }

    def manifest(self) -> dict[str, object]:
        """What ranks of one run must agree on, and which of them this is: small plain data for ``check_ranks``."""
        classes = self.classes
        return {
            "rank": self.steps.rank,
            "world": self.steps.world,
            "batch": self.steps.batch,
            "tail": self.steps.tail.value,
            "steps": self.steps.per_epoch if self.ends_known else None,
            "digest": self.digest,
            "recipe": dict(self.recipe),
            "classes": None if classes is None or len(classes) > MOST_CLASSES else list(classes),
        }


def make_plan(
    pipeline: Pipeline,
    *,
    before: Plan | None = None,
    measured: Mapping[str, Spec | Listed] | None = None,
    **settings: Unpack[Settings],
) -> Plan:
    """``Pipeline.plan`` says what the settings mean.

    before    a plan of this pipeline: its source is open, and its order stays
    measured  what the fields of a sample look like, once that is known
    """
    memory, lend_wait_s = settings.get("memory"), settings.get("lend_wait_s", 0.0)
    if pipeline.rows is None and pipeline.budget is None:
        raise PlanError("the pipeline has no batch size: add .batch(rows), or .batch(budget=…, by=…)")
    if not isinstance(lend_wait_s, int | float) or not lend_wait_s >= 0:
        raise PlanError(f"lend_wait_s={lend_wait_s!r}: a number of seconds, at least 0")
    checked_source(pipeline.source, "Pipeline")
    check_limits(pipeline.limits)
    reads = checked_reads(settings.get("reads", Reads()))
    slow_after_s, stall_timeout_s = _deadlines(settings)
    source = pipeline.source.open() if before is None else before.source
    order = planned_order(pipeline, source) if before is None else before.order
    told, labels = labels_to_check(pipeline, source)
    if before is None:
        check_labels(pipeline, source, told)
    tail = pipeline.tail or (Tail.DROP if pipeline.shuffled or isinstance(order, Mixed) else Tail.PAD)
    if isinstance(source, StreamSource):
        tail = _stream_tail(pipeline, source)
    steps = Steps(
        num_positions=order.num_positions,
        batch=1 if pipeline.rows is None else pipeline.rows,
        rank=pipeline.rank,
        world=pipeline.world,
        tail=tail,
        unit="batches" if isinstance(order, Batches) else "rows",
    )
    rows = order.most_rows if isinstance(order, Batches) else steps.batch
    executor = _executor(settings.get("executor", "thread"))
    kernel, program = _transforms(pipeline, source, executor, by_sample=bool(labels))
    samples = _samples(pipeline, source, kernel, program, measured)
    most = None if pipeline.budget is None else pipeline.budget.most
    contents = placed(samples, pipeline.collate, rows, most)
    layout = _layout(contents, rows, tail)
    budget = parse_bytes("memory", memory) if memory is not None else machine.free_memory_bytes() // 2
    whole = any(function.samples for function in pipeline.batch_functions)
    asked = _asked_workers(settings, executor, isinstance(source, StreamSource))
    cost = _cost(executor, program, source, reads) if before is None else before.cost
    needs = Needs(
        slot=layout.stride_bytes,
        rows=rows,
        waiting=layout.waiting_bytes,
        apart=rows * _bytes_apart((measured or {}) if whole else contents, whole=whole),
        index=source.index_bytes + bytes_of(order),
        cost=cost,
        whole=whole,
        frames=any(isinstance(spec, Encoded) for spec in source.fields.values()),
    )
    sizes = fit(needs, budget, asked, settings)
    return Plan(
        pipeline=pipeline,
        source=source,
        order=order,
        steps=steps,
        kernel=kernel,
        program=program,
        layout=layout,
        contents=contents,
        settings=settings,
        executor=executor,
        cost=cost,
        workers=sizes.workers,
        depth=sizes.depth,
        most_slots=sizes.most_slots,
        memory_bytes=budget,
        forecast=MemoryForecast(
            process=max(machine.process_memory_bytes() - needs.index, 0),
            index=needs.index,
            slots=sizes.depth * layout.stride_bytes,
            waiting=needs.batches(sizes.depth) - sizes.depth * layout.stride_bytes,
            workers=cost.of(sizes.workers),
            read_ahead=sizes.read_ahead,
            engine=ENGINE_BYTES,
            side=sizes.side,
        ),
        worker_bytes=sizes.worker,
        batches_bytes=sizes.batches,
        lend_wait_s=lend_wait_s,
        reads=reads,
        labels=labels,
        slow_after_s=slow_after_s,
        stall_timeout_s=stall_timeout_s,
        recipe=_recipe(pipeline, source),
    )


def checked_source(given: object, asked_by: str) -> Source:
    """A source, or ``PlanError`` for what is none."""
    if isinstance(given, type):
        raise PlanError(f"{asked_by}({given.__name__}): it is a class, write {given.__name__}(…)")
    if not isinstance(given, Source):
        raise PlanError(f"{asked_by}({given!r}): {_source_for(given)}")
    return given


def _source_for(given: object) -> str:
    """What someone may have meant who gave something else than a source."""
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return "a source such as ImageFolder(path)" if isinstance(given, str) else "write Indexed(dataset)"
    if callable(given) or hasattr(given, "__iter__"):
        return "a stream goes in as Iterable(factory)"
    return "a source such as ImageFolder(path)"


def check_limits(limits: object) -> None:
    """Raise ``PlanError`` for limits that can't be."""
    if not isinstance(limits, DecodeLimits):
        raise PlanError(f"decode(limits={limits!r}): DecodeLimits(max_pixels=…, max_scans=…)")
    for name, value, most in (
        ("max_pixels", limits.max_pixels, (1 << 63) - 1),
        ("max_scans", limits.max_scans, (1 << 31) - 1),
    ):
        if not is_count(value, 1, most):
            raise PlanError(f"DecodeLimits({name}={value!r}): a whole number, at least 1")


def checked_reads(reads: object) -> Reads:
    """What is done about failing reads, or ``PlanError`` for what can't be."""
    if not isinstance(reads, Reads):
        raise PlanError(f"reads={reads!r}: Reads(retries=…, backoff_s=…, hedge_after_s=…)")
    if not is_count(reads.retries, 0, MOST_RETRIES):
        raise PlanError(f"Reads(retries={reads.retries!r}): a whole number, from 0 to {MOST_RETRIES}")
    if not is_seconds(reads.backoff_s):
        raise PlanError(f"Reads(backoff_s={reads.backoff_s!r}): a number of seconds, at least 0")
    after = reads.hedge_after_s
    if after is not None and not (is_seconds(after) and after > 0):
        raise PlanError(f"Reads(hedge_after_s={after!r}): a number of seconds above 0, or None")
    return reads


def _deadlines(settings: Settings) -> tuple[float, float | None]:
    """After how many seconds a sample is slow, and after how many it is bad."""
    slow, stalled = settings.get("slow_after_s", 5.0), settings.get("stall_timeout_s", 120.0)
    if not is_seconds(slow) or slow == 0:
        raise PlanError(f"slow_after_s={slow!r}: a number of seconds above 0")
    if stalled is not None and (not is_seconds(stalled) or stalled == 0):
        raise PlanError(f"stall_timeout_s={stalled!r}: a number of seconds above 0, or None")
    return slow, stalled


def _stream_tail(pipeline: Pipeline, source: StreamSource) -> Tail:
    """What happens at a stream's end. Raises ``PlanError`` for what a stream can't do."""
    source.of_rank(pipeline.rank, pipeline.world)
    if not isinstance(pipeline.bad, Raise):
        raise PlanError(
            "on_bad(Replace(…)): a stream's samples can't be replaced, since no other is known: leave bad ones out in "
            "the factory, or give a dataset with dataset[index] as Indexed(dataset)"
        )
    default = Tail.SHORT if pipeline.world == 1 else Tail.DROP
    if pipeline.tail is Tail.PAD:
        raise PlanError(
            'a stream can\'t be padded with its first samples, which are gone: tail="short" or "drop"'
        )
    return pipeline.tail or default


def _executor(value: object) -> Executor:
    if value not in [each.value for each in Executor]:
        raise PlanError(f"executor={value!r}: 'thread', 'process' or 'inline'")
    return Executor(value)


def _bytes_apart(fields: Mapping[str, object], *, whole: bool) -> int:
    """Of one sample, what lies in no slot, as far as was measured: lists, or all that a function makes a batch of."""
    listed = sum(spec.nbytes for spec in fields.values() if isinstance(spec, Listed))
    return listed + (
        sum(spec.row_bytes for spec in fields.values() if isinstance(spec, Spec)) if whole else 0
    )


def _cost(executor: Executor, program: SampleProgram | None, source: OpenSource, reads: Reads) -> WorkerCost:
    """What a worker takes; in Python with the files that it reads, of which a hedged read has two."""
    if program is None:
        return NATIVE_WORKERS
    cost = PROCESSES if executor is Executor.PROCESS else THREADS
    if not any(isinstance(spec, Encoded) for spec in source.fields.values()):
        return cost
    return replace(cost, each=cost.each + READ_BYTES * (1 if reads.hedge_after_s is None else 2))


def _asked_workers(settings: Settings, executor: Executor, streams: bool) -> int | Literal["auto"]:
    return 1 if executor is Executor.INLINE or streams else settings.get("workers", "auto")


def _transforms(
    pipeline: Pipeline, source: OpenSource, executor: Executor, *, by_sample: bool
) -> tuple[ImageKernel | None, SampleProgram | None]:
    """The one native kernel of a pipeline without Python code; else, what Python workers do. Or neither: rows
    are copied.

    by_sample  whether samples are looked at one by one
    """
    declared = source.declared if isinstance(source, PythonSource) else source.fields
    program = sample_program(pipeline.transforms, declared)
    if (
        isinstance(source, PythonSource)
        or not program.is_native
        or executor is Executor.INLINE
        or pipeline.collate
        or pipeline.batch_functions
        or by_sample
    ):
        return None, program
    if not program.steps:
        return None, None
    (step,) = program.steps
    assert isinstance(step, NativeStep)
    # Where the images' size isn't fixed there is no kernel, and this says so.
    return step.kernel or fuse(step.transforms, None), None


def _samples(
    pipeline: Pipeline,
    source: OpenSource,
    kernel: ImageKernel | None,
    program: SampleProgram | None,
    measured: Mapping[str, Spec | Listed] | None,
) -> Mapping[str, Spec | Listed | None]:
    """What a sample holds in the end, by field; None for what is measured when a loader starts."""
    collate = pipeline.collate
    if collate and pipeline.batch_functions:
        raise PlanError(
            "batch(collate=…) puts fields together once a batch is made, and map_batch() would need them before: "
            "collate in the function, or leave map_batch() out"
        )
    contents: dict[str, Spec | Listed | None]
    if any(function.samples for function in pipeline.batch_functions):
        return {}  # its samples go to a function
    if program is None:
        contents = {name: spec for name, spec in source.fields.items() if isinstance(spec, Spec)}
        if kernel is not None:
            contents = {**kernel.outputs, **{name: contents[name] for name in contents if name != "image"}}
    elif program.fields is None:
        contents = {ALL: None} if measured is None else dict(measured)
    else:
        contents = dict(program.fields)
        if measured is not None:
            _check_declared(contents, measured, collate)
            contents = dict(measured)
    if ALL not in contents and (unknown := [name for name in collate if name not in contents]):
        raise PlanError(
            f"batch(collate=…): there is no field {unknown[0]!r}; there are {', '.join(contents)}"
        )
    if ALL not in contents:
        asked = [("check_finite", name) for name in pipeline.finite or ()]
        asked += [("check_labels", labels.field) for labels in pipeline.labels]
        for method, name in asked:
            if name not in contents:
                raise PlanError(f"{method}: there is no field {name!r}; there are {', '.join(contents)}")
    if "index" in contents:
        raise PlanError("a sample has a field 'index', which every batch has of its own: rename it")
    return contents


def _check_declared(
    declared: Mapping[str, Spec | Listed | None],
    measured: Mapping[str, Spec | Listed],
    collate: Collection[str],
) -> None:
    for name in {*declared, *measured}.difference(collate):
        spec, got = declared.get(name), measured.get(name)
        if name not in declared or name not in measured or (spec is not None and spec != got):
            raise PlanError(
                f"the field {name!r} was declared as {declared.get(name, 'absent')} and is "
                f"{measured.get(name, 'absent')} in the first sample"
            )


def _layout(contents: Contents, rows: int, tail: Tail) -> SlotLayout:
    fields = {name: spec for name, spec in contents.items() if isinstance(spec, Spec)}
    fields["index"] = Spec((), np.dtype(np.int64))
    if tail is Tail.PAD:
        if "valid" in contents:
            raise PlanError(
                "a sample has a field 'valid', which padding adds too: rename it, or use tail=\"drop\""
            )
        fields["valid"] = Spec((), np.dtype(np.bool_))
    collated = [how for how in contents.values() if isinstance(how, Collation)]
    regions = {name: region for how in collated for name, region in how.regions.items()}
    return SlotLayout(fields, rows, regions)


def _recipe(pipeline: Pipeline, source: OpenSource) -> dict[str, str | int]:
    """What decides the content of a stream of samples. Not on which rank they come, or how fast; how many come at
    once only where that decides which ones meet.
    """
    recipe: dict[str, str | int] = {
        "source": source.digest,
        "rows": source.num_records,
        **order_recipe(pipeline),
        "transforms": "; ".join(
            [transform.describe() for transform in pipeline.transforms]
            + [function.describe() for function in pipeline.batch_functions]
        ),
        "decode": pipeline.decoding.describe(),
        "limits": repr(pipeline.limits),
        "pixel_contract": PIXEL_CONTRACT,
    }
    if pipeline.budget is not None:
        recipe["batches"] = pipeline.budget.describe()
    return recipe


def environment() -> str:
    """Versions that a person wants to see beside a figure."""
    return (
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}, "
        f"libjpeg-turbo {decoder_version()}, SIMD {simd_paths()[-1]}"
    )
