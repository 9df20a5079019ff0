"""Iterators over a loader's batches: an epoch, a number of steps, an epoch of named batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

from standpipe.errors import SampleError, StalledError, WorkerDiedError
from standpipe.order import Given
from standpipe.spec import AnyArray

if TYPE_CHECKING:
    from standpipe.loader.loader import Loader


class Epoch:
    """An iterator over one epoch, or over the rest of it after a saved state."""

    __slots__ = ("__weakref__", "_loader", "_over", "epoch")

    def __init__(self, loader: Loader, epoch: int) -> None:
        self._loader = loader
        self._over = False
        self.epoch = epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, AnyArray]:
        if not self._over and (batch := self._loader._deliver(self)) is not None:
            return batch
        self._over = True
        raise StopIteration


class GivenEpoch:
    """An iterator over one epoch of batches that the caller names while it runs.

    order    the record numbers that the caller has given so far
    batches  the caller's iterator: it yields the record numbers of each batch
    ahead    number of batches whose record numbers are taken before the batches are needed
    """

    def __init__(self, loader: Loader, order: Given, batches: Iterator[Iterable[int]], ahead: int) -> None:
        self._loader, self._order, self._batches = loader, order, batches
        self._ahead = ahead
        self._coming = 0  # number of batches that were named and not delivered
        self._epoch: Epoch | None = None
        self._failed: Exception | None = None  # the error of the first batch, found at the start
        while self._coming < ahead and self._ask():
            pass
        if self._coming:
            try:
                self._epoch = loader._rest()
            except (SampleError, StalledError, WorkerDiedError) as error:
                self._failed = error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, AnyArray]:
        if not self._coming and not self._ask():
            raise StopIteration
        place = self._loader._cursor.consumed
        try:
            batch = self._next()
        except (SampleError, StalledError, WorkerDiedError):
            self._loader._leave_out()
            self._passed(place)
            raise
        self._passed(place)
        return batch

    def _next(self) -> dict[str, AnyArray]:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._epoch is None:
            self._epoch = self._loader._rest()
        return next(self._epoch)

    def _passed(self, place: int) -> None:
        self._order.forget(place)
        self._coming -= 1
        if self._ahead:
            self._ask()

    def _ask(self) -> bool:
        """Take the next batch's records from the caller; return False at the end."""
        for records in self._batches:
            self._order.give(records)
            self._coming += 1
            self._loader._look()
            return True
        return False


class SomeSteps:
    """An iterator over the next ``number`` batches, across epochs."""

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader = loader
        self._left = number
        self._epoch: Epoch | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, AnyArray]:
        if self._left == 0:
            raise StopIteration
        if self._epoch is None or self._epoch.epoch != self._loader.epoch:
            self._epoch = self._loader._rest(by_steps=True)
        while (batch := next(self._epoch, None)) is None:  # a stream has ended
            self._epoch = self._loader._rest(by_steps=True)
        self._left -= 1
        return batch


class RepeatedSteps:
    """An iterable that repeats a few batches, to measure the training loop when it never waits.

    Afterwards the loader's next batch is the same as before.

    number   number of timed steps; before them, each batch is delivered once untimed
    batches  number of batches that are repeated, from the loader's next one on
    """

    def __init__(self, loader: Loader, number: int, batches: int) -> None:
        self._steps = self._run(loader, number, batches)

    def __iter__(self) -> Iterator[dict[str, AnyArray]]:
        return self._steps

    @staticmethod
    def _run(loader: Loader, number: int, batches: int) -> Iterator[dict[str, AnyArray]]:
        with loader._returning():
            held = list(SomeSteps(loader, batches))
        yield from held
        begin, rows = time.perf_counter(), 0
        for step in range(number):
            batch = held[step % batches]
            rows += len(batch["index"])
            yield batch
        loader._step_rows_per_s = rows / (time.perf_counter() - begin)
