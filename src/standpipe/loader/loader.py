"""The loader: an iterable of batches that knows its place in the run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Self

from standpipe.answers import answering
from standpipe.errors import PlanError, StandpipeError, StateError
from standpipe.loader.edits import in_order, reweighed
from standpipe.loader.iterators import EpochIterator, GivenEpoch, SomeSteps, repeated_steps
from standpipe.loader.monitoring import Observable
from standpipe.loader.state import STATE_VERSION, Edit, saved_state
from standpipe.order import AnyOrder, Cursor, Given
from standpipe.plan.plan import Plan
from standpipe.spec import AnyArray
from standpipe.stats.bad_samples import BadSample, Ledger
from standpipe.system.logs import logger
from standpipe.system.machine import memory_pools, usable_cpus
from standpipe.system.sharing import Claim
from standpipe.system.user_warnings import warn_user
from standpipe.units import MOST_COUNT, as_html

if TYPE_CHECKING:
    from standpipe.engine.deliver import Delivered
    from standpipe.engine.run import Run


@answering
class Loader(Observable):
    """An iterable over the batches of a plan: each ``iter()`` is the next epoch.

    ``pipeline.loader(…)`` makes one. A batch is a dict of arrays, one per field of ``plan.fields``, with the
    rows along the first axis: ``image``, ``label``, ``index`` (the records' numbers) and, with padding,
    ``valid``. A batch stays valid as long as your program holds any view of it.

    Threads start at the first ``iter()``. They end with ``close()``, at the end of a ``with`` block, when
    the loader is dropped, and at the end of the interpreter. A loop that ends by ``break`` or an exception
    leaves its epoch: the next ``iter()`` is the next epoch. To look at a batch, use ``peek()``, which leaves
    nothing out. ``state_dict()`` gives the place from which another process can continue.

    A batch that can't be delivered raises an error; the next ``next()`` tries the same batch again. One
    thread at a time takes batches. ``next()`` in a second thread at the same time raises
    ``StandpipeError``.

    Parameters
    ----------
    plan : Plan
        The plan to run.

    Attributes
    ----------
    plan : Plan
        The plan, with what was measured at the start.
    epoch : int
        The epoch of the next batch.
    history : standpipe.observe.History
        The run over time.

    Examples
    --------
    >>> train = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(sp.RandomResizedCrop(32)).batch(8)
    >>> with train.loader(num_workers=1) as loader:
    ...     for epoch in range(2):
    ...         for batch in loader:
    ...             images, labels = batch["image"], batch["label"]
    >>> images.shape, labels.shape
    ((8, 32, 32, 3), (8,))
    """

    def __init__(self, plan: Plan) -> None:
        # Importing it here saves a tenth of standpipe's import time for programs that only plan. At the first batch it
        # would be too late: the program may have given up rights or descriptors by then.
        from standpipe.engine.run import Run

        if not isinstance(plan, Plan):
            raise PlanError(f"Loader takes a Plan, not a {type(plan).__name__}. Write pipeline.loader(…)")
        super().__init__()
        self.plan = plan
        self._new_run = Run
        self._planned = plan.order  # before any edit
        self._cursor = Cursor()
        self._edits: tuple[Edit, ...] = ()
        self._step_rows_per_s: float | None = None  # speed of the training loop without waits
        self._ledger = Ledger(plan)
        self._entered: int | None = None  # the epoch of the last batch that was asked for
        self._returns = False  # True while batches are taken that will be delivered again
        self._by_steps = False  # True if the last batches were taken by ``steps()``
        self._has_advised = False  # True once the log has named ``peek()``
        self._run: Run | None = None
        # It lasts until the loader is closed or dropped.
        self._claim = Claim(usable_cpus(plan.device.cpus()), memory_pools())
        self._claim.promise(plan.memory.budget_bytes)
        self._closed = False
        self._turn: dict[str, int] = {}  # "taker": the thread inside next(); setting it by default is atomic
        self._iterator: weakref.ref[EpochIterator] | None = None
        self._finalizer: weakref.finalize[..., Loader] | None = None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes by label, as ``plan.classes``; None if the source has none.

        Examples
        --------
        >>> with sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).loader() as loader:
        ...     print(loader.classes)
        ('cat', 'dog')
        """
        return self.plan.classes

    def __repr__(self) -> str:
        """Return one line with the pipeline, the number of workers, and the loader's place in the run."""
        steps, at = self.plan.steps, self._cursor
        of = f" of {steps.per_epoch:,}" if self.plan.ends_known else ""
        where = f"epoch {at.epoch}, batch {at.consumed // (steps.batch * steps.world_size):,}{of}"
        state = ", closed" if self._closed else ""
        workers = f"{self.plan.pool.workers} worker{'s' if self.plan.pool.workers > 1 else ''}"
        return f"<Loader of {self.plan.pipeline!r}: {workers}, {where}{state}>"

    def _repr_html_(self) -> str:
        return as_html(f"{self!r}\n\n{self.explain()}")

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, the same on every rank.

        Raise ``TypeError`` for a stream without a length.
        """
        if not self.plan.ends_known:
            raise TypeError(
                "from_batches() gets its batches one by one, so the number of batches isn't known before their end"
                if isinstance(self.plan.order, Given)
                else "a stream's number of batches isn't known before its end. Write IterableSource(length=…)"
            )
        return self.plan.steps.per_epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader() as loader:
        ...     print(loader.epoch)
        ...     for batch in loader:
        ...         pass
        ...     print(loader.epoch)
        0
        1
        """
        return self._cursor.epoch

    def __iter__(self) -> Iterator[dict[str, AnyArray]]:
        """Return an iterator over the next epoch; after ``load_state_dict`` over the rest of the saved one."""
        self._check_open()
        self._check_not_given()
        left = self._cursor
        self._enter()
        epoch = self._rest()
        self._advise(left)  # last, as a loader that can't go on says only that
        return epoch

    def peek(self) -> dict[str, AnyArray]:
        """Return a copy of the next batch, without taking it.

        State, order, counters and recorded bad samples stay as they are, and batches that were made ahead are
        kept. While the iterator of an epoch or of ``steps()`` exists and has batches left, the next batch is
        its next one. Otherwise it is the first batch of the next ``iter()``, or, after ``steps()``, of the
        next ``steps()``. The copy is outside of ``memory=``.

        Returns
        -------
        dict
            What the loader will deliver, in memory of its own.

        Raises
        ------
        PlanError
            For pipelines with ``batch_sampler=True``, and for devices with static buffers.
        StandpipeError
            If the loader is closed, if a stream has ended, or if another thread is inside ``next()``; and as
            ``next()`` for a batch that can't be made.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader() as loader:
        ...     print(loader.peek()["x"])
        ...     print([batch["x"].tolist() for batch in loader])
        [0 1 2 3]
        [[0, 1, 2, 3], [4, 5, 6, 7]]
        """
        self._check_open()
        self._check_not_given()
        if self.plan.device.same_shapes:
            raise PlanError(
                "peek() needs a second batch on the device, and static_buffers=True has memory for one. Look at a "
                "batch of a loader without static_buffers"
            )
        with self._in_turn():
            if self._run is None:
                self._seek()
            assert self._run is not None
            at = self._next_place()
            batch = self._run.consumer.peek(at)
        if batch is None:
            raise StandpipeError(f"epoch {at.epoch} has no next batch: the stream has ended")
        return batch

    def from_batches(
        self, batches: Iterable[Iterable[int]], *, ahead: int = 0
    ) -> Iterator[dict[str, AnyArray]]:
        """Return an iterator over one epoch of batches that your program names.

        The pipeline needs ``batch(batch_size, batch_sampler=True)``. After ``skip_steps`` or
        ``load_state_dict`` the iterator is the rest of an epoch, and ``batches`` names only that. A batch
        that can't be made raises an error; the next ``next()`` continues with the batch after it.

        Parameters
        ----------
        batches : iterable of iterable of int
            Record numbers of each batch, from 1 to ``batch_size`` of them. The thread that takes batches
            iterates over it, so it may use results of earlier batches.
        ahead : int, default 0
            Number of batches that are named before they are needed, and begun at once. Then one more is named
            with each batch that is delivered. 0: each is named when it is needed.

        Returns
        -------
        iterator of dict

        Raises
        ------
        PlanError
            For a pipeline without ``batch_sampler=True``, and for an invalid batch.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(10))).batch(2, batch_sampler=True)
        >>> with pipeline.loader() as loader:
        ...     for batch in loader.from_batches([[9, 0], [5]], ahead=2):
        ...         print(batch["x"])
        [9 0]
        [5]
        """
        _check_number("from_batches(…, ahead=…)", ahead, "the number of batches", least=0)
        self._check_open()
        if not isinstance(self.plan.order, Given):
            raise PlanError("from_batches() needs a pipeline with batch(batch_size, batch_sampler=True)")
        self._enter()
        order = Given(self.plan.order.most_rows, self._cursor.epoch, self._cursor.consumed)
        self._follow(order)
        return GivenEpoch(self, order, iter(batches), ahead)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the epoch of the next ``iter()``, from its first batch on.

        Training loops that count epochs themselves call this before each epoch. Without it epochs advance by
        themselves. Every rank must do the same. If ``load_state_dict`` continued in the middle of this same
        epoch, the rest of it stays next.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0. Raises ``PlanError`` for other values.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).shuffle(seed=7).batch(4).loader() as loader:
        ...     loader.set_epoch(5)
        ...     batch = next(iter(loader))
        ...     print(loader.epoch)
        5
        """
        _check_number("set_epoch", epoch, "the epoch", least=0)
        self._check_open()
        if self._entered is None and self._cursor.epoch == epoch:
            return
        self._entered = None
        self._iterator = None
        self._ledger.start(epoch, 0)
        self._go_to(Cursor(epoch))

    def steps(self, number: int) -> Iterator[dict[str, AnyArray]]:
        """Return an iterator over the next ``number`` batches, across epochs, for training by step.

        A second call continues after them.

        Parameters
        ----------
        number : int
            Number of batches, at least 0.

        Returns
        -------
        iterator of dict

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(2).loader() as loader:
        ...     print([batch["x"].tolist() for batch in loader.steps(3)])
        [[0, 1], [2, 3], [0, 1]]
        """
        _check_number("steps", number, "the number of batches", least=0)
        self._check_not_given()
        return SomeSteps(self, number)

    def benchmark_steps(self, number: int = 50, *, batches: int = 2) -> Iterable[dict[str, AnyArray]]:
        """Deliver a few batches again and again, to measure the training loop without waits.

        Run your training step on these batches. ``diagnose()`` then knows how fast the loop can be at most.
        Afterwards the loader is where it was before, so that training gets these batches again; only then do
        they count as steps, and bad samples in them are recorded. If a device works in the background, the
        step must wait for it, for instance with ``loss.item()``.

        Parameters
        ----------
        number : int, default 50
            Number of timed steps, after one with each of the batches.
        batches : int, default 2
            Number of batches that are held and repeated.

        Returns
        -------
        iterable of dict

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader() as loader:
        ...     for batch in loader.benchmark_steps(10):
        ...         total = batch["x"].sum()  # your training step
        ...     for batch in loader:
        ...         total = batch["x"].sum()
        ...     diagnosis = loader.diagnose()
        """
        _check_number("benchmark_steps", number, "the number of steps", least=1)
        _check_number("benchmark_steps(…, batches=…)", batches, "the number of batches", least=1)
        self._check_not_given()
        return repeated_steps(self, number, batches)

    def skip_steps(self, number: int) -> None:
        """Leave out the next ``number`` batches, across epochs, such as those where a run's loss jumped.

        They count as delivered. Every rank must do the same. ``edits`` and the state keep a record.

        Parameters
        ----------
        number : int
            Number of batches, at least 1.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).loader() as loader:
        ...     loader.skip_steps(2)
        ...     print(next(iter(loader))["x"])
        [4 5]
        """
        _check_number("skip_steps", number, "the number of batches", least=1)
        self._check_open()
        begin = self._cursor
        edit: Edit = {"epoch": begin.epoch, "consumed": begin.consumed, "skip_steps": number}
        self._edits = (*self._edits, edit)
        self._go_to(self.plan.steps.after(begin, number))

    def reweigh(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        """Change a mixture's weights from the next batch on.

        The components continue in their orders, and epochs keep their length. Every rank must do the same at
        the same step. ``edits`` and the state keep a record: a run that resumes from it, with any number of
        ranks and any batch size, gets the changed mixture. So use it for some hundred changes, not one per
        step.

        Parameters
        ----------
        weights : mapping of str to float, or sequence of float
            Weights of all components, by name or in their order: at least 0 each, not all 0.

        Raises
        ------
        PlanError
            If the source is no mixture, or if the weights don't fit it.

        Examples
        --------
        >>> zeros, ones = sp.Pipeline(sp.Arrays(x=np.zeros(300))), sp.Pipeline(sp.Arrays(x=np.ones(300)))
        >>> mixture = sp.Mixture({zeros: 1, ones: 1}, names=["zeros", "ones"])
        >>> with sp.Pipeline(mixture).batch(100).loader() as loader:
        ...     loader.reweigh({"zeros": 0, "ones": 1})
        ...     print(next(iter(loader))["x"].mean())
        1.0
        """
        self._check_open()
        cursor = self.plan.steps.settled(self._cursor)
        of_each = in_order(self.plan.source, weights)
        edit: Edit = {"epoch": cursor.epoch, "consumed": cursor.consumed, "reweigh": of_each}
        order = reweighed(self.plan.order, edit)
        edit["reweigh"] = [float(weight) for weight in edit["reweigh"]]  # plain data for the state
        self._edits = (*self._edits, edit)
        self._follow(order)

    @property
    def edits(self) -> list[Edit]:
        """The record of ``skip_steps`` and ``reweigh``, in this run and in those that it resumed.

        Each edit is a dict. ``epoch`` and ``consumed`` give its place. ``skip_steps`` is the number of steps
        that were left out, or ``reweigh`` are the mixture's weights from there on.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).loader() as loader:
        ...     loader.skip_steps(2)
        ...     print(loader.edits)
        [{'epoch': 0, 'consumed': 0, 'skip_steps': 2}]
        """
        return [dict(edit) for edit in self._edits]

    @property
    def bad_samples(self) -> list[BadSample]:
        """The newest samples that ``on_error(Replace(…))`` replaced in delivered batches.

        At most 1,000, and at most 0.5 MiB of them, are kept. ``error_log=`` writes all to a file.
        Those of batches that are only prefetched aren't included.

        Examples
        --------
        >>> import pathlib
        >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"not an image")
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
        >>> with pipeline.on_error(sp.Replace(at_most=0.05)).loader() as loader:
        ...     batch = next(iter(loader))
        ...     print([(bad.index, bad.place) for bad in loader.bad_samples])
        [(0, 'transform')]
        """
        return self._ledger.samples(self._cursor)

    def state_dict(self) -> dict[str, object]:
        """Return the loader's place in the run as plain data, to resume from.

        It counts delivered batches; prefetched ones don't count. Save it with your model's checkpoint.

        Returns
        -------
        dict
            Plain values that JSON can hold.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2)
        >>> with pipeline.loader() as loader:
        ...     first = next(iter(loader))
        ...     state = loader.state_dict()
        >>> with pipeline.loader() as loader:
        ...     loader.load_state_dict(state)
        ...     print(next(iter(loader))["x"])
        [2 3]
        """
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
        """Continue where ``state`` was saved, with any number of workers, ranks or any batch size.

        The pipeline must be the same otherwise. Load the same state on every rank.

        Parameters
        ----------
        state : mapping
            The result of ``state_dict()``.

        Raises
        ------
        StateError
            If the state is damaged or was saved by another recipe. The message names the parts that differ.

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8)))
        >>> with pipeline.batch(2).loader() as loader:
        ...     first = next(iter(loader))
        ...     state = loader.state_dict()
        >>> with pipeline.batch(3).loader() as loader:
        ...     loader.load_state_dict(state)
        ...     print(next(iter(loader))["x"])
        [2 3 4]
        """
        saved = saved_state(state, self.plan)
        try:
            order = reduce(reweighed, saved.edits, self._planned)
        except PlanError as error:
            raise StateError(f"the state is damaged: edits {list(saved.edits)!r}: {error}") from error
        # Before any change, so that a refused state changes nothing:
        cursor = self.plan.steps.settled(saved.cursor)
        self._edits = saved.edits
        self._cursor = cursor
        self._ledger.start(saved.cursor.epoch, saved.bad_rows)
        if order is not self.plan.order:
            self._follow(order)
        self._entered = None
        self._iterator = None
        if repr(saved.decoder) != repr(self.plan.decoder):
            warn_user(
                f"the state was saved with libjpeg-turbo {saved.decoder}, this is {self.plan.decoder}: "
                "pixels may differ"
            )

    def close(self) -> None:
        """End all threads. Delivered batches stay valid.

        The end of a ``with`` block calls it.

        Examples
        --------
        >>> loader = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).loader()
        >>> batch = next(iter(loader))
        >>> loader.close()
        >>> batch["x"]
        array([0, 1])
        """
        self._closed = True
        try:
            self._sampler.close()
        finally:
            if self._finalizer is not None and (alive := self._finalizer.peek()) is not None:
                # not the finalizer, which runs only once: an interrupted close() may be called again
                alive[1]()
                self._finalizer.detach()
            self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _advise(self, left: Cursor) -> None:
        """Log once what ``iter()`` does, if it left the epoch of the cursor ``left`` after its first batch."""
        epoch = left.epoch
        is_after_first = self._entered == epoch and left == self.plan.steps.after(Cursor(epoch))
        if self._has_advised or not is_after_first:
            return
        self._has_advised = True
        logger().warning(
            "this iter() begins epoch %d, and epoch %d was left after its first batch: each iter() is the next epoch. "
            "To look at a batch without taking it, use peek()",
            epoch + 1,
            epoch,
        )

    def _next_place(self) -> Cursor:
        """Return the place of the batch that the present iterator, or else the next one, delivers next."""
        is_left = self._iterator is None or self._iterator() is None
        if is_left and not self._by_steps and self._entered == self._cursor.epoch:
            return Cursor(self._cursor.epoch + 1)
        return self._cursor

    def _enter(self) -> None:
        """Advance to the next epoch if the caller has already asked for a batch of the present epoch."""
        if self._entered == self._cursor.epoch:
            self._cursor = Cursor(self._cursor.epoch + 1)

    @contextmanager
    def _returning(self) -> Iterator[None]:
        """Return the loader to its present place after a ``with`` block, whose batches don't count."""
        cursor, entered, iterator, by_steps = self._cursor, self._entered, self._iterator, self._by_steps
        self._returns = True
        try:
            yield
        finally:
            self._returns = False
            self._cursor, self._entered, self._iterator, self._by_steps = cursor, entered, iterator, by_steps
            if self._run is not None:
                self._run.consumer.leave()
                self._run.consumer.seek(cursor)

    def _go_to(self, cursor: Cursor) -> None:
        """Make the batch at a cursor the next one."""
        self._cursor = cursor
        if self._run is not None:
            self._run.consumer.seek(cursor)

    def _follow(self, order: AnyOrder) -> None:
        """Replace the order of records from the next batch on."""
        self.plan = replace(self.plan, order=order)
        if self._run is not None:
            self._run.consumer.follow(order, self._cursor)

    def _check_not_given(self) -> None:
        if isinstance(self.plan.order, Given):
            raise PlanError(
                "this pipeline uses batch(batch_sampler=True): iterate over loader.from_batches(batches)"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StandpipeError("the loader is closed")

    @answering
    def _rest(self, *, by_steps: bool = False) -> EpochIterator:
        """Return an iterator over the rest of the epoch that the next batch belongs to; start the run if needed."""
        self._check_open()
        self._by_steps = by_steps
        self._seek()
        iterator = EpochIterator(self, self._cursor.epoch)
        assert self._run is not None
        consumer = self._run.consumer
        if self._iterator is not None:
            consumer.leave()  # the old one, which the program may still hold
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

    @answering
    def _deliver(self, iterator: EpochIterator) -> Delivered | None:
        """Return the next batch, or None if the epoch has ended. The iterator advances the loader.

        iterator  the iterator that asks; raises ``StandpipeError`` if a later one has replaced it
        """
        if self._closed or self._run is None:
            raise StandpipeError("the loader is closed")
        consumer = self._run.consumer
        if self._iterator is None or self._iterator() is not iterator:
            raise StandpipeError(
                "this iterator has ended: a later iter() or load_state_dict() replaced it. A loader has one "
                "epoch at a time"
            )
        if self._cursor.epoch != iterator.epoch:
            consumer.leave()
            return None
        with self._in_turn():
            self._entered = iterator.epoch
            try:
                return consumer.take(self._cursor, counts=not self._returns)
            finally:
                if consumer.drawing != self.plan.drawing:
                    self.plan = replace(self.plan, drawing=consumer.drawing)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Make sure that no other thread takes a batch during a ``with`` block. Raises ``StandpipeError``."""
        me = threading.get_ident()
        if self._turn.setdefault("taker", me) != me:
            raise StandpipeError(
                "another thread is inside next(). Take batches in one thread, and pass them on from there"
            )
        try:
            yield
        finally:
            self._turn.clear()


def _check_number(name: str, number: object, what: str, *, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number < MOST_COUNT:
        raise PlanError(f"{name}: {what} must be an integer from {least}, got {number!r}")
