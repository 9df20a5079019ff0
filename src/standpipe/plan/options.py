"""What ``plan()`` and ``loader()`` take, and which values of it can be."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Literal, TypedDict

from standpipe import habits
from standpipe.contracts import Device, Source
from standpipe.errors import PlanError
from standpipe.habits import unknown_argument
from standpipe.spec import DecodeLimits, Executor, GpuDecode, Reads
from standpipe.system.workers import ForkFrom, ForkServer
from standpipe.units import is_count, is_seconds, parse_bytes

MOST_RETRIES = 1000
LEAST_GPU_BYTES = 16 << 20  # fit images of 170,000 pixels
HAS_PROCESSES = sys.platform == "linux"  # worker processes take memfd and pidfd


class Settings(TypedDict, total=False):
    """What ``plan()`` and ``loader()`` take; ``Pipeline.plan`` says what each means."""

    memory: int | str | None
    workers: int | Literal["auto"]
    executor: Literal["process", "thread", "inline"] | None
    depth: int | Literal["auto"] | None
    autotune: bool
    side_memory: int | str | None
    worker_memory: int | str | None
    lend_wait_s: float
    reads: Reads
    slow_after_s: float
    stall_timeout_s: float | None
    start_timeout_s: float | None
    decode_device: str
    bad_log: str | os.PathLike[str] | None
    fork_from: ForkFrom
    in_turn: bool
    probe: bool
    device: Device | None


def check_known(settings: Settings) -> None:
    """Raise ``TypeError`` for settings that there aren't."""
    if unknown := settings.keys() - Settings.__annotations__:
        raise unknown_argument("a plan or loader", unknown, Settings.__annotations__, habits.RUN)


def checked_executor(value: object) -> Executor:
    """Return who runs Python code; None stands for processes where the system has them. Raises ``PlanError``."""
    if value is None:
        return Executor.PROCESS if HAS_PROCESSES else Executor.THREAD
    if value not in [each.value for each in Executor]:
        raise PlanError(f"executor={value!r}: 'thread', 'process' or 'inline'")
    return Executor(value)


def check_fork_from(value: object) -> None:
    """Raise ``PlanError`` for what no worker process can come from."""
    if value is not None and value != "trainer" and not isinstance(value, ForkServer):
        raise PlanError(
            f"fork_from={value!r}: a ForkServer(), 'trainer', or None for an interpreter of their own"
        )


def checked_device(device: object, default: Device) -> Device:
    """Where batches go, or ``PlanError`` for what is no such place."""
    if device is None:
        return default
    if isinstance(device, type) or not isinstance(device, Device):
        raise PlanError(
            f"device={device!r}: standpipe.torch.loader(…, device='cuda') takes the names of devices"
        )
    device.check()
    return device


def deadlines(settings: Settings) -> tuple[float, float | None]:
    """After how many seconds a sample is slow, and after how many it is bad. Raises ``PlanError``."""
    slow, stalled = settings.get("slow_after_s", 5.0), settings.get("stall_timeout_s", 120.0)
    if not is_seconds(slow) or slow == 0:
        raise PlanError(f"slow_after_s={slow!r}: a number of seconds above 0")
    if stalled is not None and (not is_seconds(stalled) or stalled == 0):
        raise PlanError(f"stall_timeout_s={stalled!r}: a number of seconds above 0, or None")
    start = settings.get("start_timeout_s")
    if start is not None and (not is_seconds(start) or start == 0):
        raise PlanError(f"start_timeout_s={start!r}: a number of seconds above 0, or None")
    return slow, stalled


def checked_log(path: object) -> Path | None:
    """The file of ``bad_log=``, or ``PlanError`` for what names none."""
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise PlanError(f"bad_log={path!r}: the path of a file")
    return Path(path)


def checked_gpu(mode: object, share: object, memory: int | str) -> GpuDecode | None:
    """What the GPU decodes in a mode of ``decode()``, or ``PlanError`` for what can't be."""
    if share is not None and mode != "hybrid":
        raise PlanError(f"decode({mode!r}, share={share!r}): a share goes with decode('hybrid')")
    if mode not in ("gpu", "hybrid"):
        return None
    if share is None and mode == "hybrid":
        raise PlanError("decode('hybrid') takes a share of the records, as share=0.5")
    part = 1.0 if share is None else share
    if not isinstance(part, int | float) or isinstance(part, bool) or not 0 < part <= 1:
        raise PlanError(f"decode(share={share!r}): a share of the records, above 0 and at most 1")
    given = parse_bytes("gpu_memory", memory)
    if given < LEAST_GPU_BYTES:
        raise PlanError(f"decode(gpu_memory={memory!r}): at least 16MiB")
    return GpuDecode(float(part), given)


def checked_decode_device(value: object) -> str:
    """Where JPEGs for the GPU are decoded, or ``PlanError``."""
    if not isinstance(value, str) or not re.fullmatch(r"cpu|cuda(:\d{1,4})?", value):
        raise PlanError(f"decode_device={value!r}: 'cuda', 'cuda:1' and the like, or 'cpu'")
    return value


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


def check_at_most(at_most: object) -> None:
    """Raise ``PlanError`` for what is no limit of bad samples."""
    if isinstance(at_most, float):
        if not 0 < at_most <= 1:
            raise PlanError(f"Replace(at_most={at_most!r}): a share of the epoch's rows is in (0, 1]")
    elif not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 0:
        raise PlanError(
            f"Replace(at_most={at_most!r}): a share such as 0.001, or a number of rows such as 100"
        )
