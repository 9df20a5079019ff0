"""A loader: an iterable of batches that knows where it stands."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from types import TracebackType
from typing import TYPE_CHECKING, Self

from standpipe.errors import PlanError, StandpipeError, StateError
from standpipe.loader.edits import in_order, reweighed
from standpipe.loader.iterators import Epoch, GivenEpoch, RepeatedSteps, SomeSteps
from standpipe.loader.monitoring import Observable
from standpipe.loader.state import MOST, STATE_VERSION, Edit, saved_state
from standpipe.order import AnyOrder, Cursor, Given
from standpipe.plan.plan import Plan
from standpipe.spec import AnyArray
from standpipe.stats.bad_samples import BadSample, Ledger
from standpipe.system.machine import memory_pools, usable_cpus
from standpipe.system.sharing import Claim
from standpipe.system.user_warnings import warn

if TYPE_CHECKING:
    from standpipe.engine.run import Run


class Loader(Observable):
    """Batches of a plan: each ``iter()`` is the next epoch.

    A batch is a dict of arrays, one per field of ``plan.fields`` with the rows in front: ``image``,
    ``label``, ``index`` (the records' numbers) and, with padding, ``valid``. It belongs to whoever holds it,
    as long as any view of it is held.

    Threads start at the first ``iter()``. ``close()``, the end of a ``with`` block, dropping the loader, or
    the end of the interpreter ends them. A loop that is left by ``break`` or an exception leaves its epoch:
    the next ``iter()`` is the next epoch. ``state_dict()`` says where to go on in another process.

    A batch that can't be delivered raises. ``next()`` after that tries the same batch again. One thread at a
    time takes batches; another one's ``next()`` meanwhile is a ``StandpipeError``.

    plan   what is run
    epoch  the epoch of the next batch

    ``history`` has what it did over time.
    """

    def __init__(self, plan: Plan) -> None:
        # A tenth of what importing standpipe costs, and planning needs none of it; at the first batch it would be too
        # late for who has given up rights, or descriptors, since.
        from standpipe.engine.run import Run

        if not isinstance(plan, Plan):
            raise PlanError(
                f"Loader({type(plan).__name__}(…)): it takes a Plan; write pipeline.loader(…), which makes one"
            )
        super().__init__()
        self.plan = plan
        self._new_run = Run
        self._planned = plan.order  # before any edit
        self._cursor = Cursor()
        self._edits: tuple[Edit, ...] = ()
        self._step_rows_per_s: float | None = None  # of the training loop, when it waits for nothing
        self._ledger = _ledger(plan)
        self._entered: int | None = None  # the epoch that a batch was last asked of
        self._returns = False  # whether what is taken now comes again
        self._run: Run | None = None
        # Until it is closed, or dropped:
        self._claim = Claim(usable_cpus(plan.device.cpus()), memory_pools())
        self._claim.promise(plan.memory.budget_bytes)
        self._closed = False
        self._turn: dict[str, int] = {}  # "taker": the thread inside next(); setting it by default is atomic
        self._iterator: weakref.ref[Epoch] | None = None
        self._finalizer: weakref.finalize[..., Loader] | None = None

    def __repr__(self) -> str:
        """One line: of which pipeline, by how many workers, and where it stands."""
        steps, at = self.plan.steps, self._cursor
        of = f" of {steps.per_epoch:,}" if self.plan.ends_known else ""
        where = f"epoch {at.epoch}, batch {at.consumed // (steps.batch * steps.world_size):,}{of}"
        state = ", closed" if self._closed else ""
        workers = f"{self.plan.pool.workers} worker{'s' if self.plan.pool.workers > 1 else ''}"
        return f"<Loader of {self.plan.pipeline!r}: {workers}, {where}{state}>"

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank. Raises ``TypeError`` for a stream without a length."""
        if not self.plan.ends_known:
            raise TypeError(
                "how many batches are given isn't known before their end"
                if isinstance(self.plan.order, Given)
                else "how many batches a stream has isn't known before its end; say IterableSource(length=…)"
            )
        return self.plan.steps.per_epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._cursor.epoch

    def __iter__(self) -> Iterator[dict[str, AnyArray]]:
        """The next epoch; after ``load_state_dict`` the rest of the saved one."""
        self._check_open()
        self._check_not_given()
        self._enter()
        return self._rest()

    def from_batches(
        self, batches: Iterable[Iterable[int]], *, ahead: int = 0
    ) -> Iterator[dict[str, AnyArray]]:
        """Return the next epoch of a pipeline with ``batch(batch_size, batch_sampler=True)``: of these batches.

        After ``skip_steps`` or ``load_state_dict`` it is the rest of an epoch, and ``batches`` names that.

        batches  record numbers of each; asked in the thread that takes batches, so it may look at those before
        ahead    how many are asked for at once, and begun; then one more with each that is delivered. Default 0:
                 each is asked for when it is wanted

        A batch that can't be made raises, and the next one is the one after it. Raises ``PlanError`` for a
        batch that has no records, or more than ``batch_size``.
        """
        _check_number("from_batches(…, ahead)", ahead, "how many batches", least=0)
        self._check_open()
        if not isinstance(self.plan.order, Given):
            raise PlanError("from_batches() is for a pipeline with batch(batch_size, batch_sampler=True)")
        self._enter()
        order = Given(self.plan.order.most_rows, self._cursor.epoch, self._cursor.consumed)
        self._follow(order)
        return GivenEpoch(self, order, iter(batches), ahead)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the one that the next ``iter()`` gives, from its first batch on.

        What is left of an epoch that ``load_state_dict`` went on in the middle of stays, where that is the
        same one. Training loops that count epochs themselves call this before each; without it epochs advance
        by themselves. Every rank must do the same. Raises ``PlanError`` for what is no epoch.
        """
        _check_number("set_epoch", epoch, "the number of an epoch", least=0)
        self._check_open()
        if self._entered is None and self._cursor.epoch == epoch:
            return
        self._cursor = Cursor(epoch)
        self._entered = None
        self._iterator = None
        self._ledger.start(epoch, 0)
        if self._run is not None:
            self._run.consumer.seek(self._cursor)

    def steps(self, number: int) -> Iterator[dict[str, AnyArray]]:
        """The next ``number`` batches, across epochs, for training by step; asked again, those after them."""
        _check_number("steps", number, "how many batches", least=0)
        self._check_not_given()
        return SomeSteps(self, number)

    def benchmark_steps(self, number: int = 50, *, batches: int = 2) -> Iterable[dict[str, AnyArray]]:
        """The next ``batches`` batches, ``number`` times in turn: how fast is the training loop if it never waits?

        ::

            for batch in loader.benchmark_steps(50):
                step(batch)
            for batch in loader:
                step(batch)
            print(loader.diagnose())  # which knows what the loop can take, at most

        The loader then stands where it stood, so that training sees these batches again: only then they count
        as steps, and bad samples among them are taken down. Where a device works behind the loop's back, the
        step has to wait for it, as ``loss.item()`` does.
        """
        _check_number("benchmark_steps", number, "how many batches", least=1)
        _check_number("benchmark_steps(…, batches)", batches, "how many batches are held", least=1)
        self._check_not_given()
        return RepeatedSteps(self, number, batches)

    def skip_steps(self, number: int) -> None:
        """Leave out the next ``number`` batches, across epochs: those on which a run's loss jumped, say.

        They count as delivered. Every rank must do the same. ``edits`` keeps a record, and so does the state.
        """
        _check_number("skip_steps", number, "how many batches", least=1)
        self._check_open()
        begin = self._cursor
        self._cursor = self.plan.steps.after(begin, number)
        edit: Edit = {"epoch": begin.epoch, "consumed": begin.consumed, "skip_steps": number}
        self._edits = (*self._edits, edit)
        if self._run is not None:
            self._run.consumer.seek(self._cursor)

    def reweigh(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        """Change a mixture's weights from the next batch on.

        weights  of all components, in their order or by their names, from 0 on, not all 0

        Where components are in their orders goes on, and epochs stay as long as they are. Every rank must do
        the same at the same step. ``edits`` keeps a record, and so does the state: whoever goes on from
        there, with any ranks and batch size, gets the changed mixture. So it is meant for some hundred
        changes, not for one a step. Raises ``PlanError`` where there is no mixture.
        """
        self._check_open()
        cursor = self.plan.steps.settled(self._cursor)
        of_each = in_order(self.plan.source, weights)
        edit: Edit = {"epoch": cursor.epoch, "consumed": cursor.consumed, "reweigh": of_each}
        order = reweighed(self.plan.order, edit)
        edit["reweigh"] = [float(weight) for weight in edit["reweigh"]]  # checked, and now plain data
        self._edits = (*self._edits, edit)
        self._follow(order)

    @property
    def edits(self) -> list[Edit]:
        """What ``skip_steps`` and ``reweigh`` changed, in this run and those whose state it went on from.

        ``epoch`` and ``consumed`` say where, ``skip_steps`` how many steps were left out, or ``reweigh``
        which weights the mixture has from there on.
        """
        return [dict(edit) for edit in self._edits]

    @property
    def bad_samples(self) -> list[BadSample]:
        """Samples that ``on_error(Replace(…))`` replaced in what this loader delivered: the newest 10,000.

        Those of batches that are only prefetched aren't among them.
        """
        return self._ledger.samples(self._cursor)

    def state_dict(self) -> dict[str, object]:
        """Where the loader stands, as plain data: batches delivered so far, none that are only prefetched."""
        return {
            "version": STATE_VERSION,
            "digest": self.plan.digest,
            "recipe": dict(self.plan.recipe),
            "epoch": self._cursor.epoch,
            "consumed": self._cursor.consumed,
            "edits": self.edits,
            "bad_rows": self._ledger.rows(self._cursor),
            "bad_ranks": self.plan.steps.world_size,
            "decoder": self.plan.decoder,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on where ``state`` was saved, with any workers, ranks or batch size.

        Raises ``StateError`` when it is damaged or was saved by another recipe; the message says what
        differs.
        """
        saved = saved_state(state, self.plan)
        try:
            order = reduce(reweighed, saved.edits, self._planned)
        except PlanError as error:
            raise StateError(f"the state is damaged: edits {list(saved.edits)!r}: {error}") from error
        cursor = self.plan.steps.settled(saved.cursor)  # what is refused changes nothing
        self._edits = saved.edits
        self._cursor = cursor
        self._ledger.start(saved.cursor.epoch, saved.bad_rows)
        if order is not self.plan.order:
            self._follow(order)
        self._entered = None
        self._iterator = None
        if repr(saved.decoder) != repr(self.plan.decoder):
            warn(
                f"the state was saved with libjpeg-turbo {saved.decoder}, this is {self.plan.decoder}: "
                "pixels may differ"
            )

    def close(self) -> None:
        """End all threads. Batches that were delivered stay valid."""
        self._closed = True
        try:
            self._sampler.close()
        finally:
            if self._finalizer is not None and (alive := self._finalizer.peek()) is not None:
                # not the finalizer, which runs once only: a close() that was interrupted may come again
                alive[1]()
                self._finalizer.detach()
            self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enter(self) -> None:
        """The next batch is of an epoch that none was asked of yet."""
        if self._entered == self._cursor.epoch:
            self._cursor = Cursor(self._cursor.epoch + 1)

    @contextmanager
    def _returning(self) -> Iterator[None]:
        """Return the loader to its present place after a ``with`` block."""
        cursor, entered, iterator = self._cursor, self._entered, self._iterator
        self._returns = True
        try:
            yield
        finally:
            self._returns = False
            self._cursor, self._entered, self._iterator = cursor, entered, iterator
            if self._run is not None:
                self._run.consumer.leave()
                self._run.consumer.seek(cursor)

    def _leave_out(self) -> None:
        """The batch after the next one is the next one."""
        self._cursor = self.plan.steps.after(self._cursor)
        if self._run is not None:
            self._run.consumer.seek(self._cursor)

    def _look(self) -> None:
        """Let the run look for more batches to fill."""
        if self._run is not None:
            self._run.consumer.look()

    def _follow(self, order: AnyOrder) -> None:
        """Deliver by another order from the next batch on."""
        self.plan = replace(self.plan, order=order)
        if self._run is not None:
            self._run.consumer.follow(order, self._cursor)

    def _check_not_given(self) -> None:
        if isinstance(self.plan.order, Given):
            raise PlanError("of batches that are given, loader.from_batches(batches) is an epoch")

    def _check_open(self) -> None:
        if self._closed:
            raise StandpipeError("the loader is closed")

    def _rest(self) -> Epoch:
        """Return the rest of the epoch that the next batch is in."""
        self._check_open()
        self._seek()
        iterator = Epoch(self, self._cursor.epoch)
        assert self._run is not None
        consumer = self._run.consumer
        if self._iterator is not None:
            consumer.leave()  # whoever holds the old one yet
        self._iterator = weakref.ref(iterator, lambda _: consumer.leave())
        return iterator

    def _seek(self) -> None:
        if self._run is not None:
            self._run.consumer.seek(self._cursor)
            return
        self._ledger.open()
        run = self._new_run(self.plan, self._ledger, self._claim)
        # Not through the loader: a reference to it would keep it alive.
        self._finalizer = weakref.finalize(self, run.close)
        try:
            self._check_open()  # a close() after this finds the run
            run.start(self._cursor)
            self._observe(run)
            self._check_open()  # a close() after this finds the observer too
            self.plan, self._run = run.plan, run
        except BaseException:
            self._finalizer()
            self._sampler.close()
            raise

    def _deliver(self, iterator: Epoch) -> dict[str, AnyArray] | None:
        """The next batch, or None at the epoch's end."""
        if self._closed or self._run is None:
            raise StandpipeError("the loader is closed")
        consumer = self._run.consumer
        if self._iterator is None or self._iterator() is not iterator:
            raise StandpipeError(
                "another iter() or load_state_dict() took over; a loader has one epoch at a time"
            )
        if self._cursor.epoch != iterator.epoch:
            consumer.leave()
            return None
        me = threading.get_ident()
        if self._turn.setdefault("taker", me) != me:
            raise StandpipeError(
                "another thread is inside next(): one thread takes batches and shares them out"
            )
        try:
            self._entered = iterator.epoch
            delivered = consumer.take(self._cursor, counts=not self._returns)
            self._cursor = delivered.after
            return delivered.batch
        finally:
            self._turn.clear()
            if consumer.drawing != self.plan.drawing:
                self.plan = replace(self.plan, drawing=consumer.drawing)


def _check_number(name: str, number: object, what: str, *, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number < MOST:
        raise PlanError(f"{name}({number!r}): {what}, an integer from {least}")


def _ledger(plan: Plan) -> Ledger:
    return Ledger(
        plan.pipeline.bad,
        epoch_rows=plan.rows_per_epoch,
        world_size=plan.steps.world_size,
        rank=plan.steps.rank,
        path=plan.options.log_path,
    )
