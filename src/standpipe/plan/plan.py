"""From a description to everything a run needs: sizes, workers, and a forecast of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from standpipe.batch import Collation, Contents, SlotLayout
from standpipe.contracts import (
    Device,
    Encoded,
    Finish,
    KeepsIndex,
    OpenSource,
    PythonSource,
    StreamSource,
)
from standpipe.order import AnyOrder, Batches, Given, Steps, Streamed
from standpipe.pipeline.pipeline import Pipeline
from standpipe.pipeline.running import runner
from standpipe.plan.cache import CachePlan
from standpipe.plan.explain import explain
from standpipe.plan.memory import (
    FILES_OF_CACHE,
    FILES_OF_FORK_SERVER,
    FILES_OF_PROCESS,
    FILES_OF_SERVER,
    SIDE_BYTES,
    MemoryForecast,
    WorkerCost,
    slots_for,
)
from standpipe.plan.options import LoaderOptions
from standpipe.plan.order import (
    files_of,
)
from standpipe.read import ReadAhead
from standpipe.spec import DecodeMode, Executor, Labels, Listed, Spec
from standpipe.system.workers import WorkerOrigin, worker_number
from standpipe.transform import (
    BatchFunction,
    FunctionStep,
    ImageKernel,
    Mixing,
    SampleProgram,
    decoder_of_gpu,
    decoder_version,
    first_random,
)

MOST_CLASSES = 1 << 16  # whose names are in a manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run needs, checked and sized. ``explain()`` prints it.

    python    the source, where Python code gives its samples; else None
    stream    the source, where its samples come one after another; else None
    kernel    what native threads do to every image, when no Python code takes part
    program   what workers in Python do to every sample, when some does
    contents  how a batch holds each field of its samples; None for what is measured when a loader starts
    options   what the plan was asked for with
    workers   that begin; ``most_workers`` is how many there may be where they are tuned
    cost      memory of the workers: an estimate, which is measured for processes when a loader starts
    labels    those that are looked at sample by sample, as no column tells them
    device    where batches go
    finish    the last step of images that native threads make, here or there; None where there is none
    mixings   what is done to whole batches there
    cache     where rows are kept, and what of them; None: nowhere
    drawing   functions that were found to draw from global generators in this process, with the names of those
    simd      an instruction set instead of the widest this machine runs: ``"scalar"``, ``"avx2"``, …; all give
              the same bytes

    ``worker_bytes`` is what a worker process may have of its own before another one takes its place,
    ``batches_bytes`` what all slots that there may be take, with samples outside of them.
    """

    pipeline: Pipeline
    source: OpenSource
    python: PythonSource | None
    stream: StreamSource | None
    order: AnyOrder
    steps: Steps
    kernel: ImageKernel | None
    program: SampleProgram | None
    layout: SlotLayout
    contents: Contents
    options: LoaderOptions
    executor: Executor
    cost: WorkerCost
    workers: int
    most_workers: int
    depth: int
    most_slots: int
    worker_bytes: int
    batches_bytes: int
    memory_bytes: int
    forecast: MemoryForecast
    labels: tuple[Labels, ...]
    device: Device
    finish: Finish | None
    mixings: tuple[Mixing, ...]
    cache: CachePlan | None
    simd: str | None = None
    recipe: Mapping[str, str | int] = field(default_factory=dict)
    known_from: str = "as declared"
    drawing: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hex digest of the recipe: equal where equal states give equal batches."""
        import hashlib  # with json a tenth of what importing standpipe costs, and no run needs it
        import json

        return hashlib.blake2b(json.dumps(self.recipe, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def decoder(self) -> str:
        """Versions of what decodes JPEGs."""
        return decoder_version() + ("" if self.pipeline.gpu is None else f", {decoder_of_gpu()}")

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None."""
        return self.source.classes

    @property
    def most_descriptors(self) -> int:
        """Files that this process has open for the run at once, at most: one per thread that reads, two where reads may
        be hedged, or those by which it talks to worker processes; the source's index, tables of the order that don't
        fit the memory, what a cache can't do without, the arena of slots, the file of its snapshots, and that by which
        loaders share the machine.
        """
        index = self.source.descriptors if isinstance(self.source, KeepsIndex) else 0
        others = index + (0 if self.cache is None else FILES_OF_CACHE) + files_of(self.order) + 3
        if self.program is not None and self.executor is Executor.PROCESS:
            return self.files_of_server + FILES_OF_PROCESS * self.most_workers + others
        reads = any(isinstance(spec, Encoded) for spec in self.source.fields.values())
        if self.probes:
            others += FILES_OF_SERVER + FILES_OF_PROCESS
        threads = self.most_workers + ReadAhead.for_workers(self.workers, self.forecast.read_ahead).threads
        each = 1 if self.options.reads.hedge_after_s is None else 2
        return (each * threads if reads else 0) + others

    @property
    def files_of_server(self) -> int:
        """Of these, those by which worker processes are started."""
        shared = isinstance(self.options.fork_from, WorkerOrigin)
        return FILES_OF_SERVER + (FILES_OF_FORK_SERVER if shared else 0)

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
        """Whether epochs have a known end; not those of a stream without a length, or of batches that are given."""
        if isinstance(self.order, Given):
            return False
        return not isinstance(self.order, Streamed) or self.order.known

    @property
    def functions(self) -> tuple[BatchFunction, ...]:
        """What workers do to whole batches."""
        return () if self.mixings else self.pipeline.batch_functions

    @property
    def runs_code_here(self) -> bool:
        """Whether code of the user's runs in this process: then its global random numbers are this process's own."""
        program = self.program
        if program is None or self.executor is Executor.PROCESS:
            return False
        return (
            self.python is not None
            or any(isinstance(step, FunctionStep) for step in program.steps)
            or any(function.mixing is None for function in self.functions)
        )

    @property
    def probes(self) -> bool:
        """Whether a run makes one sample in a process of its own, to see what code that runs here draws from."""
        return self.runs_code_here and self.options.probe and worker_number() is None

    @property
    def not_reproducible(self) -> str | None:
        """Why batches aren't a function of seed, epoch and position alone, and the ways out; None where they are."""
        if not self.drawing:
            return None
        draw = "draws" if len(self.drawing) == 1 else "draw"
        return (
            f"not reproducible: {', '.join(self.drawing)} {draw} from this process's own global generators; take a "
            "parameter rng, which is keyed for each sample, or use executor='process'"
        )

    def probe(self) -> tuple[str, ...] | None:
        """Return the functions that draw from global generators in this process, by one sample; ``drawing`` keeps them.

        The sample is made in a process of its own. None where it can't be made there.
        """
        return runner().drawing(self)

    @property
    def could_keep(self) -> bool:
        """Whether ``.cache(…)`` could keep what is made of a record: nothing is kept yet, and drawing comes later."""
        transforms = self.pipeline.transforms
        drawn_first = first_random(transforms[:1]) is not None and self.python is None
        return self.pipeline.cached is None and not drawn_first and self.stream is None

    @property
    def decodes_exactly(self) -> bool:
        """Whether images are decoded, and ``decode("fast")`` would be another way."""
        encoded = any(isinstance(spec, Encoded) for spec in self.source.fields.values())
        return encoded and self.pipeline.decoding.mode is DecodeMode.EXACT and self.pipeline.gpu is None

    @property
    def gathers(self) -> bool:
        """Whether a function takes the samples of a batch: then one worker makes all of them."""
        return any(function.samples for function in self.functions)

    @property
    def in_turn(self) -> bool:
        """Whether a batch's place in its epoch says which worker makes it."""
        return self.options.in_turn

    @property
    def made_apart(self) -> tuple[str, ...]:
        """Fields that workers hand over value by value: lists, and what is collated."""
        return (*self.listed, *self.collated)

    @property
    def hands_over(self) -> bool:
        """Whether worker processes hand over values that lie in no slot."""
        in_processes = self.program is not None and self.executor is Executor.PROCESS
        return in_processes and bool(self.made_apart or self.functions)

    @property
    def side_grows(self) -> bool:
        """Whether the side arena would be larger with more memory."""
        used = self.hands_over or any(isinstance(spec, Encoded) for spec in self.source.fields.values())
        return used and self.options.side_memory is None and self.forecast.side < SIDE_BYTES[1]

    @property
    def collated(self) -> Mapping[str, Collation]:
        """Fields whose samples differ in shape, and how they come into the slot."""
        return {name: how for name, how in self.contents.items() if isinstance(how, Collation)}

    @property
    def takes_workers(self) -> bool:
        """Return whether ``workers=`` has a meaning: more than one can make samples."""
        return self.executor is not Executor.INLINE and self.stream is None

    @property
    def tunes_workers(self) -> bool:
        """Whether a run finds out how many workers are best."""
        return self.takes_workers and self.options.tunes("workers")

    @property
    def tunes_depth(self) -> bool:
        """Whether a run finds out how many slots are best."""
        return self.executor is not Executor.INLINE and self.options.tunes("depth")

    @property
    def most_depth(self) -> int:
        """Slots that may be filled at once, with what belongs to them."""
        one = (self.forecast.slots + self.forecast.waiting) // self.depth
        return max(min(self.batches_bytes // max(one, 1), self.most_slots), self.depth)

    def depth_for(self, workers: int) -> int:
        """Slots that keep so many workers busy, and one that is lent; as many as there may be, at most."""
        return min(
            max(self._slots_for(workers), self.depth),
            self.most_depth,
        )

    def _slots_for(self, workers: int) -> int:
        return slots_for(
            workers,
            self.cost,
            self.layout.rows,
            whole=self.gathers or self.in_turn,
            slot_bytes=self.layout.stride_bytes,
        )

    @property
    def open(self) -> tuple[str, ...]:
        """Fields that are measured when a loader starts; what the plan says of memory is without them."""
        return tuple(name for name, spec in self.contents.items() if spec is None)

    def explain(self) -> str:
        """What will happen, for a person: every place, every byte of the forecast."""
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
