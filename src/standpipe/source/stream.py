"""Samples that come one after another and can't be asked for by number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source._python import OpenPython
from standpipe.source.indexed import NAMES, check_names, check_spec
from standpipe.spec import ArraySpec

UNKNOWN = 1 << 62  # stands for a length that nobody knows
OFFERED = ("epoch", "skip", "rank", "world_size")

Begins = Callable[[int, int | None], object]


@dataclass(frozen=True, slots=True, eq=False)
class IterableSource:
    """A stream: each epoch iterates over what ``factory()`` returns, from its beginning.

    A stream guarantees less than other sources, since only it knows its order:

    - Samples come in its own order: ``shuffle``, ``select`` and similar methods are a ``PlanError``. One
      worker reads it and applies the transforms; ``num_workers=`` has no effect.
    - A resumed run continues with the same sample, if the stream is the same each time. Without a parameter
      ``skip`` the stream is read from its beginning up to there. Random numbers depend on the sample's place
      in it.
    - Several ranks need ``length``, and a factory that takes ``rank`` and ``world_size`` and gives each rank
      its own part. The factory must make sure that these parts are disjoint.
    - Without ``length`` the number of steps isn't known: ``len(loader)`` is a ``TypeError``, and the last
      batch is the shorter rest (``last_batch="partial"``), or dropped with ``last_batch="drop"``. A stream
      that ends before its ``length`` is a ``SampleError``; what comes after it isn't read.

    The factory is called again whenever the stream has to be read from another place, and once more where a
    sample is measured at the start.

    Parameters
    ----------
    factory : callable
        Returns an iterable of samples. It is called with those of the arguments ``epoch`` (from 0), ``skip``
        (number of samples to leave out at the beginning), ``rank`` and ``world_size`` that it has. A class of
        iterables, such as a torch ``IterableDataset`` without arguments, is a factory too.
    length : int, optional
        Samples of an epoch, of each rank. Default: not known before the stream's end.
    fields, spec, share_lists
        As for ``MapSource``.

    Examples
    --------
    >>> def lines(skip=0):
    ...     return ({"x": number} for number in range(skip, 6))
    >>> with sp.Pipeline(sp.IterableSource(lines, length=6)).batch(3).loader(executor="thread") as loader:
    ...     print([batch["x"].tolist() for batch in loader])
    [[0, 1, 2], [3, 4, 5]]
    """

    factory: Any
    length: int | None = None
    fields: tuple[str, ...] | str | None = None
    spec: Mapping[str, ArraySpec] | None = None
    share_lists: bool = True

    def open(self) -> OpenSource:
        """Look at the factory's parameters; it isn't called.

        Raises ``PlanError`` for what is no factory, and names, specs or a length that are none.
        """
        if not callable(self.factory):
            advice = (
                "give a function that returns it" if hasattr(self.factory, "__iter__") else "give a function"
            )
            raise PlanError(f"IterableSource({self.factory!r}): an epoch is what a factory returns; {advice}")
        length = self.length
        if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
            raise PlanError(f"IterableSource(length={length!r}): samples of an epoch, an integer from 1")
        kind = "IterableSource"
        names = (
            (self.fields,) if isinstance(self.fields, str) else NAMES if self.fields is None else self.fields
        )
        check_names(kind, names)
        if self.spec is not None:
            check_spec(kind, self.spec)
        return OpenIterable(
            Stream(self.factory, self.length), self.length, tuple(names), self.spec, self.share_lists
        )

    def describe(self) -> str:
        """The factory's name."""
        return f"IterableSource({_name(self.factory)})"


@dataclass(frozen=True, slots=True, eq=False)
class OpenIterable(OpenPython):
    """A stream. Satisfies ``contracts.OpenSource``, ``PythonSource`` and ``StreamSource``."""

    dataset: Stream
    length: int | None
    names: tuple[str, ...]
    declared: Mapping[str, ArraySpec] | None
    shares_lists: bool

    @property
    def num_records(self) -> int:
        """The length, or more than there can be."""
        return UNKNOWN if self.length is None else self.length

    @property
    def digest(self) -> str:
        """A digest of the factory's name, the length and the fields' names."""
        from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

        stands_for = f"iterable 1, {_name(self.dataset.factory)}, {self.length}, {self.names}"
        return blake2b(stands_for.encode(), digest_size=16).hexdigest()

    def of_rank(self, rank: int, world_size: int) -> Stream:
        """One rank's samples. Raises ``PlanError`` when the factory can't tell ranks apart."""
        if world_size > 1 and (self.length is None or not {"rank", "world_size"} <= self.dataset.parameters):
            raise PlanError(
                f"a stream for {world_size} ranks needs IterableSource(factory, length=…) with the samples of each "
                "rank, and a factory(rank, world_size) that gives each its own part: else all would see the same "
                "samples, or differ in steps"
            )
        return replace(self.dataset, rank=rank, world_size=world_size)


class StreamEnded(Exception):
    """The stream has no such sample. ``position``: its number of samples."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(slots=True)
class Stream:
    """One rank's samples in sequence; a request for any but the next one starts the stream anew."""

    factory: Callable[..., Any]
    length: int | None = None
    rank: int = 0
    world_size: int = 1
    _iterator: Iterator[Any] | None = None
    _next: tuple[int, int] = (0, 0)  # (epoch, place) of the next sample
    _end: tuple[int, int] | None = None  # of the one after the last

    def __getstate__(self) -> tuple[Any, ...]:
        return self.factory, self.length, self.rank, self.world_size

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.factory, self.length, self.rank, self.world_size = state
        self._iterator, self._next, self._end = None, (0, 0), None

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the arguments that the factory takes."""
        try:
            return frozenset(inspect.signature(self.factory).parameters) & frozenset(OFFERED)
        except (TypeError, ValueError):  # built-in functions without a signature
            return frozenset()

    def sample(self, epoch: int, place: int, begins: Begins = lambda epoch, place: None) -> Any:
        """The sample at a place of an epoch. Raises ``StreamEnded`` behind the last one.

        begins  called with the epoch, and None before the factory is called, or a sample's place among those of all
                ranks before the stream is asked for it, also for one that is passed over
        """
        if self._end is not None and self._end[0] == epoch and place >= self._end[1]:
            raise StreamEnded(self._end[1])
        if self._iterator is None or self._next != (epoch, place):
            self._start(epoch, place, begins)
        return self._advance(begins)

    def _start(self, epoch: int, place: int, begins: Begins) -> None:
        begins(epoch, None)
        offered = {"epoch": epoch, "skip": place, "rank": self.rank, "world_size": self.world_size}
        parameters = self.parameters
        self._iterator = iter(self.factory(**{name: offered[name] for name in OFFERED if name in parameters}))
        self._next = (epoch, place if "skip" in parameters else 0)
        while self._next[1] < place:
            self._advance(begins)

    def _advance(self, begins: Begins) -> Any:
        assert self._iterator is not None
        epoch, place = self._next
        begins(epoch, place * self.world_size + self.rank)
        try:
            item = next(self._iterator)
        except StopIteration:
            self._iterator, self._end = None, (epoch, place)
            raise StreamEnded(place) from None
        self._next = (epoch, place + 1)
        return item


def _name(factory: object) -> str:
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}.{named.__qualname__}"
