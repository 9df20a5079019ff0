"""The contract of a fleet: processes outside this one, such as Ray actors, that make the rows of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

Fallback = Literal["local", "wait", "raise"]


class Receiver(Protocol):
    """The engine's side of an open fleet. Its methods may be called in any thread, and return at once.

    Examples
    --------
    >>> from standpipe.contracts import Receiver
    >>> sorted(name for name in vars(Receiver) if not name.startswith("_"))
    ['alive', 'answered', 'failed', 'joined', 'lost', 'refused']
    """

    def joined(self, maker: int, name: str, facts: Mapping[str, Any]) -> None:
        """Report that a maker is ready, for the first time or after it was lost.

        maker  its number, from 0
        name   the maker in messages: ``"actor 3 on node 10.0.0.7"``
        facts  ``BatchMaker.facts()`` of the maker
        """

    def refused(self, maker: int, name: str, error: Exception) -> None:
        """Report that a maker can't start, because of ``error``."""

    def lost(self, maker: int, reason: str) -> None:
        """Report that a maker has ended, with all its tasks. It may join again later."""

    def answered(self, maker: int, number: int, answer: Any) -> None:
        """Report the answer to the task ``number``, from ``BatchMaker.make``."""

    def failed(self, maker: int, number: int, error: Exception) -> None:
        """Report that ``BatchMaker.make`` raised ``error`` for the task ``number``."""

    def alive(self, maker: int) -> None:
        """Report that a maker answered to ``OpenFleet.poke``."""


@runtime_checkable
class Fleet(Protocol):
    """A description of processes that make batches in place of the loader's own workers.

    ``Pipeline.loader(fleet=…)`` takes it. ``standpipe.ray.start`` makes one for Ray. Each of the processes runs
    ``pipeline.maker(…)``, which makes a batch from a task. A batch depends on its task only, so the same task
    may be done by several makers, and again.

    Examples
    --------
    >>> from standpipe.contracts import Fleet
    >>> class Cluster:
    ...     makers, workers, shared, fallback = 4, 8, False, "local"
    ...
    ...     def describe(self): return ["4 processes of my cluster"]
    ...
    ...     def open(self, receiver): ...
    >>> isinstance(Cluster(), Fleet)
    True
    """

    @property
    def makers(self) -> int:
        """The number of makers."""

    @property
    def workers(self) -> int:
        """The number of threads or processes that make samples, of all makers together."""

    @property
    def shared(self) -> bool:
        """True if the loaders of all ranks use the same makers; False if each loader has its own."""

    @property
    def fallback(self) -> Fallback:
        """The reaction if no maker is left.

        ``"local"``: workers in or beside this process make the batches, also if no maker starts in time.
        ``"wait"``: wait until a maker is back. ``"raise"``: raise ``WorkerDiedError``.
        """

    def describe(self) -> Sequence[str]:
        """Return lines about the fleet for ``explain()``."""

    def open(self, receiver: Receiver) -> OpenFleet:
        """Start the makers, or connect to them. Don't wait for them: each is reported to ``receiver``."""


class OpenFleet(Protocol):
    """Makers that have been started. One thread at a time calls its methods; none of them waits.

    Examples
    --------
    >>> from standpipe.contracts import OpenFleet
    >>> sorted(name for name in vars(OpenFleet) if not name.startswith("_"))
    ['ask', 'close', 'poke', 'restart']
    """

    def ask(self, maker: int, number: int, task: Any) -> None:
        """Send a task for ``BatchMaker.make`` to a maker. ``number`` returns with the answer."""

    def poke(self, maker: int) -> None:
        """Ask a maker for a sign of life, which it gives while it makes rows, too."""

    def restart(self, maker: int) -> None:
        """End a maker that hangs, and start it again. The maker is reported as lost, and later as joined."""

    def close(self) -> None:
        """Forget all tasks; end the makers that ``open`` has started."""
