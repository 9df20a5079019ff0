"""Describe how Python workers make samples, and what the workers of one process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standpipe import _native
from standpipe.batch.collate import Collate
from standpipe.engine.cache import store_counters
from standpipe.engine.python.cached_samples import SampleCache
from standpipe.engine.python.value_checks import Checks
from standpipe.plan.memory import READ_BYTES
from standpipe.read import read_policy
from standpipe.source.targets import BoxForm
from standpipe.spec import Decoding, RaggedSpec, ReadOptions
from standpipe.stats.counters import Counts
from standpipe.transform import BatchFunction, NativeStep, SampleProgram

if TYPE_CHECKING:
    from standpipe.plan.cache import CachePlan

COUNTED_READS = ("retries", "hedged", "opens", "ranges")


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The description from which a worker makes samples. Worker processes receive it once.

    program     steps from a record to a sample
    functions   functions of a batch
    dataset     an object whose ``__getitem__`` gives samples; None for sources that name files
    streams     True if the dataset gives samples in sequence instead, by ``sample(epoch, place)``
    names       fields of samples that aren't dicts
    collate     how fields whose samples differ in shape are put together
    checks      checks of the values of a finished sample
    cache       the cache of samples or files; None without one
    segments    the program of each segment, if parameters change. The programs differ from ``program`` in native steps
                only
    round_robin     True if workers make whole batches in turn, and leave global generators to the user's code
    instances   fields of instances that samples of the dataset have
    box_form    the form of their boxes
    initializer a function that each worker process calls before its first sample; None: there is none
    """

    program: SampleProgram
    functions: tuple[BatchFunction, ...]
    dataset: Any
    streams: bool
    names: tuple[str, ...]
    seed: int
    decoding: Decoding
    reads: ReadOptions
    simd: str | None
    collate: Collate
    checks: Checks
    cache: CachePlan | None
    round_robin: bool = False
    segments: tuple[SampleProgram, ...] = ()
    initializer: Callable[[], object] | None = None
    instances: Mapping[str, RaggedSpec] = field(default_factory=dict)
    box_form: BoxForm = field(default_factory=BoxForm)

    @property
    def decodes(self) -> bool:
        """True if the image of a sample is encoded, and the first step decodes it."""
        first = next(iter(self.program.steps), None)
        return isinstance(first, NativeStep) and bool(first.decodes)

    @property
    def keeps_samples(self) -> bool:
        """True if the cache stores samples that Python code made, after ``program.before_cache`` steps."""
        return self.cache is not None and self.cache.kind == "samples"


@dataclass(frozen=True, slots=True)
class Supplies:
    """Objects that all sample makers of one process share.

    reader  reads files
    side    the side arena: memory for whole decoded images
    kept    the open cache; None without one
    """

    reader: _native.Reader
    side: _native.SideArena
    kept: SampleCache | None

    @classmethod
    def of(
        cls, setup: WorkerSetup, side: _native.SideArena, makers: int = 1, kept: SampleCache | None = None
    ) -> Supplies:
        """Make the supplies for a setup and a number of makers."""
        reader = _native.Reader(read_policy(setup.reads), 2 * READ_BYTES * makers, READ_BYTES)
        return cls(reader, side, kept)

    @property
    def counters(self) -> Counts:
        """The counters of reads and of the cache so far."""
        reads = {name: getattr(self.reader, name) for name in COUNTED_READS}
        reads["slowest_read_s"] = self.reader.slowest_s
        return reads if self.kept is None else {**reads, **store_counters(self.kept.store)}

    def close(self, patience_s: float = 0) -> None:
        """Close the reader and the side arena, so that waits for files and memory fail.

        Wait at most ``patience_s`` seconds until the reader's threads have ended.
        """
        self.reader.close(int(patience_s * 1000))
        self.side.close()
