"""The parts of a plan: how samples are made, what a batch holds, who makes it, and in how much memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standpipe.batch.collate import Collation, Contents, Padded
from standpipe.batch.instances import InstanceFields
from standpipe.batch.layout import SlotLayout
from standpipe.contracts import Finish, PythonSource, StreamSource
from standpipe.plan.memory import MemoryForecast, WorkerCost
from standpipe.spec import BATCH_FIELDS, ArraySpec, Executor, Labels, Listed
from standpipe.transform import ComposedKernel, Left, Mixing, NativeKernel, NativeStep, SampleProgram
from standpipe.transform.pixels.instances import SanitizeBoundingBoxes


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlan:
    """The rules for the instances of a sample.

    filters  what drops instances of each image, by the image's name; None: nothing does
    pairs    numbers of left and right keypoints, which swap where the image is mirrored
    boxes_from_shapes  True if boxes are those around the moved shapes
    """

    filters: Mapping[str, SanitizeBoundingBoxes | None]
    pairs: tuple[tuple[int, int], ...]
    boxes_from_shapes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlan:
    """The making of samples.

    python   the source, if Python code gives its samples; else None
    stream   the source, if its samples come in sequence; else None
    kernel   the native kernel for every image, if no Python code takes part
    composed  where rows are made of several images: how, with ``kernel`` as its last kernel; else None
    program  the steps of Python workers for every sample, if Python code takes part
    labels   labels that are checked sample by sample, since no column has them
    finish   the last step of natively made images, here or on the device; None without one
    mixings  functions of whole batches that run on the device
    suspects  fields of the image's size that aren't moved with it; the run warns of them
    simd     an instruction set instead of the widest this machine runs: ``"scalar"``, ``"avx2"``, …; all give
             the same bytes
    instances  what happens to the instances; None if the source has none
    """

    python: PythonSource | None
    stream: StreamSource | None
    kernel: NativeKernel | None
    program: SampleProgram | None
    labels: tuple[Labels, ...]
    finish: Finish | None
    mixings: tuple[Mixing, ...]
    suspects: tuple[Left, ...] = ()
    simd: str | None = None
    instances: InstancePlan | None = None
    composed: ComposedKernel | None = None

    @property
    def kernels(self) -> list[NativeKernel]:
        """The native kernels that make the images, in order."""
        if self.kernel is not None:
            return [self.kernel]
        steps = () if self.program is None else self.program.steps
        found = [step.kernel or step.any_size for step in steps if isinstance(step, NativeStep)]
        return [kernel for kernel in found if kernel is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Steps in which parameters of transforms have one value: those of consecutive epochs, or some of them.

    first_epoch  the first of these epochs; they end before a later one of another segment. Where several segments have
                 the same one, each step of these epochs is drawn for one of them
    samples      the making of samples in these steps
    layout       where the fields of a slot are in these steps
    """

    first_epoch: int
    samples: SamplePlan
    layout: SlotLayout


@dataclass(frozen=True, slots=True)
class MeasuredSample:
    """The facts about one sample that a plan may lack.

    fields  form of each field of the finished sample
    left    values that native transforms of the image left behind
    """

    fields: Mapping[str, ArraySpec | Listed]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The contents of a batch.

    layout      where the fields of a slot are
    contents    the form of each field; None for what is measured when a loader starts
    known_from  where the layout of a sample was learned: ``"in record 7"``
    measured    that sample, for each segment; empty if nothing was measured
    instances   the fields that come from instances; None without any
    """

    layout: SlotLayout
    contents: Contents
    known_from: str = "as declared"
    measured: tuple[MeasuredSample, ...] = ()
    instances: InstanceFields | None = None

    @property
    def added(self) -> tuple[str, ...]:
        """The fields that the trainer's own thread writes, not the workers."""
        return BATCH_FIELDS if self.instances is None else (*BATCH_FIELDS, *self.instances.names)

    @property
    def fields(self) -> Mapping[str, ArraySpec]:
        """The fields that are stored in the slot, with shape and dtype of one row."""
        return self.layout.fields

    @property
    def sample_fields(self) -> tuple[str, ...]:
        """The fields of these that a sample fills."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, ArraySpec))

    @property
    def listed(self) -> tuple[str, ...]:
        """Fields that aren't stored in a slot: a batch has lists of them."""
        return self.sample_lists if self.instances is None else (*self.sample_lists, *self.instances.listed)

    @property
    def sample_lists(self) -> tuple[str, ...]:
        """The fields of these that samples have."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, Listed))

    @property
    def collated(self) -> Mapping[str, Collation]:
        """Fields whose samples differ in shape, and how they come into the slot when all have been made."""
        collations = {name: how for name, how in self.contents.items() if isinstance(how, Collation)}
        return {name: how for name, how in collations.items() if name not in self.canvases}

    @property
    def canvases(self) -> Mapping[str, Padded]:
        """Pictures that differ in size, which a native kernel writes into the slot with their padding."""
        padded = {name: how for name, how in self.contents.items() if isinstance(how, Padded)}
        return {name: how for name, how in padded.items() if how.native}

    @property
    def made_apart(self) -> tuple[str, ...]:
        """Fields that workers hand over value by value: lists, and what is collated."""
        instances = () if self.instances is None else self.instances.handed_over
        return (*self.sample_lists, *self.collated, *instances)

    @property
    def open(self) -> tuple[str, ...]:
        """Fields that are measured when a loader starts; what the plan says of memory is without them."""
        return tuple(name for name, spec in self.contents.items() if spec is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The workers that make samples.

    executor      threads, processes, or the caller's thread
    workers       number at the start; ``most_workers`` limits it where it is tuned
    cost          memory of the workers: an estimate, which is measured for processes when a loader starts
    worker_bytes  bytes of its own that a worker process may use before it is replaced
    """

    executor: Executor
    workers: int
    most_workers: int
    cost: WorkerCost
    worker_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The division of a run's memory.

    budget_bytes   limit of all that standpipe allocates
    forecast       bytes by purpose
    slots          number for the most workers; the caller may hold further ones, up to ``most_slots`` together
    batches_bytes  bytes of the most slots, with values outside of them
    """

    budget_bytes: int
    forecast: MemoryForecast
    slots: int
    most_slots: int
    batches_bytes: int
