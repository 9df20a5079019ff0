"""Let a pipeline's methods run plans and loaders, whose modules import pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from standpipe.contracts import Device
from standpipe.plan.options import DEFAULTS, LoaderOptions
from standpipe.spec import Reads
from standpipe.system.workers import WorkerContext

if TYPE_CHECKING:
    from standpipe.loader.loader import Loader
    from standpipe.pipeline.pipeline import Pipeline
    from standpipe.plan.audit import AuditReport
    from standpipe.plan.plan import Plan


class Runner(Protocol):
    """Makes plans and loaders of pipelines. The description imports none of these modules, which import it."""

    def plan(self, pipeline: Pipeline, options: LoaderOptions) -> Plan:
        """Plan a run."""

    def loader(self, pipeline: Pipeline, options: LoaderOptions) -> Loader:
        """Plan and run, with the scans and fills that have to come first."""

    def audit(
        self,
        pipeline: Pipeline,
        ranks: int,
        epochs: int,
        executor: Literal["process", "thread", "inline"] | None,
    ) -> AuditReport:
        """Count what ranks get."""

    def run_filters(self, pipeline: Pipeline, options: LoaderOptions) -> None:
        """Ask filters by content about all records."""

    def drawing(self, plan: Plan) -> tuple[str, ...] | None:
        """Find functions that use global random generators, by one sample."""


_runners: list[Runner] = []


def run_by(runner: Runner) -> None:
    """Name what comes after the description: ``standpipe`` does when it is imported."""
    _runners[:] = [runner]


def runner() -> Runner:
    """Return what comes after the description."""
    return _runners[0]


class Runnable:
    """The methods of a pipeline that do something with it."""

    __slots__ = ()

    def _whole(self) -> Pipeline:
        return cast("Pipeline", self)

    def plan(
        self,
        *,
        memory: int | str | None = DEFAULTS.memory,
        num_workers: int | Literal["auto"] = DEFAULTS.num_workers,
        executor: Literal["process", "thread", "inline"] | None = DEFAULTS.executor,
        prefetch: int | Literal["auto"] = DEFAULTS.prefetch,
        autotune: bool = DEFAULTS.autotune,
        large_image_memory: int | str | None = DEFAULTS.large_image_memory,
        memory_per_worker: int | str | None = DEFAULTS.memory_per_worker,
        batch_release_timeout_s: float = DEFAULTS.batch_release_timeout_s,
        reads: Reads = DEFAULTS.reads,
        slow_sample_s: float = DEFAULTS.slow_sample_s,
        stall_timeout_s: float | None = DEFAULTS.stall_timeout_s,
        start_timeout_s: float | None = DEFAULTS.start_timeout_s,
        mp_context: WorkerContext = DEFAULTS.mp_context,
        in_turn: bool = DEFAULTS.in_turn,
        probe: bool = DEFAULTS.probe,
        decode_device: str = DEFAULTS.decode_device,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
        device: Device | None = DEFAULTS.device,
        **unknown: Any,
    ) -> Plan:
        """Check the description, size everything and forecast memory. Reads metadata, and the headers of up to 16
        files that are no JPEGs by their names; decodes no sample.

        memory                   ceiling in bytes of what standpipe allocates, or text such as ``"2GiB"``; default: half
                                 of the memory that is free and that no other loader may take yet, in equal parts for
                                 the processes that a launcher has started on this machine
        num_workers              threads or processes that make samples; ``"auto"`` (default): at first one per CPU that
                                 this process may use, fewer when memory is short; then as many as turn out to be best
        executor                 who runs Python code, of data sets and transforms: ``"process"`` (default where the
                                 system is Linux), in which global random numbers depend on the sample alone;
                                 ``"thread"``; or ``"inline"``, the thread that asks for a batch, in which a debugger
                                 can stop
        prefetch                 batches that are made ahead of the one that the loop has; ``"auto"`` (default): at
                                 first 1, more for batches smaller than what the workers have in hand; then as many as
                                 turn out to be best
        autotune                 whether ``num_workers="auto"`` and ``prefetch="auto"`` are tuned while a loader runs,
                                 within ``memory`` and the CPUs that there are (default); False: they stay what they are
                                 at first
        large_image_memory       bytes (or text) for samples that need a whole frame at once: progressive JPEGs, other
                                 formats; default: 256 MiB, less when ``memory`` is short, and enough for each of the
                                 first samples that are no JPEGs by their names
        memory_per_worker        bytes (or text) that a worker process may have of its own; one with more gives way to a
                                 new one, between two pieces of work, and no batch changes. Default: an equal part of
                                 half of what ``memory`` leaves
        batch_release_timeout_s  seconds to wait for a batch to be dropped when the caller holds as many as fit the
                                 memory, for consumers that hand batches to other threads; default 0: ``BudgetError`` at
                                 once
        reads                    what happens when a file isn't read at once: ``Reads(retries=…, backoff_s=…,
                                 hedge_after_s=…)``
        slow_sample_s            seconds after which the log ``standpipe`` names the sample that a worker is at, and the
                                 line of code; default: 5
        stall_timeout_s          seconds after which a sample is bad, with ``StalledError``: a worker process that makes
                                 it is killed, and the sample tried once more; default: 120. None: never
        start_timeout_s          seconds that worker processes have to start, with all imports and the data set, where
                                 that is more than ``stall_timeout_s``; default: None
        mp_context               how worker processes start, in multiprocessing's words. ``"spawn"`` (default): from an
                                 interpreter of their own, which imports what they need, for each loader.
                                 ``"forkserver"``: from a process that has imported it, which all loaders of this
                                 process share, so that only the first one waits; it ends five minutes after the last
                                 one. ``"fork"``: from this process, whose data set they have without pickling it, and
                                 whose memory they copy page by page as they write to it; refused while standpipe has
                                 threads here. Or a ``ForkServer()`` of your own
        in_turn                  whether worker ``k % num_workers`` makes batch k, all of it, for code that keeps
                                 generators in each worker process: no sample is made twice there, and global generators
                                 are the code's own. It takes ``batch(…, batch_sampler=True)`` and a number of
                                 processes; default: False
        probe                    whether one sample is made in a process of its own beside the first batches, where
                                 Python code runs in this one, to warn of code that draws from global generators;
                                 default: True
        decode_device            which GPU decodes, with ``decode("gpu")`` or ``"hybrid"``: ``"cuda"`` (default) is
                                 torch's current one where torch uses CUDA, else the first; ``"cuda:1"``; or ``"cpu"``:
                                 its library's decoder for the CPU, to try such a pipeline where no GPU is
        error_log                a file to which every bad sample that was replaced is added, as a line of JSON; several
                                 ranks may share one
        device                   where batches go, from an adapter: ``standpipe.torch.loader(…, device="cuda")``;
                                 default: NumPy arrays in host memory

        Raises ``PlanError`` for what can't work, ``BudgetError`` when it can't within ``memory``.
        """
        return runner().plan(self._whole(), _options(locals()))

    def audit(
        self,
        *,
        ranks: int = 1,
        epochs: int = 1,
        executor: Literal["process", "thread", "inline"] | None = None,
    ) -> AuditReport:
        """Check, without reading a sample, what ``ranks`` data ranks would get in the first ``epochs`` epochs.

        Counts every record that every step of every rank names. 2 bytes of memory per record; where the order
        samples 8. With an ``executor`` that runs Python code in the training process, one sample is made in
        another process: the audit fails when that draws from global generators.
        """
        return runner().audit(self._whole(), ranks, epochs, executor)

    def loader(
        self,
        *,
        memory: int | str | None = DEFAULTS.memory,
        num_workers: int | Literal["auto"] = DEFAULTS.num_workers,
        executor: Literal["process", "thread", "inline"] | None = DEFAULTS.executor,
        prefetch: int | Literal["auto"] = DEFAULTS.prefetch,
        autotune: bool = DEFAULTS.autotune,
        large_image_memory: int | str | None = DEFAULTS.large_image_memory,
        memory_per_worker: int | str | None = DEFAULTS.memory_per_worker,
        batch_release_timeout_s: float = DEFAULTS.batch_release_timeout_s,
        reads: Reads = DEFAULTS.reads,
        slow_sample_s: float = DEFAULTS.slow_sample_s,
        stall_timeout_s: float | None = DEFAULTS.stall_timeout_s,
        start_timeout_s: float | None = DEFAULTS.start_timeout_s,
        mp_context: WorkerContext = DEFAULTS.mp_context,
        in_turn: bool = DEFAULTS.in_turn,
        probe: bool = DEFAULTS.probe,
        decode_device: str = DEFAULTS.decode_device,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
        device: Device | None = DEFAULTS.device,
        **unknown: Any,
    ) -> Loader:
        """Plan, then run: an iterable of batches. Arguments and errors as of ``plan()``.

        Where a function filters and nobody asked it yet, ``run_filters`` comes first; where several machines
        train and each keeps all rows, ``Cache(scope="node")``, so does ``standpipe.fill_cache``, unless they
        are there.
        """
        return runner().loader(self._whole(), _options(locals()))

    def run_filters(self, **options: Any) -> None:
        """Ask the functions of ``filter`` about all samples, unless their answers are in the user's cache folder.

        After that ``plan()`` knows which records there are. One process of a machine asks, the others wait.
        What it has done is kept however it ends, so one that was killed goes on from there. Progress goes to
        the log ``standpipe`` every few seconds.

        options  ``memory``, ``workers``, ``executor``, ``large_image_memory``, ``reads``, ``slow_sample_s``,
                 ``stall_timeout_s`` and ``mp_context``, as of ``plan()``; others mean nothing

        Raises the ``SampleError`` of the first sample that can't be read or that a function fails on, and
        ``PlanError`` when the cache folder can't be written.
        """
        runner().run_filters(self._whole(), LoaderOptions.of(options))


def _options(arguments: Mapping[str, Any]) -> LoaderOptions:
    """Return the options among a method's ``locals()``, with what it was given besides under ``unknown``."""
    given = {name: value for name, value in arguments.items() if name not in ("self", "unknown")}
    return LoaderOptions.of({**given, **arguments["unknown"]})
