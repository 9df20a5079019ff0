"""What a running loader's tuning found, and its file format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from standpipe.errors import PlanError
from standpipe.plan.options import MOST_PREFETCH, MOST_WORKERS, checked_executor
from standpipe.plan.plan import Plan
from standpipe.system.files import whole_file
from standpipe.units import is_count

VERSION = 1
MOST_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Trial:
    """Something else that was tried.

    after_s  seconds after the loader's start
    setting  what was changed: ``"num_workers"`` or ``"prefetch"``
    before   what it was
    tried    what it was meanwhile
    gain     how many times as fast the training loop was with it
    kept     whether it stayed
    why      in a sentence
    """

    after_s: float
    setting: Literal["num_workers", "prefetch"]
    before: int
    tried: int
    gain: float
    kept: bool
    why: str

    def __str__(self) -> str:
        what = f"{self.setting} {self.before} → {self.tried}"
        how = f"{self.gain:.2f} times as fast, {'kept' if self.kept else f'back to {self.before}'}"
        return f"{self.after_s:5.1f} s: {what}, {how}: {self.why}"


@dataclass(frozen=True, slots=True)
class Tuning:
    """How many workers and slots a loader has now, and how that came.

    num_workers   threads or processes that work at once
    prefetch      batches that are made ahead of the one that the loop has
    executor      who runs Python code
    most_workers  that the memory allows, as far as they are tuned; else ``num_workers``
    settled       whether nothing else is being tried
    trials        what was tried, at most the newest hundred, the newest last

    ``str()`` of it is what to write to have it from the start.
    """

    num_workers: int
    prefetch: int
    executor: Literal["thread", "process", "inline"]
    most_workers: int
    settled: bool
    trials: tuple[Trial, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of ``plan()`` and ``loader()`` that use this result from the start, and keep it."""
        workers: dict[str, Any] = {} if self.executor == "inline" else {"num_workers": self.num_workers}
        return {**workers, "prefetch": self.prefetch, "executor": self.executor}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, which ``load_tuning`` reads. Raises ``StandpipeError`` when it can't be written."""
        import json  # no run needs it

        with whole_file(path) as file:
            file.write(json.dumps({"standpipe_tuning": VERSION, **asdict(self)}, indent=2) + "\n")


def untried(plan: Plan) -> Tuning:
    """Return the tuning that a loader begins with."""
    settled = not (plan.tunes_workers or plan.tunes_prefetch)
    return Tuning(plan.pool.workers, plan.prefetch, plan.pool.executor.value, plan.pool.most_workers, settled)


def load_tuning(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings that ``loader.tuning().save(path)`` or ``standpipe tune --save`` wrote.

    ``pipeline.loader(**load_tuning(path))`` begins with them. They name no data and no functions, so they are
    good for any pipeline, with Python code or without. Raises ``PlanError`` for a file that is none, and
    ``OSError`` for one that can't be read.
    """
    with Path(path).open("rb") as file:
        text = file.read(MOST_FILE_BYTES + 1)
    try:
        return _settings(_parsed(text))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{os.fspath(path)!r} holds no tuned settings: {error}") from error


def _parsed(text: bytes) -> Mapping[str, Any]:
    import json

    if len(text) > MOST_FILE_BYTES:
        raise ValueError(f"it is larger than {MOST_FILE_BYTES} bytes")
    value = json.loads(text)
    if not isinstance(value, dict) or not is_count(value.get("standpipe_tuning"), VERSION, VERSION):
        raise ValueError(f"no version {VERSION} of them")
    return value


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    workers, prefetch = value.get("num_workers"), value.get("prefetch")
    if not is_count(workers, 1, MOST_WORKERS):
        raise ValueError(f"num_workers={workers!r}")
    if not is_count(prefetch, 1, MOST_PREFETCH):
        raise ValueError(f"prefetch={prefetch!r}")
    executor: Any = checked_executor(value.get("executor")).value
    return Tuning(workers, prefetch, executor, workers, settled=True).settings
