"""The methods of a pipeline that run plans and loaders, whose modules import pipelines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from standpipe.contracts import Device, Fleet
from standpipe.plan.options import DEFAULTS, LoaderOptions
from standpipe.spec import AnyArray, ExecutorName, Reads
from standpipe.system.workers import WorkerContext

if TYPE_CHECKING:
    from standpipe.jobs.show import Sheet
    from standpipe.loader.loader import Loader
    from standpipe.pipeline.pipeline import Pipeline
    from standpipe.plan.audit import AuditReport
    from standpipe.plan.plan import Plan


class Runner(Protocol):
    """The maker of plans and loaders. The description can't import their modules, which import it."""

    def plan(self, pipeline: Pipeline, options: LoaderOptions) -> Plan:
        """Plan a run of a pipeline."""

    def loader(self, pipeline: Pipeline, options: LoaderOptions) -> Loader:
        """Return a loader of a pipeline. First run the filter scans and cache fills that it needs."""

    def audit(
        self,
        pipeline: Pipeline,
        ranks: int,
        epochs: int,
        executor: ExecutorName | None,
    ) -> AuditReport:
        """Count the records that each rank gets."""

    def run_filters(self, pipeline: Pipeline, options: LoaderOptions) -> None:
        """Call filter functions for all records."""

    def drawing(self, plan: Plan) -> tuple[str, ...] | None:
        """Return the functions that use global random generators, found by making one sample."""

    def apply(self, pipeline: Pipeline, images: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the batch of given images."""

    def show(self, pipeline: Pipeline, n: int, steps: bool, epoch: int | Sequence[int]) -> Sheet:
        """Return a picture of an epoch's first samples."""

    def maker(self, plan: Plan) -> Any:
        """Start the workers of a plan, and return what makes batches with them."""


_runners: list[Runner] = []


def run_by(runner: Runner) -> None:
    """Register the runner. ``standpipe`` calls this when it is imported."""
    _runners[:] = [runner]


def runner() -> Runner:
    """Return the registered runner."""
    return _runners[0]


class Runnable:
    """The methods of a pipeline that make plans and loaders of it."""

    __slots__ = ()

    def _whole(self) -> Pipeline:
        return cast("Pipeline", self)

    def plan(
        self,
        *,
        memory: int | str | None = DEFAULTS.memory,
        num_workers: int | Literal["auto"] = DEFAULTS.num_workers,
        executor: ExecutorName | None = DEFAULTS.executor,
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
        initializer: Callable[[], object] | None = DEFAULTS.initializer,
        in_turn: bool = DEFAULTS.in_turn,
        probe: bool = DEFAULTS.probe,
        decode_device: str = DEFAULTS.decode_device,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
        device: Device | None = DEFAULTS.device,
        fleet: Fleet | None = DEFAULTS.fleet,
        **unknown: Any,
    ) -> Plan:
        """Check the pipeline, compute all sizes, and forecast memory.

        It reads metadata, and the headers of up to 16 files that aren't JPEGs by their names. It decodes no
        sample.

        Parameters
        ----------
        memory : int or str, optional
            Most bytes that standpipe may allocate, as a number or text such as ``"2GiB"``. Default: half of
            the memory that is free and that no other loader may still take, divided equally among the
            processes that a launcher started on this machine.
        num_workers : int or "auto", default "auto"
            Number of threads or processes that make samples. ``"auto"`` begins with one per CPU that this
            process may use, or fewer if memory is short. A running loader then finds the best number.
        executor : {"process", "thread", "inline"}, optional
            The place where Python code of data sets and transforms runs. ``"process"``: worker processes, in
            which global random numbers depend only on the sample. ``"thread"``: worker threads.
            ``"inline"``: the thread that asks for a batch, so that a debugger can stop there. Default:
            ``"process"`` on Linux, else ``"thread"``.
        prefetch : int or "auto", default "auto"
            Number of batches that are made ahead of the one that the loop has. ``"auto"`` is 1, or more if all
            workers together have more than a batch in work. It doesn't change while a loader runs.
        autotune : bool, default True
            Tune ``num_workers="auto"`` while a loader runs, within ``memory`` and the available CPUs. False: it
            keeps its first value.
        large_image_memory : int or str, optional
            Bytes (or text) for images that need a whole frame at once: progressive JPEGs, other formats.
            Default: 256 MiB, less if ``memory`` is short, and enough for each of the first samples that
            aren't JPEGs by their names.
        memory_per_worker : int or str, optional
            Bytes (or text) that a worker process may have of its own. A process with more is replaced by a
            new one between two tasks; batches stay the same. Default: an equal part of half of what
            ``memory`` leaves.
        batch_release_timeout_s : float, default 0
            Seconds to wait for a batch to be released, when the program holds as many as fit into memory.
            For programs that hand batches to other threads. 0: ``BudgetError`` at once.
        reads : Reads, default Reads()
            Retries of files that can't be read at once: ``Reads(retries=…, backoff_s=…, hedge_after_s=…)``.
        slow_sample_s : float, default 5
            Seconds after which the log ``standpipe`` names the sample that a worker is making, and the line
            of code.
        stall_timeout_s : float or None, default 120
            Seconds after which a sample is bad, with ``StalledError``. A worker process that makes it is
            killed, and the sample is tried once more. None: never.
        start_timeout_s : float, optional
            Seconds that worker processes have to start, including all imports and the data set, if that is
            more than ``stall_timeout_s``.
        mp_context : {"spawn", "forkserver", "fork"} or ForkServer, default "spawn"
            The way in which worker processes start, as in multiprocessing. ``"spawn"``: each loader starts a
            new interpreter, which imports what they need. ``"forkserver"``: from a process that has already
            imported it. All loaders of this process share it, so only the first one waits; it ends five
            minutes after its last use. ``"fork"``: from this process, with its data set, without pickling;
            memory is copied page by page as they write to it. It is refused while standpipe has threads here.
            Or a ``ForkServer()`` of your own.
        initializer : callable, optional
            A function without arguments that each worker process calls once, before its first sample: to open
            connections, or to change what the workers' libraries do. It is sent by cloudpickle. With native
            workers, threads and ``"inline"``, this process calls it once, when the loader starts. Default: none.
        in_turn : bool, default False
            True: worker ``k % num_workers`` makes all of batch k. For code that keeps generators in each
            worker process: no sample is made twice, and the code itself controls global generators. It
            needs ``batch(…, batch_sampler=True)``, worker processes and a number for ``num_workers``.
        probe : bool, default True
            Make one sample in a separate process beside the first batches, if Python code runs in this
            process, and warn of code that uses global random generators.
        decode_device : str, default "cuda"
            The GPU that decodes, with ``decode("gpu")`` or ``"hybrid"``. ``"cuda"``: torch's current one if
            torch uses CUDA, else the first. ``"cuda:1"``: the second. ``"cpu"``: the decoder of the same
            library for the CPU, to try such a pipeline without a GPU.
        error_log : path, optional
            A file to which a line of JSON is added for every bad sample that was replaced. Several ranks may
            use one file.
        device : Device, optional
            The place of batches, from an adapter: ``standpipe.torch.loader(…, device="cuda")``. Default:
            NumPy arrays in host memory.
        fleet : Fleet, optional
            Processes outside this one that make the batches, from an adapter: ``standpipe.ray.start(pipeline)``.
            Batches stay the same. Default: this loader's own workers.
        **unknown
            Any other argument raises ``TypeError``, which names the right one, such as for ``drop_last``.

        Returns
        -------
        Plan

        Raises
        ------
        PlanError
            For a pipeline or options that can't work.
        BudgetError
            If the pipeline doesn't fit into ``memory``.
        TypeError
            For an unknown argument.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32), sp.Normalize()).batch(8)
        >>> plan = pipeline.plan(memory="256MiB")
        >>> plan.steps.per_epoch, str(plan.fields["image"])
        (3, '(3, 32, 32) float32')
        """
        return runner().plan(self._whole(), _options(locals()))

    def audit(
        self,
        *,
        ranks: int = 1,
        epochs: int = 1,
        executor: ExecutorName | None = None,
    ) -> AuditReport:
        """Count the records that data ranks would get, without reading a sample.

        It counts every record in every step of every rank. It needs 2 bytes of memory per record, or 8 if the
        order samples. With an ``executor`` that runs Python code in the training process, it also makes one
        sample in another process. The audit fails if that sample uses global random generators.

        Parameters
        ----------
        ranks : int, default 1
            Number of data ranks.
        epochs : int, default 1
            Number of epochs to count, from the first.
        executor : {"process", "thread", "inline"}, optional
            See ``plan``.

        Returns
        -------
        standpipe.reports.AuditReport

        Examples
        --------
        >>> report = sp.Pipeline(sp.Arrays(x=np.arange(16))).shuffle(seed=7).batch(4).audit(ranks=2, epochs=3)
        >>> report.ok, report.steps
        (True, (2, 2))
        """
        return runner().audit(self._whole(), ranks, epochs, executor)

    def loader(
        self,
        *,
        memory: int | str | None = DEFAULTS.memory,
        num_workers: int | Literal["auto"] = DEFAULTS.num_workers,
        executor: ExecutorName | None = DEFAULTS.executor,
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
        initializer: Callable[[], object] | None = DEFAULTS.initializer,
        in_turn: bool = DEFAULTS.in_turn,
        probe: bool = DEFAULTS.probe,
        decode_device: str = DEFAULTS.decode_device,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
        device: Device | None = DEFAULTS.device,
        fleet: Fleet | None = DEFAULTS.fleet,
        **unknown: Any,
    ) -> Loader:
        """Make a plan, and return a loader of it: an iterable of batches.

        Parameters and errors are those of ``plan``. ``run_filters`` comes first if a filter function has no
        answers yet. So does ``standpipe.fill_cache`` with ``Cache(scope="node")``, if several machines train
        and the rows aren't kept yet.

        Returns
        -------
        Loader

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
        >>> with pipeline.loader(memory="256MiB", num_workers=1) as loader:
        ...     print(sum(len(batch["label"]) for batch in loader))
        24
        """
        return runner().loader(self._whole(), _options(locals()))

    def run_filters(self, **options: Any) -> None:
        """Call the functions of ``filter`` for all records, unless the user's cache folder has the answers.

        Afterwards ``plan()`` knows the selected records. One process of a machine calls the functions, the
        others wait. Answers are kept even if the process ends early, so the next one continues from there.
        Progress goes to the log ``standpipe`` every few seconds.

        Parameters
        ----------
        **options
            ``memory``, ``num_workers``, ``executor``, ``large_image_memory``, ``reads``, ``slow_sample_s``,
            ``stall_timeout_s``, ``mp_context`` and ``initializer``; see ``plan``. Other options have no effect.

        Raises
        ------
        SampleError
            For the first sample that can't be read or for which a function fails.
        PlanError
            If the cache folder can't be written.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.MapSource([{"x": n} for n in range(6)])).filter(lambda sample: sample["x"] > 3)
        >>> pipeline.run_filters(executor="thread", num_workers=1)
        >>> pipeline.batch(1).plan().steps.per_epoch
        2
        """
        runner().run_filters(self._whole(), LoaderOptions.of(options))


def _options(arguments: Mapping[str, Any]) -> LoaderOptions:
    """Return the options among a method's ``locals()``, with unknown arguments, which raise ``TypeError``."""
    given = {name: value for name, value in arguments.items() if name not in ("self", "unknown")}
    return LoaderOptions.of({**given, **arguments["unknown"]})
