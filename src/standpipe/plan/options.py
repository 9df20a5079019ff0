"""Options of ``plan()`` and ``loader()``: all defaults, and which values are valid."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, get_args

from standpipe import hints
from standpipe.contracts import Device, Fallback, Fleet, Source
from standpipe.errors import PlanError
from standpipe.hints import unknown_argument
from standpipe.spec import DecodeLimits, Executor, ExecutorName, ReadOptions
from standpipe.system.workers import StartMethod, WorkerContext, WorkerOrigin
from standpipe.units import is_count, is_seconds, parse_bytes

MOST_RETRIES = 1000
MOST_WORKERS = 4096
MOST_PREFETCH = 1 << 16
HAS_PROCESSES = sys.platform == "linux"  # worker processes take memfd and pidfd
_READS = ReadOptions()


class JobArguments(TypedDict, total=False):
    """The arguments of a run that also apply where samples are only read, as in the scan of a filter."""

    memory: int | str | None
    num_workers: int | Literal["auto"]
    executor: ExecutorName | None
    large_image_memory: int | str | None
    reads: ReadOptions
    slow_sample_s: float
    stall_timeout_s: float | None
    start_timeout_s: float | None
    mp_context: WorkerContext
    initializer: Callable[[], object] | None


class RunArguments(JobArguments, total=False):
    """The arguments of a run, whatever the place of its batches. ``Pipeline.plan`` describes each of them.

    Adapters, which set the device by themselves, pass these on.
    """

    prefetch: int | Literal["auto"]
    autotune: bool
    memory_per_worker: int | str | None
    batch_release_timeout_s: float
    round_robin: bool
    check_generators: bool
    error_log: str | os.PathLike[str] | None
    fleet: Fleet | None


class LoaderArguments(RunArguments, total=False):
    """The arguments of ``Pipeline.loader``. ``Pipeline.plan`` describes each of them.

    Use it to annotate a function of yours that passes arguments on: type checkers and editors then know them.

    Examples
    --------
    >>> from typing import Unpack
    >>> def evaluation(**options: Unpack[sp.LoaderArguments]):
    ...     return sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).loader(**options)
    >>> with evaluation(memory="256MiB", num_workers=1) as loader:
    ...     print(len(loader))
    3
    """

    device: Device | None


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The arguments of ``Pipeline.plan`` and ``Pipeline.loader``, with their defaults.

    ``Pipeline.plan`` describes each of them. ``plan.options`` is one of these.

    Raises
    ------
    PlanError
        For an invalid value.

    Examples
    --------
    >>> options = sp.LoaderOptions(memory="2GiB")
    >>> options.num_workers, options.stall_timeout_s
    ('auto', 120.0)
    >>> sp.LoaderOptions(num_workers=0)
    Traceback (most recent call last):
    ...
    standpipe.errors.PlanError: num_workers...
    """

    memory: int | str | None = None
    num_workers: int | Literal["auto"] = "auto"
    executor: ExecutorName | None = None
    prefetch: int | Literal["auto"] = "auto"
    autotune: bool = True
    large_image_memory: int | str | None = None
    memory_per_worker: int | str | None = None
    batch_release_timeout_s: float = 0.0
    reads: ReadOptions = _READS
    slow_sample_s: float = 5.0
    stall_timeout_s: float | None = 120.0
    start_timeout_s: float | None = None
    mp_context: WorkerContext = "spawn"
    initializer: Callable[[], object] | None = None
    round_robin: bool = False
    check_generators: bool = True
    error_log: str | os.PathLike[str] | None = None
    device: Device | None = None
    fleet: Fleet | None = None

    def __post_init__(self) -> None:
        _check_workers(self.num_workers, self.prefetch)
        checked_executor(self.executor)
        for name in ("autotune", "round_robin", "check_generators"):
            if not isinstance(value := getattr(self, name), bool):
                raise PlanError(f"{name} must be True or False, got {value!r}")
        for name in ("memory", "large_image_memory", "memory_per_worker"):
            self.bytes_of(name)
        _check_deadlines(self)
        check_reads(self.reads)
        check_mp_context(self.mp_context)
        if self.initializer is not None and not callable(self.initializer):
            raise PlanError(f"initializer must be a function without arguments, got {self.initializer!r}")
        _check_device(self.device)
        _check_fleet(self.fleet)
        path = self.error_log
        if path is not None and (not isinstance(path, str | os.PathLike) or not os.fspath(path)):
            raise PlanError(f"error_log must be the path of a file, got {path!r}")

    @classmethod
    def of(cls, given: Mapping[str, Any], **more: Any) -> Self:
        """Make options from names and values.

        Raises ``TypeError`` for unknown names, with what to write instead.
        """
        names = [each.name for each in fields(cls)]
        if unknown := given.keys() - names:
            raise unknown_argument("a plan or loader", unknown, names, hints.RUN)
        return cls(**given, **more)

    @property
    def travels(self) -> bool:
        """True if batches are made in other processes, which send what is in fields of fixed shape and in lists."""
        return self.fleet is not None

    def bytes_of(self, name: str) -> int | None:
        """Return the size in bytes of the option ``name``, a number or text such as ``"2GiB"``; None if it
        isn't set.
        """
        value = getattr(self, name)
        return None if value is None else parse_bytes(name, value)

    @property
    def log_path(self) -> Path | None:
        """The file of ``error_log=``."""
        return None if self.error_log is None else Path(self.error_log)

    @property
    def tunes_workers(self) -> bool:
        """True if a run finds the best number of workers."""
        return self.autotune and self.fleet is None and self.num_workers == "auto"

    def for_job(self) -> LoaderOptions:
        """Return the options for a job that reads samples before a run: those that apply there."""
        return replace(
            LoaderOptions(), **{name: getattr(self, name) for name in JobArguments.__annotations__}
        )


