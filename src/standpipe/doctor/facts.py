"""The facts that the probe recorded in a script's run, by DataLoader, without any judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from standpipe.doctor.child.standpipe_probe.record import NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The resources of the machine, or the container.

    cores        CPUs by affinity and quota
    memory_free  bytes that were free before the script ran
    memory       bytes in total
    shm_free     free bytes of /dev/shm; ``shm``: in total
    cuda         True if torch could use a GPU
    ranks        processes of the script that ran at once
    """

    cores: int
    memory_free: int
    memory: int
    shm_free: int
    shm: int
    cuda: bool = False
    ranks: int = 1

    @property
    def cores_each(self) -> int:
        """CPUs for each rank."""
        return max(1, self.cores // self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a process in bytes.

    pss      all its pages; a page of n processes counts as 1/n
    private  pages that only this process has, and has written
    """

    pss: int = 0
    private: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """One batch, as measured in the process that made it.

    indices     indices of the first 64 samples, without those that aren't integers
    prints      fingerprints of samples: of the whole sample under ``""``, and of its parts by path
    seconds     seconds to make all samples, without collate
    cpu_s       CPU seconds, collate included; ``queued_s``: seconds of waiting for a CPU
    slowest     (index of the slowest sample, its seconds)
    transforms  seconds by name of the transform
    drawn       names of the generators that samples used
    memory      memory of the process after the batch; None: not measured
    anonymous   bytes of heaps and stacks of the process, also of pages that it shares with its parent
    """

    samples: int = 0
    indices: Sequence[int] = ()
    prints: Sequence[dict[str, str]] = ()
    seconds: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0
    collate_s: float = 0.0
    slowest: Sequence[Any] = (None, 0.0)
    median_s: float = 0.0
    transforms: dict[str, float] = field(default_factory=dict)
    drawn: Sequence[str] = ()
    memory: Memory | None = None
    anonymous: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker in one epoch, or the main process (-1).

    random  a fingerprint of each generator's state before the first sample, by name
    """

    epoch: int
    worker: int
    pid: int = 0
    random: dict[str, str] = field(default_factory=dict)
    memory: Memory | None = None
    made: tuple[BatchFacts, ...] = ()

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Return the known figures of its memory, at the start and after batches."""
        return tuple(each for each in (self.memory, *(made.memory for made in self.made)) if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One batch, as measured in the script's training loop.

    wait_s  seconds that the loop waited for the batch
    step_s  seconds from the previous batch until the loop requested this one; None for an epoch's first
    cpu_s   CPU seconds of the main process so far
    at      time at which the batch came, by ``time.monotonic()``
    """

    epoch: int
    wait_s: float
    step_s: float | None
    bytes: int = 0
    cpu_s: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The contents of an attribute of a dataset.

    objects  number of Python objects, with ``bytes``; ``arrays``: bytes of NumPy arrays
    """

    path: str
    kind: str
    objects: int
    bytes: int
    arrays: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """An exception in a sample, or in the collate function.

    shapes  (index, types and shapes) of each sample that collate got; ``paths``: the samples' files
    """

    worker: int
    index: Any
    path: str | None
    type: str
    message: str
    where: str
    shapes: Sequence[Sequence[Any]] = ()
    paths: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of workers: the start method, and the main process's other threads and use of CUDA then."""

    method: str
    threads: Sequence[str] = ()
    cuda: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """One DataLoader in one rank's process: its settings, then what happened.

    samples, sampled  length of the dataset, and of the sampler; None: it has no length
    stuck             (worker, index, seconds) of samples that weren't finished when the time was over
    failure           type and message of the error that the loader raised in the script; None: none
    """

    site: str
    rank: int = 0
    dataset: str = "Dataset"
    iterable: bool = False
    samples: int | None = None
    batches: int | None = None
    sampler: str = "SequentialSampler"
    sampled: int | None = None
    workers: int = 0
    batch: int | None = 1
    prefetch: int | None = None
    persistent: bool = False
    pinned: bool = False
    method: str | None = None
    world_size: int = 1
    holdings: tuple[Holding, ...] = ()
    cuda_path: str | None = None
    collate: str = "default_collate"
    makers: tuple[WorkerFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    starts: tuple[Start, ...] = ()
    bad: tuple[Bad, ...] = ()
    stuck: tuple[tuple[int, int, float], ...] = ()
    failure: tuple[str, str] | None = None

    @property
    def epochs(self) -> int:
        """Number of epochs that gave a batch."""
        return len({step.epoch for step in self.steps})

    @property
    def startup_s(self) -> float:
        """Median seconds to the first batch of an epoch; of two epochs, the smaller value."""
        first = sorted(step.wait_s for step in self.steps if step.step_s is None)
        return first[(len(first) - 1) // 2] if first else 0.0

    @property
    def steady(self) -> tuple[StepFacts, ...]:
        """Steps without each epoch's first ones, whose batches were made while the loop waited for the first."""
        ahead = self.workers * (self.prefetch or 0)
        later: list[StepFacts] = []
        every: list[StepFacts] = []
        for epoch in sorted({step.epoch for step in self.steps}):
            steps = [step for step in self.steps if step.epoch == epoch]
            every += steps[1:]
            later += steps[max(1, ahead) :]
        return tuple(later if len(later) >= 8 else every)

    @property
    def wait_share(self) -> float:
        """Fraction of the time that steady steps waited."""
        return self.wait_s / (self.wait_s + self.step_s) if self.steady else 0.0

    @property
    def wait_s(self) -> float:
        """Mean seconds that a steady step waited."""
        return _mean([step.wait_s for step in self.steady])

    @property
    def step_s(self) -> float:
        """Mean seconds of the script's own work in a steady step."""
        return _mean([step.step_s or 0.0 for step in self.steady])

    @property
    def made(self) -> tuple[BatchFacts, ...]:
        """Return the batches of all epochs."""
        return tuple(made for maker in self.makers for made in maker.made)

    @property
    def sample_s(self) -> float:
        """Mean seconds to make one sample."""
        return sum(made.seconds for made in self.made) / max(sum(made.samples for made in self.made), 1)

    @property
    def queued_share(self) -> float:
        """Fraction of the time of making batches in which they waited for a CPU."""
        whole = sum(made.seconds + made.collate_s for made in self.made)
        return min(sum(made.queued_s for made in self.made) / whole, 1.0) if whole else 0.0

    @property
    def collate_s(self) -> float:
        """Median seconds to collate one batch."""
        return _median([made.collate_s for made in self.made])

    @property
    def collate_share(self) -> float:
        """Fraction of the time of making batches that the collate function took."""
        whole = sum(made.seconds + made.collate_s for made in self.made)
        return sum(made.collate_s for made in self.made) / whole if whole else 0.0

    @property
    def batch_s(self) -> float:
        """Median seconds to make one batch, without waiting for a CPU."""
        return _median([max(made.seconds + made.collate_s - made.queued_s, 0.0) for made in self.made])

    @property
    def transforms(self) -> dict[str, float]:
        """Mean seconds of a sample by transform, the slowest first; ``""`` has the sample's other time."""
        samples = max(sum(made.samples for made in self.made), 1)
        total: dict[str, float] = {}
        for made in self.made:
            for name, took in made.transforms.items():
                total[name] = total.get(name, 0.0) + took / samples
        by_time = dict(sorted(total.items(), key=lambda item: -item[1]))
        whole = sum(made.seconds for made in self.made) / samples
        return {**by_time, "": max(whole - sum(by_time.values()), 0.0)} if by_time else {}

    @property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch's tensors."""
        return max((step.bytes for step in self.steps), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The end of a script's run, and its loaders, in all ranks.

    how      ``enough``, ``finished``, ``raised``, ``exited``, or ``killed`` if it left no message
    error    type and message of its exception
    code     its exit code, or the negative number of a signal
    cut      True if epochs were cut short
    withheld files that the script saved, replaced or removed; scratch files stood in for them
    own      number of epochs of standpipe's own loaders, which aren't examined
    drawing  (line that made a standpipe loader, its code that uses the script's global generators)
    """

    how: str
    loaders: tuple[LoaderFacts, ...]
    error: tuple[str, str] | None = None
    code: int | None = None
    cuda: bool = False
    cut: bool = False
    withheld: tuple[str, ...] = ()
    own: int = 0
    drawing: Sequence[tuple[str, Sequence[str]]] = ()


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _median(numbers: list[float]) -> float:
    return median(numbers) if numbers else 0.0


def now_at(path: Path, clock: float) -> tuple[int, float] | None:
    """Return (index, seconds so far) of the sample that a process is making; None between samples."""
    content = path.read_bytes()
    if len(content) < NOW.size:
        return None
    index, since = NOW.unpack(content)
    return None if index < 0 else (index, clock - since)
