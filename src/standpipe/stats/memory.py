"""The memory ledger: bytes by owner, as ``Loader.memory()`` returns them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from standpipe.plan.plan import Plan
from standpipe.spec import Executor
from standpipe.units import show_bytes

COLUMNS, NAME_COLUMNS, NUMBER_COLUMNS = 80, 22, 10

START, INDEX, SLOTS, WAITING = "process at start", "index", "slots", "outside the slots"
PROCESSES = "worker processes"
FETCH = "fetch process"
READ_AHEAD, CACHE, SIDE = "read-ahead", "cache, without its rows", "side arena"
FRAMES = "images of rows of several"
ENGINE, GROWTH = "engine", "growth of this process"


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The bytes of one owner in a ``MemoryLedger``: one purpose for which memory is used.

    Attributes
    ----------
    name : str
        The purpose, such as ``"slots"``.
    forecast : int
        Bytes that the plan expects.
    now : int
        Bytes that this owner uses now.
    peak : int
        The most bytes that this owner has used since the loader started.
    most : int or None
        The most bytes that this owner may use; None if nothing limits it.
    note : str
        A remark, such as how many slots are lent.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader(memory="64MiB") as loader:
    ...     batch = next(iter(loader))
    ...     owner = loader.memory()["slots"]
    >>> owner.name, 0 < owner.now <= owner.peak
    ('slots', True)
    """

    name: str
    forecast: int
    now: int = 0
    peak: int = 0
    most: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Memory by owner, in bytes. ``loader.memory()`` returns it; ``str()`` of it is a table.

    Attributes
    ----------
    limit : int
        ``memory=``, the ceiling of all ``owners`` together.
    owners : tuple of MemoryOwner
        The owners of the memory that standpipe allocates.
    parts : tuple of MemoryOwner
        The parts of the owner ``worker processes``: the worker server, and each worker process.
    outside : tuple of MemoryOwner
        Memory that ``memory=`` doesn't count: the process's memory before the loader started, and the growth
        of the process for other reasons.
    peak : int
        The most bytes that all owners together have used at a measurement.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader(memory="64MiB") as loader:
    ...     batches = list(loader)
    ...     ledger = loader.memory()
    >>> ledger.now <= ledger.peak <= ledger.limit == 64 << 20
    True
    >>> ledger["slots"].peak >= ledger["slots"].forecast > 0
    True
    """

    limit: int
    owners: tuple[MemoryOwner, ...]
    parts: tuple[MemoryOwner, ...]
    outside: tuple[MemoryOwner, ...]
    peak: int

    @property
    def forecast(self) -> int:
        """The forecast of all owners in bytes; ``limit`` is the most they may use."""
        return sum(owner.forecast for owner in self.owners)

    @property
    def now(self) -> int:
        """The current bytes of all owners."""
        return sum(owner.now for owner in self.owners)

    def __getitem__(self, name: str) -> MemoryOwner:
        """Return the owner, part or outside entry of this name. Raises ``KeyError`` for another name."""
        for owner in (*self.owners, *self.parts, *self.outside):
            if owner.name == name:
                return owner
        raise KeyError(name)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield _line("", ("forecast", "now", "peak", "at most"), "")
        for owner in self.owners:
            yield _owner(owner)
            if owner.name == PROCESSES:
                yield from (_owner(part, indent="  ") for part in self.parts)
        yield _owner(MemoryOwner("together", self.forecast, self.now, self.peak, self.limit, "memory="))
        yield from map(_owner, self.outside)


def worker_owner(plan: Plan) -> str:
    """Return the name under which the ledger lists the memory of a plan's workers."""
    if plan.samples.program is None:
        return "decoding threads"
    return PROCESSES if plan.pool.executor is Executor.PROCESS else "Python threads"


def planned_memory(plan: Plan) -> MemoryLedger:
    """Return the ledger of a loader that hasn't started: forecasts, and the memory of the index."""
    forecast, cost = plan.memory.forecast, plan.pool.cost
    workers = (
        cost.shared + plan.pool.workers * plan.pool.worker_bytes if plan.in_processes else forecast.workers
    )
    slots = plan.memory.most_slots * plan.batch.layout.stride_bytes
    waiting = plan.memory.batches_bytes if plan.in_processes else forecast.waiting
    fetch = forecast.fetch
    owners = (
        MemoryOwner(INDEX, forecast.index, forecast.index, forecast.index, forecast.index),
        MemoryOwner(SLOTS, forecast.slots, most=slots),
        MemoryOwner(WAITING, forecast.waiting, most=waiting),
        MemoryOwner(worker_owner(plan), forecast.workers, most=workers),
        MemoryOwner(READ_AHEAD, forecast.read_ahead, most=forecast.read_ahead),
        *([MemoryOwner(FETCH, fetch, most=fetch)] if fetch else []),
        *([MemoryOwner(CACHE, forecast.cache, most=forecast.cache)] if forecast.cache else []),
        *([MemoryOwner(FRAMES, forecast.frames, most=forecast.frames)] if forecast.frames else []),
        MemoryOwner(SIDE, forecast.whole, most=forecast.side),
        MemoryOwner(ENGINE, forecast.engine, most=forecast.engine),
    )
    outside = (
        MemoryOwner(START, forecast.process, forecast.process, forecast.process),
        MemoryOwner(GROWTH, 0),
    )
    return MemoryLedger(plan.memory.budget_bytes, owners, (), outside, forecast.index)


def _owner(owner: MemoryOwner, indent: str = "") -> str:
    sizes = [show_bytes(size) for size in (owner.forecast, owner.now, owner.peak)]
    most = "" if owner.most is None else show_bytes(owner.most)
    return _line(indent + owner.name, [*sizes, most], owner.note)


def _line(name: str, numbers: Iterable[str], note: str) -> str:
    """Return a line of the table. A long note continues on further lines, in the note's column."""
    columns = f"{name:<{NAME_COLUMNS}s}" + "".join(f"{number:>{NUMBER_COLUMNS}s}" for number in numbers)
    indent = len(columns) + 2
    notes = textwrap.wrap(note, COLUMNS - indent) or [""]
    return "\n".join([f"{columns}  {notes[0]}".rstrip(), *(f"{'':{indent}s}{more}" for more in notes[1:])])
