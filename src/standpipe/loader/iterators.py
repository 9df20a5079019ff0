"""Iterators over a loader's batches: an epoch, a number of steps, an epoch of named batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

from standpipe.errors import PlanError, SampleError, StalledError, WorkerDiedError
from standpipe.order import Given
from standpipe.spec import AnyArray

if TYPE_CHECKING:
    from standpipe.loader.loader import Loader


class EpochIterator:
    """An iterator over one epoch, or over the rest of it after a saved state."""

    __slots__ = ("__weakref__", "_loader", "_over", "epoch")

    def __init__(self, loader: Loader, epoch: int) -> None:
        self._loader = loader
        self._over = False
        self.epoch = epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, AnyArray]:
        loader = self._loader
        if not self._over and (delivered := loader._deliver(self)) is not None:
            batch = delivered.batch
            # From here on nothing is called, so that an interrupt comes before this, or after the return.
            loader._cursor = delivered.after
            if batch is not None:
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
        self._broken: BaseException | None = None  # the error that came out of ``batches``
        self._held: dict[str, AnyArray] | None = None  # a batch that an interrupt kept from the caller
        self._epoch: EpochIterator | None = None
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
        if self._held is None:
            if not self._coming and not self._ask():
                raise StopIteration
            try:
                self._held = self._next()
            except (SampleError, StalledError, WorkerDiedError):
                loader = self._loader
                loader._go_to(loader.plan.steps.after(loader._cursor))
                self._go_on()
                raise
        self._go_on()
        batch, self._held = self._held, None
        return batch

    @property
    def _coming(self) -> int:
        """The number of batches that were named and not delivered."""
        return self._order.next - self._loader._cursor.consumed

    def _next(self) -> dict[str, AnyArray]:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._epoch is None:
            self._epoch = self._loader._rest()
        return self._epoch.__next__()  # unlike next(), with no moment for an interrupt before the return

    def _go_on(self) -> None:
        """Forget the batch before the loader's place, and take the records of one more from the caller."""
        self._order.forget(self._loader._cursor.consumed - 1)
        if self._coming < self._ahead and self._broken is None:
            self._ask()

    def _ask(self) -> bool:
        """Take the next batch's records from the caller; return False at the end.

        A generator that an exception has left looks as if it had ended. Then this raises ``PlanError``.
        """
        if self._broken is not None:
            raise PlanError(
                f"from_batches(): the batches that are left are unknown, as their iterator raised {self._broken!r}. "
                "Begin another epoch"
            ) from self._broken
        try:
            self._order.give(next(self._batches))
        except StopIteration:
            return False
        except BaseException as error:
            if not isinstance(
                error, PlanError
            ):  # of ``give``, for an invalid batch: others can come after it
                self._broken = error
            raise
        if self._loader._run is not None:
            self._loader._run.consumer.look()
        return True


class SomeSteps:
    """An iterator over the next ``number`` batches, across epochs."""

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader = loader
        self._left = number
        self._epoch: EpochIterator | None = None

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


def repeated_steps(loader: Loader, number: int, batches: int) -> Iterator[dict[str, AnyArray]]:
    """Yield a few batches again and again, to measure the training loop when it never waits.

    Afterwards the loader's next batch is the same as before.

    number   number of timed steps; before them, each batch is delivered once untimed
    batches  number of batches that are repeated, from the loader's next one on
    """
    with loader._returning():
        held = list(SomeSteps(loader, batches))
    yield from held
    begin, rows = time.perf_counter(), 0
    for step in range(number):
        batch = held[step % batches]
        rows += len(batch["index"])
        yield batch
    loader._step_rows_per_s = rows / (time.perf_counter() - begin)