class MakerOptions(LoaderOptions):
    """The options of a maker of batches, which a loader in another process asks for them."""

    __slots__ = ()

    @property
    def travels(self) -> bool:
        """True."""
        return True


def _check_workers(workers: object, prefetch: object) -> None:
    if workers != "auto" and not is_count(workers, 1, MOST_WORKERS):
        here = ". To make batches in the calling thread, write executor='inline'" if workers == 0 else ""
        raise PlanError(
            f"num_workers must be 'auto' or an integer from 1 to {MOST_WORKERS}, got {workers!r}{here}"
        )
    if prefetch != "auto" and not is_count(prefetch, 1, MOST_PREFETCH):
        raise PlanError(
            f"prefetch must be 'auto' or an integer from 1 to {MOST_PREFETCH} (batches that are made "
            f"ahead), got {prefetch!r}"
        )


def checked_executor(value: object) -> Executor:
    """Return the executor of a name; None gives the default for this system. Raises ``PlanError`` for others."""
    if value is None:
        return Executor.PROCESS if HAS_PROCESSES else Executor.THREAD
    if value not in [each.value for each in Executor]:
        raise PlanError(f"executor must be 'thread', 'process' or 'inline', got {value!r}")
    return Executor(value)


def check_mp_context(value: object) -> None:
    """Raise ``PlanError`` for a value that isn't a start method or a ``ForkServer``."""
    if value not in get_args(StartMethod) and not isinstance(value, WorkerOrigin):
        raise PlanError(f"mp_context must be 'spawn', 'forkserver', 'fork' or a ForkServer(), got {value!r}")


def _check_device(device: object) -> None:
    if device is not None:
        if isinstance(device, type) or not isinstance(device, Device):
            raise PlanError(
                f"device must be a Device object, got {device!r}. To give a device's name, use "
                "standpipe.torch.loader(…, device='cuda')"
            )
        device.check()


def _check_fleet(fleet: object) -> None:
    if fleet is None:
        return
    if isinstance(fleet, type) or not isinstance(fleet, Fleet):
        raise PlanError(f"fleet must be a Fleet object, such as standpipe.ray.start(pipeline), got {fleet!r}")
    if fleet.fallback not in get_args(Fallback):
        raise PlanError(f"fallback must be 'local', 'wait' or 'raise', got {fleet.fallback!r}")


