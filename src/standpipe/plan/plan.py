"""The plan of a run: sizes, workers and the memory forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from standpipe.batch.layout import SlotLayout
from standpipe.contracts import Device, OpenSource
from standpipe.order import AnyOrder, BudgetOrder, Cursor, Given, Steps, Streamed
from standpipe.pipeline.description import Description
from standpipe.plan.cache import CachePlan
from standpipe.plan.explain import explain
from standpipe.plan.fields import has_encoded
from standpipe.plan.memory import SIDE_BYTES, MemoryForecast
from standpipe.plan.options import LoaderOptions
from standpipe.plan.parts import BatchPlan, MemoryPlan, PoolPlan, SamplePlan, Segment
from standpipe.spec import ArraySpec, DecodeMode, Executor
from standpipe.system.workers import worker_id
from standpipe.transform import (
    BatchFunction,
    FunctionStep,
    decoder_name,
    decoder_version,
    first_random,
)
from standpipe.units import as_html, show_bytes, without_middle

if TYPE_CHECKING:  # only loaders with worker processes import it
    from standpipe.carried import Report

SHOWN = (  # by tab completion and in the reference
    *(
        "pipeline",
        "source",
        "options",
        "order",
        "steps",
        "fields",
        "classes",
        "num_workers",
        "slots",
        "prefetch",
    ),
    *("memory_bytes", "forecast", "recipe", "digest", "drawing", "not_reproducible", "decoder"),
    *("rows_per_epoch", "explain", "facts"),
)
MOST_CLASSES = 1 << 16  # whose names are in a manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked pipeline with all its sizes. ``pipeline.plan()`` makes it, and ``explain()`` prints it.

    Attributes
    ----------
    pipeline : Pipeline
        The pipeline that was planned.
    source : OpenSource
        The opened source: ``source.num_records``, ``source.name(index)``.
    options : LoaderOptions
        The arguments of ``plan()``.
    order : Order
        The rule that gives a record for each position.
    steps : Steps
        The batches of an epoch: ``steps.per_epoch``, ``steps.dropped_per_epoch``, ``steps.rank``,
        ``steps.world_size``.
    recipe : mapping
        Everything that ``digest`` depends on.
    drawing : tuple of str or None
        Functions that use global random generators, if that was tested.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan(memory="256MiB")
    >>> plan.source.num_records, plan.steps.per_epoch, plan.classes
    (24, 3, ('cat', 'dog'))
    >>> str(plan.fields["image"])
    '(32, 32, 3) uint8'
    """

    pipeline: Description
    source: OpenSource
    options: LoaderOptions
    order: AnyOrder
    steps: Steps
    samples: SamplePlan
    batch: BatchPlan
    cache: CachePlan | None
    device: Device
    pool: PoolPlan
    memory: MemoryPlan
    recipe: Mapping[str, str | int] = field(default_factory=dict)
    drawing: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()  # of a Schedule or PerStep; the other parts are of the largest
    carried: Report | None = None  # what worker processes took over from this one, once they have started

    def __repr__(self) -> str:
        """Return one line with the records, the batches, the workers and the memory."""
        steps, forecast = self.steps, self.memory.forecast
        epoch = (
            f"{self.source.num_records:,} records, {steps.per_epoch:,} steps per epoch"
            if self.ends_known
            else "a stream"
        )
        source = without_middle(self.pipeline.source.describe(), 200)
        return (
            f"<Plan of {source}: {epoch} of {steps.batch:,} rows, rank {steps.rank} of "
            f"{steps.world_size}, {self.pool.workers:,} workers, {self.slots:,} slots, "
            f"{show_bytes(forecast.expected)} of memory expected>"
        )

    def _repr_html_(self) -> str:
        return as_html(self.explain())

    def __dir__(self) -> list[str]:
        """Return what is meant for users; everything else is for the engine, and may change in any version."""
        return list(SHOWN)

    @property
    def is_open(self) -> bool:
        """True if a run has to measure a sample: its fields, or which of them transforms leave behind."""
        program = self.samples.program
        return bool(self.batch.open) or (program is not None and program.moves_unknown)

    def segment(self, at: Cursor) -> int:
        """Return the number of the segment of the step at a cursor; 0 without a ``Schedule`` or ``PerStep``.

        All ranks have the same cursor, and so the same segment.
        """
        starts = [each.first_epoch for each in self.segments if each.first_epoch <= at.epoch]
        if not starts:
            return 0
        choices = starts.count(starts[-1])
        return len(starts) - choices + at.draw(self.pipeline.seed, choices)

    def samples_at(self, at: Cursor) -> SamplePlan:
        """Return how the samples of the step at a cursor are made."""
        return self.segments[self.segment(at)].samples if self.segments else self.samples

    def layout_at(self, at: Cursor) -> SlotLayout:
        """Return where the fields of a slot are in the step at a cursor."""
        return self.segments[self.segment(at)].layout if self.segments else self.batch.layout

    @property
    def layouts(self) -> tuple[SlotLayout, ...]:
        """The place of each field in a slot, for each segment; one layout without any."""
        return tuple(each.layout for each in self.segments) or (self.batch.layout,)

    @property
    def digest(self) -> str:
        """Hex digest of the recipe: equal where equal states give equal batches."""
        import hashlib  # with json a tenth of what importing standpipe costs, and no run needs it
        import json

        return hashlib.blake2b(json.dumps(self.recipe, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def decoder(self) -> str:
        """The version of what decodes JPEGs."""
        return decoder_version()

    @property
    def decoder_name(self) -> str:
        """The name and version of the JPEG decoder, as people read it."""
        return decoder_name()

    @property
    def fields(self) -> Mapping[str, ArraySpec]:
        """The fields of a batch that are stored in its slot, with shape and dtype of one row.

        With a ``Schedule`` or ``PerStep``, these are the shapes of the largest batches.
        """
        return self.batch.fields

    @property
    def num_workers(self) -> int:
        """The number of workers at the start."""
        return self.pool.workers

    @property
    def slots(self) -> int:
        """The number of slots, while the loop holds one batch at a time."""
        return self.memory.slots

    @property
    def most_slots(self) -> int:
        """The largest number of slots that fit into memory."""
        return self.memory.most_slots

    @property
    def memory_bytes(self) -> int:
        """The limit of all memory that standpipe allocates, in bytes."""
        return self.memory.budget_bytes

    @property
    def forecast(self) -> MemoryForecast:
        """The memory that the run takes, by owner."""
        return self.memory.forecast

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None."""
        return self.source.classes

    @property
    def rows_per_epoch(self) -> int:
        """Rows of an epoch, of all ranks together, without padding."""
        return self.order.num_rows if isinstance(self.order, BudgetOrder) else self.order.num_positions

    @property
    def ends_known(self) -> bool:
        """True if the length of an epoch is known: not for streams without a length, or with
        ``batch_sampler=True``.
        """
        if isinstance(self.order, Given):
            return False
        return not isinstance(self.order, Streamed) or self.order.known

    @property
    def functions(self) -> tuple[BatchFunction, ...]:
        """The functions of whole batches that workers run."""
        return () if self.samples.mixings else self.pipeline.batch_functions

    @property
    def runs_code_here(self) -> bool:
        """True if the user's code runs in this process, and so uses its global random generators."""
        program = self.samples.program
        if program is None or self.pool.executor is Executor.PROCESS or self.options.fleet is not None:
            return False
        return (
            self.samples.python is not None
            or any(isinstance(step, FunctionStep) for step in program.steps)
            or any(function.mixing is None for function in self.functions)
        )

    @property
    def probes(self) -> bool:
        """True if a run makes one sample in another process, to find code that uses global random generators
        here.
        """
        return self.runs_code_here and self.options.check_generators and worker_id() is None

    @property
    def not_reproducible(self) -> str | None:
        """Return why batches depend on more than seed, epoch and position, and what to do; else None."""
        if not self.drawing:
            return None
        draw = "uses" if len(self.drawing) == 1 else "use"
        return (
            f"not reproducible: {', '.join(self.drawing)} {draw} random numbers from this process's "
            "global generators. Take a parameter rng, which is keyed for each sample, or use "
            "executor='process'"
        )

    @property
    def could_keep(self) -> bool:
        """True if ``.cache(…)`` would be possible: nothing is cached, and random transforms come later."""
        transforms = self.pipeline.transforms
        drawn_first = first_random(transforms[:1]) is not None and self.samples.python is None
        return self.pipeline.cached is None and not drawn_first and self.samples.stream is None

    @property
    def decodes_exactly(self) -> bool:
        """True if images are decoded exactly, so that ``decode("fast")`` would change something."""
        return has_encoded(self.source) and self.pipeline.decoding.mode is DecodeMode.EXACT

    @property
    def gathers(self) -> bool:
        """True if a function takes the list of a batch's samples, so that one worker makes all of them."""
        return any(function.collates for function in self.functions)

    @property
    def in_processes(self) -> bool:
        """True if worker processes make samples."""
        return self.samples.program is not None and self.pool.executor is Executor.PROCESS

    @property
    def fetches(self) -> bool:
        """True if records are behind URLs, so that a fetch process gets their bytes."""
        return self.memory.forecast.fetch > 0

    @property
    def hands_over(self) -> bool:
        """True if worker processes send values outside the slots."""
        return self.in_processes and bool(self.batch.made_apart or self.functions)

    @property
    def side_grows(self) -> bool:
        """True if the side arena would be larger with more memory."""
        used = self.hands_over or has_encoded(self.source)
        return used and self.options.large_image_memory is None and self.memory.forecast.side < SIDE_BYTES[1]

    @property
    def takes_workers(self) -> bool:
        """True if more workers, by ``num_workers=``, may make samples faster."""
        several = self.pool.executor is not Executor.INLINE and self.samples.stream is None
        return several and self.options.fleet is None

    @property
    def tunes_workers(self) -> bool:
        """True if a run finds the best number of workers."""
        return self.takes_workers and self.options.tunes_workers

    @property
    def prefetch(self) -> int:
        """The number of batches that are made ahead of the one that the loop has: slots − 1."""
        return self.slots - 1

    def explain(self) -> str:
        """Return a text for people: every place, and every byte of the forecast."""
        return explain(self)

    def facts(self) -> dict[str, object]:
        """Return what ``explain()`` says as plain values, sizes in bytes."""
        return {
            "source": self.pipeline.source.describe(),
            "records": self.source.num_records if self.ends_known else None,
            "classes": None if self.source.classes is None else len(self.source.classes),
            "order": self.order.describe(),
            "rank": self.steps.rank,
            "world_size": self.steps.world_size,
            "steps_per_epoch": self.steps.per_epoch if self.ends_known else None,
            "dropped_per_epoch": self.steps.dropped_per_epoch if self.ends_known else None,
            "kernel": None if self.samples.kernel is None else self.samples.kernel.describe(),
            "fields": {
                name: {"shape": [self.batch.layout.rows, *spec.shape], "dtype": spec.dtype.name}
                for name, spec in self.batch.fields.items()
            }
            | {
                name: {"shape": region.text, "dtype": region.dtype.name}
                for name, region in self.batch.layout.regions.items()
            },
            "workers": self.pool.workers,
            "slots": self.memory.slots,
            "most_slots": self.memory.most_slots,
            "forecast": {**asdict(self.memory.forecast), "expected": self.memory.forecast.expected},
            "memory": self.memory.budget_bytes,
            "digest": self.digest,
            "recipe": dict(self.recipe),
        }

    def manifest(self) -> dict[str, object]:
        """Return what the ranks of one run must agree on, and this rank's number, for ``check_ranks``."""
        classes = self.classes
        return {
            "rank": self.steps.rank,
            "world_size": self.steps.world_size,
            "batch": self.steps.batch,
            "last_batch": self.steps.last_batch.value,
            "steps": self.steps.per_epoch if self.ends_known else None,
            "digest": self.digest,
            "recipe": dict(self.recipe),
            "classes": None if classes is None or len(classes) > MOST_CLASSES else list(classes),
        }
