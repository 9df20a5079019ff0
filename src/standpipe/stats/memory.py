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
READ_AHEAD, FRAMES, CACHE, SIDE = "read-ahead", "frames", "cache, without its rows", "side arena"
ENGINE, GROWTH = "engine", "growth of this process"


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The bytes of one owner in a ``MemoryLedger``.

    Attributes
    ----------
    name : str
        The owner.
    forecast : int
        Bytes that the plan expects.
    now : int
        Bytes that it has now.
    peak : int
        The most bytes that it had since the loader started.
    most : int or None
        The most bytes that it may have; None if nothing limits it.
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
    now: int
    peak: int
    most: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Memory by owner, in bytes. ``loader.memory()`` returns it; ``str()`` of it is a table.

    Attributes
    ----------
    limit : int
        ``memory=``, the ceiling of all ``owners`` together.
    owners : tuple of MemoryOwner
        The owners of what standpipe allocates.
    parts : tuple of MemoryOwner
        The parts of the owner ``worker processes``: their server, and each of them.
    outside : tuple of MemoryOwner
        Memory that ``memory=`` doesn't count: the process at its start, and its growth for other reasons.
    peak : int
        The most bytes that all owners together were seen to have.

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
        """The owner of that name, also a part, or one outside. ``KeyError`` for another name."""
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
    """Return the name of the workers in the ledger."""
    if plan.samples.program is None:
        return "decoding threads"
    return PROCESSES if plan.pool.executor is Executor.PROCESS else "Python threads"


def planned_memory(plan: Plan) -> MemoryLedger:
    """The ledger of a loader that hasn't started: what is there is the index."""
    forecast, cost = plan.memory.forecast, plan.pool.cost
    workers = (
        cost.shared + plan.pool.workers * plan.pool.worker_bytes
        if plan.in_processes
        else cost.of(plan.pool.most_workers)
    )
    slots = plan.memory.most_slots * plan.batch.layout.stride_bytes
    owners = (
        MemoryOwner(INDEX, forecast.index, forecast.index, forecast.index, forecast.index),
        MemoryOwner(SLOTS, forecast.slots, 0, 0, slots),
        MemoryOwner(
            WAITING,
            forecast.waiting,
            0,
            0,
            plan.memory.batches_bytes if plan.in_processes else forecast.waiting,
        ),
        MemoryOwner(worker_owner(plan), forecast.workers, 0, 0, workers),
        MemoryOwner(READ_AHEAD, forecast.read_ahead, 0, 0, forecast.read_ahead),
        *([MemoryOwner(FRAMES, forecast.frames, 0, 0, forecast.frames)] if forecast.frames else []),
        *([MemoryOwner(CACHE, forecast.cache, 0, 0, forecast.cache)] if forecast.cache else []),
        MemoryOwner(SIDE, forecast.whole, 0, 0, forecast.side),
        MemoryOwner(ENGINE, forecast.engine, 0, 0, forecast.engine),
    )
    outside = (
        MemoryOwner(START, forecast.process, forecast.process, forecast.process, None),
        MemoryOwner(GROWTH, 0, 0, 0, None),
    )
    return MemoryLedger(plan.memory.budget_bytes, owners, (), outside, forecast.index)


def _owner(owner: MemoryOwner, indent: str = "") -> str:
    sizes = [show_bytes(size) for size in (owner.forecast, owner.now, owner.peak)]
    most = "" if owner.most is None else show_bytes(owner.most)
    return _line(indent + owner.name, [*sizes, most], owner.note)


def _line(name: str, numbers: Iterable[str], note: str) -> str:
    """A row of the table; a long note goes on below itself."""
    columns = f"{name:<{NAME_COLUMNS}s}" + "".join(f"{number:>{NUMBER_COLUMNS}s}" for number in numbers)
    indent = len(columns) + 2
    notes = textwrap.wrap(note, COLUMNS - indent) or [""]
    return "\n".join([f"{columns}  {notes[0]}".rstrip(), *(f"{'':{indent}s}{more}" for more in notes[1:])])
