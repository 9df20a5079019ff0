"""The parts of a plan: how samples are made, what a batch holds, who makes it, and in how much memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standpipe.batch import Collation, Contents, SlotLayout
from standpipe.contracts import Finish, PythonSource, StreamSource
from standpipe.plan.memory import MemoryForecast, WorkerCost
from standpipe.spec import ArraySpec, Executor, Labels, Listed
from standpipe.transform import ImageKernel, Mixing, SampleProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlan:
    """How samples are made.

    python   the source, where Python code gives its samples; else None
    stream   the source, where its samples come one after another; else None
    kernel   what native threads do to every image, when no Python code takes part
    program  what workers in Python do to every sample, when some does
    labels   those that are looked at sample by sample, as no column tells them
    finish   the last step of images that native threads make, here or on the device; None where there is none
    mixings  what is done to whole batches on the device
    simd     an instruction set instead of the widest this machine runs: ``"scalar"``, ``"avx2"``, …; all give
             the same bytes
    """

    python: PythonSource | None
    stream: StreamSource | None
    kernel: ImageKernel | None
    program: SampleProgram | None
    labels: tuple[Labels, ...]
    finish: Finish | None
    mixings: tuple[Mixing, ...]
    simd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a batch holds.

    layout      where the fields of a slot lie
    contents    how a batch holds each field of its samples; None for what is measured when a loader starts
    known_from  who says what a sample looks like: ``"in record 7"``
    """

    layout: SlotLayout
    contents: Contents
    known_from: str = "as declared"

    @property
    def fields(self) -> Mapping[str, ArraySpec]:
        """The fields that lie in the slot, with shape and dtype of one row."""
        return self.layout.fields

    @property
    def sample_fields(self) -> tuple[str, ...]:
        """Of these, the fields that a sample fills."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, ArraySpec))

    @property
    def listed(self) -> tuple[str, ...]:
        """Fields that lie in no slot: a batch has lists of them."""
        return tuple(name for name, spec in self.contents.items() if isinstance(spec, Listed))

    @property
    def collated(self) -> Mapping[str, Collation]:
        """Fields whose samples differ in shape, and how they come into the slot."""
        return {name: how for name, how in self.contents.items() if isinstance(how, Collation)}

    @property
    def made_apart(self) -> tuple[str, ...]:
        """Fields that workers hand over value by value: lists, and what is collated."""
        return (*self.listed, *self.collated)

    @property
    def open(self) -> tuple[str, ...]:
        """Fields that are measured when a loader starts; what the plan says of memory is without them."""
        return tuple(name for name, spec in self.contents.items() if spec is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """Who makes samples.

    executor      threads, processes, or the caller's thread
    workers       that begin; ``most_workers`` is how many there may be where they are tuned
    cost          memory of the workers: an estimate, which is measured for processes when a loader starts
    worker_bytes  that a worker process may have of its own before another one takes its place
    """

    executor: Executor
    workers: int
    most_workers: int
    cost: WorkerCost
    worker_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How a run's memory is shared out.

    budget_bytes   the ceiling of everything standpipe allocates
    forecast       who takes how much
    slots          that a run begins with; ``most_slots`` is how many there may be
    batches_bytes  of all slots that there may be, with samples outside of them
    """

    budget_bytes: int
    forecast: MemoryForecast
    slots: int
    most_slots: int
    batches_bytes: int

    @property
    def most_tuned_slots(self) -> int:
        """Slots that may be filled at once, with what belongs to them."""
        one = (self.forecast.slots + self.forecast.waiting) // self.slots
        return max(min(self.batches_bytes // max(one, 1), self.most_slots), self.slots)