def _check_deadlines(options: LoaderOptions) -> None:
    if not is_seconds(options.batch_release_timeout_s):
        raise PlanError(
            "batch_release_timeout_s must be a number of seconds from 0 on, got "
            f"{options.batch_release_timeout_s!r}"
        )
    slow = options.slow_sample_s
    if not is_seconds(slow) or slow == 0:
        raise PlanError(f"slow_sample_s must be a number of seconds above 0, got {slow!r}")
    for name in ("stall_timeout_s", "start_timeout_s"):
        value = getattr(options, name)
        if value is not None and (not is_seconds(value) or value == 0):
            raise PlanError(f"{name} must be a number of seconds above 0, or None, got {value!r}")


def check_reads(reads: object) -> None:
    """Raise ``PlanError`` for invalid settings of reads."""
    if not isinstance(reads, ReadOptions):
        raise PlanError(f"reads must be ReadOptions(retries=…, backoff_s=…, hedge_after_s=…), got {reads!r}")
    if not is_count(reads.retries, 0, MOST_RETRIES):
        raise PlanError(
            f"ReadOptions: retries must be an integer from 0 to {MOST_RETRIES}, got {reads.retries!r}"
        )
    if not is_seconds(reads.backoff_s):
        raise PlanError(
            f"ReadOptions: backoff_s must be a number of seconds from 0 on, got {reads.backoff_s!r}"
        )
    after = reads.hedge_after_s
    if after is not None and not (is_seconds(after) and after > 0):
        raise PlanError(
            f"ReadOptions: hedge_after_s must be a number of seconds above 0, or None, got {after!r}"
        )


def check_limits(limits: object) -> None:
    """Raise ``PlanError`` for invalid limits of decoding."""
    if not isinstance(limits, DecodeLimits):
        raise PlanError(f"decode: limits must be DecodeLimits(max_pixels=…, max_scans=…), got {limits!r}")
    for name, value, most in (
        ("max_pixels", limits.max_pixels, (1 << 63) - 1),
        ("max_scans", limits.max_scans, (1 << 31) - 1),
    ):
        if not is_count(value, 1, most):
            raise PlanError(f"DecodeLimits: {name} must be an integer from 1 on, got {value!r}")


def checked_source(given: object, asked_by: str) -> Source:
    """Return ``given`` if it is a source; else raise ``PlanError``.

    ``asked_by`` is the caller's name, for the error.
    """
    if isinstance(given, type):
        raise PlanError(f"{asked_by}({given.__name__}) got a class. Write {given.__name__}(…)")
    if not isinstance(given, Source):
        raise PlanError(f"{asked_by}({given!r}) is not a source. {_source_for(given)}")
    return given


def _source_for(given: object) -> str:
    """Suggest the source for a value of another type."""
    if isinstance(getattr(given, "source", None), Source):
        return "It is a pipeline: give its source, or mix pipelines by sp.Mixture"
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return (
            "Give a source such as ImageFolder(path)"
            if isinstance(given, str)
            else "Write MapSource(dataset)"
        )
    if callable(given) or hasattr(given, "__iter__"):
        return "For a stream, write IterableSource(factory)"
    return "Give a source such as ImageFolder(path)"


def check_at_most(at_most: object) -> None:
    """Raise ``PlanError`` for an invalid limit of bad samples: a fraction in (0, 1], or an int of at least 0."""
    if isinstance(at_most, float):
        if not 0 < at_most <= 1:
            raise PlanError(
                "Replace: at_most, as a fraction of the epoch's rows, must be above 0 and at most 1, got "
                f"{at_most!r}"
            )
    elif not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 0:
        raise PlanError(
            "Replace: at_most must be a fraction such as 0.001 or a number of rows such as 100, got "
            f"{at_most!r}"
        )


DEFAULTS = LoaderOptions()
