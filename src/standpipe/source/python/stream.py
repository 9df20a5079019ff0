"""The source of a stream: samples that are read in sequence, not by number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError, key_name
from standpipe.source.python.indexed import check_spec, sample_names
from standpipe.source.python.opened import OpenPython
from standpipe.spec import ArraySpec, StreamEnded

UNKNOWN = 1 << 62  # the length of a stream whose length isn't known
OFFERED = ("epoch", "skip", "rank", "world_size")

Begins = Callable[[int, int | None], object]


@dataclass(frozen=True, slots=True, eq=False)
class IterableSource:
    """A stream of samples, such as a torch ``IterableDataset``, which each epoch reads from its beginning.

    A stream guarantees less than other sources, since standpipe can't choose its order:

    - Samples keep the stream's order: ``shuffle``, ``select`` and similar methods raise ``PlanError``. One
      worker reads the stream and applies the transforms; ``num_workers=`` has no effect.
    - A resumed run continues with the next sample, if the stream is the same each time. If the factory has no
      parameter ``skip``, the samples before are read again. A sample's random numbers depend on its place in
      the stream.
    - Several ranks need ``length``, and a factory that takes ``rank`` and ``world_size`` and gives each rank
      its own part. The factory must make sure that these parts are disjoint.
    - Without ``length`` the number of steps isn't known, and ``len(loader)`` raises ``TypeError``. The last
      batch has the remaining samples with ``last_batch="partial"``, and is dropped with
      ``last_batch="drop"``.
    - A stream that ends before ``length`` raises ``SampleError``. Samples after ``length`` aren't read.

    The factory is called once per epoch, again when the stream has to be read from another place, and once
    more if a sample is measured at the start.

    Parameters
    ----------
    factory : callable
        Returns an iterable of samples. It is called with those of these keyword arguments that it takes:
        ``epoch`` (from 0), ``skip`` (number of samples to leave out at the beginning), ``rank`` and
        ``world_size``. A class of iterables without arguments is a factory too.
    length : int, optional
        Number of samples of an epoch, per rank. Default: not known before the stream's end.
    fields : tuple of str or str, default ("image", "label")
        Names of the values of a sample that is a tuple or list, or name of a sample that is a single value.
        Dicts and named tuples have names of their own.
    spec : mapping of str to ArraySpec, optional
        Shape and dtype of every field of a sample. Default: measured on one sample when a loader starts.
    share_lists : bool, default True
        True: long lists inside the factory become ``SharedList`` for worker processes.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid factory, length, names or specs, and for methods that need an order.

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
        """Check all arguments, without calling the factory.

        Raises ``PlanError`` if the factory isn't callable, and for invalid names, specs or lengths.
        """
        if not callable(self.factory):
            advice = (
                "give a function that returns it" if hasattr(self.factory, "__iter__") else "give a function"
            )
            raise PlanError(
                f"IterableSource({self.factory!r}): the factory must be callable, and return an iterable for each "
                f"epoch; {advice}"
            )
        length = self.length
        if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
            raise PlanError(
                f"IterableSource(length={length!r}): length must be the number of samples of an epoch, an integer "
                "from 1"
            )
        kind = "IterableSource"
        names = sample_names(kind, self.fields)
        if self.spec is not None:
            check_spec(kind, self.spec)
        return OpenIterable(
            Stream(self.factory, self.length), self.length, names, self.spec, self.share_lists
        )

    def describe(self) -> str:
        """Return the factory's name, for ``explain()``."""
        return f"IterableSource({_name(self.factory)})"


@dataclass(frozen=True, slots=True, eq=False)
class OpenIterable(OpenPython):
    """An opened stream. Satisfies ``contracts.OpenSource``, ``PythonSource`` and ``StreamSource``."""

    dataset: Stream
    length: int | None
    names: tuple[str, ...]
    declared: Mapping[str, ArraySpec] | None
    shares_lists: bool

    @property
    def num_records(self) -> int:
        """The length; ``UNKNOWN``, which is larger than any length, if it isn't known."""
        return UNKNOWN if self.length is None else self.length

    @property
    def digest(self) -> str:
        """A digest of the factory's name, the length and the fields' names."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        stands_for = f"iterable 1, {_name(self.dataset.factory)}, {self.length}, {self.names}"
        return blake2b(stands_for.encode(), digest_size=16).hexdigest()

    def of_rank(self, rank: int, world_size: int) -> Stream:
        """Return one rank's stream. Raises ``PlanError`` if the factory can't divide it among ranks."""
        if world_size > 1 and (self.length is None or not {"rank", "world_size"} <= self.dataset.parameters):
            raise PlanError(
                f"a stream for {world_size} ranks needs IterableSource(factory, length=…) with the number of samples "
                "per rank, and a factory(rank, world_size) that gives each rank its own part; otherwise ranks would "
                "see the same samples, or have different numbers of steps"
            )
        return replace(self.dataset, rank=rank, world_size=world_size)


@dataclass(slots=True)
class Stream:
    """The samples of one rank's stream, read in sequence.

    A request for any other than the next one restarts it.
    """

    factory: Callable[..., Any]
    length: int | None = None
    rank: int = 0
    world_size: int = 1
    _iterator: Iterator[Any] | None = None
    _next: tuple[int, int] = (0, 0)  # (epoch, place) of the next sample
    _end: tuple[int, int] | None = None  # (epoch, place) after the last sample

    def __getstate__(self) -> tuple[Any, ...]:
        return self.factory, self.length, self.rank, self.world_size

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.factory, self.length, self.rank, self.world_size = state
        self._iterator, self._next, self._end = None, (0, 0), None

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the arguments in ``OFFERED`` that the factory takes."""
        try:
            return frozenset(inspect.signature(self.factory).parameters) & frozenset(OFFERED)
        except (TypeError, ValueError):  # built-in functions without a signature
            return frozenset()

    def sample(self, epoch: int, place: int, begins: Begins = lambda epoch, place: None) -> Any:
        """Return the sample at a place of an epoch. Raises ``StreamEnded`` after the last one.

        begins  called before each piece of work, with the epoch and a place: None before a call of the factory, or a
                sample's place among those of all ranks before it is read, also for skipped samples
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
        made = self.factory(**{name: offered[name] for name in OFFERED if name in parameters})
        if made is None or isinstance(made, type):
            raise TypeError(f"the factory returned {key_name(made)}; it must return or yield samples")
        self._iterator = iter(made)
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
        except BaseException:
            self._iterator = None  # a generator ends when it raises, as by an interrupt: start it again
            raise
        self._next = (epoch, place + 1)
        return item


def _name(factory: object) -> str:
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}.{named.__qualname__}"
