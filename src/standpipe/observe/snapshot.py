"""A snapshot of a loader, as one value: for the live view, and for other processes."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import standpipe as sp
from standpipe.observe.diagnosis import Diagnosis
from standpipe.observe.history import Moment
from standpipe.units import MOST_COUNT

MOST_ITEMS = 4096  # of a list or mapping, and letters of a text
NAMED = 64  # functions, those that took longest
LETTERS = 200  # of their names, and of the source


class Foreign(ValueError):
    """Bytes that are no snapshot of this version."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A loader at one moment. ``loader.snapshot()`` returns it.

    Attributes
    ----------
    pid : int
        The process.
    script : str
        The script that runs there.
    source : str
        The source that it reads.
    rank, world_size : int
        Data rank and number of data ranks.
    batch : int
        The most rows of a step on this rank.
    executor : str
        ``"thread"``, ``"process"`` or ``"inline"``.
    time_s : float
        The time, by ``time.monotonic()``.
    run_s : float
        Seconds since the loader started.
    epoch, step : int
        The epoch of the next batch, and the steps of it that were taken.
    steps_per_epoch : int or None
        None if it isn't known.
    memory, limit : int
        Bytes of what ``memory=`` counts, and ``memory=``.
    recent : Moment
        The newest ten seconds with the present number of workers.
    stats : Stats
        The counters since the start.
    diagnosis : Diagnosis or None
        The limit in the same seconds; None before the run has started.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader(memory="64MiB") as loader:
    ...     batch = next(iter(loader))
    ...     now = loader.snapshot()
    >>> now.epoch, now.step, now.steps_per_epoch, now.limit == 64 << 20
    (0, 1, 4, True)
    """

    pid: int
    script: str
    source: str
    rank: int
    world_size: int
    batch: int
    executor: str
    time_s: float
    run_s: float
    epoch: int
    step: int
    steps_per_epoch: int | None
    memory: int
    limit: int
    recent: Moment
    stats: sp.Stats
    diagnosis: Diagnosis | None

    def __str__(self) -> str:
        """Return the facts in one line, usually of at most 80 columns."""
        epoch, step = self.at
        whole = "" if self.steps_per_epoch is None else f"/{self.steps_per_epoch:,}"
        return ", ".join(
            [
                f"epoch {epoch}, step {step:,}{whole}",
                f"{self.rows_per_s:,.0f} rows/s",
                f"waits {self.recent.wait_share:.0%}",
                f"memory {self.memory_share:.0%}",
                *([f"{self.stats.bad:,} bad"] if self.stats.bad else []),
                *([f"limit: {self.limited}"] if self.limited else []),
            ]
        )

    @property
    def rows_per_s(self) -> float:
        """Rows that the training loop took in a second of its recent steps and waits, as its diagnosis has it."""
        loop_s = self.recent.step_s + self.recent.wait_s
        return self.recent.rows / loop_s if loop_s else 0.0

    @property
    def at(self) -> tuple[int, int]:
        """Epoch and step for people: an epoch that has ended is at its last step until a batch of the next is taken."""
        if self.step == 0 and self.epoch and self.steps_per_epoch and self.stats.step.steps:
            return self.epoch - 1, self.steps_per_epoch
        return self.epoch, self.step

    @property
    def limited(self) -> str:
        """The place that limits the run, or ``"step"``; empty while that isn't known."""
        if self.diagnosis is None or self.diagnosis.bound == "unknown":
            return ""
        return "step" if self.diagnosis.bound == "step" else self.diagnosis.place

    @property
    def memory_share(self) -> float:
        """Fraction of ``memory=`` that is used."""
        return self.memory / self.limit if self.limit else 0.0

    def as_json(self) -> bytes:
        """Return the snapshot as one JSON object, in ASCII."""
        return json.dumps(self, default=_opened, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read what ``as_json`` wrote. Raises ``Foreign`` for anything else."""
        try:
            value = json.loads(text)
            return _typed(value, cls)  # type: ignore[no-any-return]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Foreign(f"no snapshot: {error}") from None


def snapshot(
    plan: sp.Plan,
    stats: sp.Stats,
    memory: sp.MemoryLedger,
    *,
    consumed: int,
    run_s: float,
    recent: Moment,
    diagnosis: Diagnosis | None,
) -> Snapshot:
    """Return a loader's snapshot of this moment.

    consumed  number of the epoch's positions that all ranks have taken
    """
    longest = sorted(stats.functions.items(), key=lambda item: -item[1])[:NAMED]
    return Snapshot(
        pid=os.getpid(),
        script=script(),
        source=plan.pipeline.source.describe()[:LETTERS],
        rank=plan.steps.rank,
        world_size=plan.steps.world_size,
        batch=plan.steps.batch,
        executor=plan.pool.executor.value,
        time_s=time.monotonic(),
        run_s=run_s,
        epoch=stats.epoch,
        step=consumed // plan.steps.global_batch,
        steps_per_epoch=plan.steps.per_epoch if plan.ends_known else None,
        memory=memory.now,
        limit=memory.limit,
        recent=recent,
        stats=replace(stats, functions={name[:LETTERS]: seconds for name, seconds in longest}),
        diagnosis=diagnosis,
    )


def facts(value: Any) -> Any:
    """A snapshot, or a part of it, as plain values for programs: of a latency its count and three quantiles."""
    return json.loads(json.dumps(value, default=lambda inner: _opened(inner, _quantiles)))


def script() -> str:
    """Return the program of this process, by its arguments: ``"train.py"``."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    return {"": "python", "-c": "python -c", "-m": "python -m"}.get(program, program)[:LETTERS]


def _opened(value: Any, of_latency: Callable[[sp.Latency], Any] = lambda latency: latency.counts) -> Any:
    """Return the values of a dataclass, as JSON has them."""
    if type(value) is sp.Latency:
        return of_latency(value)
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _hints(kind)}


def _quantiles(latency: sp.Latency) -> dict[str, float]:
    return {"count": latency.count, "p50_s": latency.p50, "p90_s": latency.p90, "p99_s": latency.p99}


def _typed(value: Any, kind: Any) -> Any:
    """Return a JSON value as an instance of ``kind``. Raises ``ValueError`` or ``TypeError`` if it is none."""
    origin, of = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _typed(value, of[0])
    if origin is Literal:
        _check(value in of, kind)
        return value
    if kind is sp.Latency:
        return sp.Latency(_typed(value, tuple[int, ...]))
    if is_dataclass(kind):
        return _made(value, kind)
    if origin is tuple:
        _check(isinstance(value, list) and len(value) <= MOST_ITEMS, kind)
        return tuple(_typed(inner, of[0]) for inner in value)
    if origin is not None:
        _check(isinstance(value, dict) and len(value) <= MOST_ITEMS, kind)
        return {_typed(name, str): _typed(inner, of[1]) for name, inner in value.items()}
    return _scalar(value, kind)


def _made(value: Any, kind: Any) -> Any:
    hints = _hints(kind)
    _check(isinstance(value, dict) and value.keys() == hints.keys(), kind)
    return kind(**{name: _typed(value[name], hints[name]) for name in hints})


def _scalar(value: Any, kind: type) -> Any:
    if kind is float:
        _check(type(value) in (int, float) and math.isfinite(value), kind)
        return float(value)
    _check(type(value) is kind, kind)
    if kind is int:
        _check(0 <= value < MOST_COUNT, kind)
    if kind is str:
        _check(len(value) <= MOST_ITEMS, kind)
    return value


def _check(good: bool, kind: Any) -> None:
    if not good:
        raise TypeError(f"no {getattr(kind, '__name__', kind)}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
