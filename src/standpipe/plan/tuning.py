"""The result of a running loader's tuning, and its file format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from standpipe.errors import PlanError
from standpipe.plan.options import MOST_PREFETCH, MOST_WORKERS, checked_executor
from standpipe.plan.plan import Plan
from standpipe.spec import ExecutorName
from standpipe.system.files import open_regular, whole_file
from standpipe.units import is_count

VERSION = 1
MOST_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Trial:
    """A number of workers that tuning tried.

    Attributes
    ----------
    after_s : float
        Seconds after the loader's start.
    before, tried : int
        The number of workers before, and the number that was tried.
    gain : float
        The rate with the new number ÷ the rate before.
    kept : bool
        True if the new number stayed.
    why : str
        The reason, as a sentence.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     trials = loader.tuning().trials  # a list of Trial, empty in so short a run
    >>> len(trials)
    0
    """

    after_s: float
    before: int
    tried: int
    gain: float
    kept: bool
    why: str

    def __str__(self) -> str:
        how = f"{self.gain:.2f} times as fast, {'kept' if self.kept else f'back to {self.before}'}"
        return f"{self.after_s:5.1f} s: num_workers {self.before} → {self.tried}, {how}: {self.why}"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The number of workers and of batches ahead that a loader has now, and how tuning found the workers.

    ``str()`` of it is code: the arguments that give a new loader these values from the start.

    Attributes
    ----------
    num_workers : int
        Threads or processes that work at once.
    prefetch : int
        Batches that are made ahead of the one that the loop has.
    executor : str
        ``"process"``, ``"thread"`` or ``"inline"``.
    most_workers : int
        The most workers that memory allows, if they are tuned; else ``num_workers``.
    settled : bool
        True if tuning is trying nothing.
    trials : tuple of Trial
        The newest hundred trials, the newest last.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with pipeline.loader(memory="256MiB", num_workers=1, prefetch=1) as loader:
    ...     batches = sum(1 for batch in loader)
    ...     print(loader.tuning())
    num_workers=1, prefetch=1, executor='thread'
    """

    num_workers: int
    prefetch: int
    executor: ExecutorName
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
    settled = not plan.tunes_workers
    return Tuning(plan.pool.workers, plan.prefetch, plan.pool.executor.value, plan.pool.most_workers, settled)


def load_tuning(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings that ``loader.tuning().save(path)`` or ``standpipe tune --output`` wrote.

    They fit every pipeline: they name neither data nor functions.

    Parameters
    ----------
    path : path
        The JSON file.

    Returns
    -------
    dict
        Arguments of ``pipeline.loader``.

    Raises
    ------
    PlanError
        If the file isn't a file of settings.
    OSError
        If it can't be read.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with pipeline.loader(memory="256MiB", num_workers=1, prefetch=1) as loader:
    ...     batches = sum(1 for batch in loader)
    ...     loader.tuning().save("tuned.json")
    >>> sp.load_tuning("tuned.json")
    {'num_workers': 1, 'prefetch': 1, 'executor': 'thread'}
    """
    with open(path, "rb", opener=open_regular) as file:
        text = file.read(MOST_FILE_BYTES + 1)
    try:
        return _settings(_parsed(text))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the file {os.fspath(path)!r} has no tuned settings: {error}") from error


def _parsed(text: bytes) -> Mapping[str, Any]:
    import json

    if len(text) > MOST_FILE_BYTES:
        raise ValueError(f"the file is larger than {MOST_FILE_BYTES} bytes")
    value = json.loads(text)
    if not isinstance(value, dict) or not is_count(value.get("standpipe_tuning"), VERSION, VERSION):
        raise ValueError(f"the version isn't {VERSION}")
    return value


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    workers, prefetch = value.get("num_workers"), value.get("prefetch")
    if not is_count(workers, 1, MOST_WORKERS):
        raise ValueError(f"num_workers={workers!r}")
    if not is_count(prefetch, 1, MOST_PREFETCH):
        raise ValueError(f"prefetch={prefetch!r}")
    executor: Any = checked_executor(value.get("executor")).value
    return Tuning(workers, prefetch, executor, workers, settled=True).settings
