"""The iterator of ``standpipe.torch.DataLoader``: torch's sampler chooses a batch's records, standpipe makes it."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

import standpipe as sp
from standpipe.torch.here import Here
from standpipe.torch.named import Named
from standpipe.torch.nest import Nest, NotPlain, columns
from standpipe.torch.samples import BATCH, Collate, Samples, TorchStream, TorchWorkerState, as_it_is
from standpipe.torch.turns import InTurn, begun

if TYPE_CHECKING:
    from standpipe.torch.dataloader import DataLoader

MOST_BAD = 1_000  # newest bad samples of finished epochs that are kept
_pinned: Any = _utils.pin_memory.pin_memory


@dataclass(slots=True)
class ResumePoint:
    """A position in an epoch, with the random state that is needed to resume there.

    random     state of the generator (``generator=`` or torch's global one) before the epoch used it
    base_seed  seed from which each worker derives its own
    number     epochs that these workers began before this one
    delivered  number of delivered batches of this epoch
    digest     digest of the record numbers in the delivered batches
    ended      True if all batches of the epoch were delivered
    """

    random: bytes | None
    base_seed: int
    number: int = 0
    delivered: int = 0
    digest: str = ""
    ended: bool = False


@dataclass(slots=True)
class Course:
    """The state that a ``DataLoader`` shares with its iterators.

    collates  True: workers call ``collate_fn``; False: workers write samples into the batch's memory
    bad       newest bad samples that were replaced in finished epochs
    place     position in the current epoch
    saved     position from ``load_state_dict`` at which the next ``iter()`` starts; None: at the beginning
    engine    the running loader of the current epoch; None: none is running
    """

    collates: bool
    place: ResumePoint | None = None
    saved: ResumePoint | None = None
    bad: deque[sp.BadSample] = field(default_factory=lambda: deque(maxlen=MOST_BAD))
    engine: weakref.ref[sp.Loader | InTurn] | None = None

    @property
    def bad_samples(self) -> list[sp.BadSample]:
        """The newest bad samples that were replaced in finished epochs, and those of the current one."""
        engine = self.engine() if self.engine is not None else None
        return [*self.bad, *(engine.bad_samples if engine is not None else ())]


class DataLoaderIterator(_BaseDataLoaderIter):
    """The iterator over one epoch of a ``DataLoader``.

    It draws the base seed and the order from the generator in the same sequence as torch's iterators.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.num_workers and not loader.prefetch_factor:  # the same errors as torch's
            raise AssertionError("prefetch_factor must be greater than 0 with num_workers > 0")
        if loader.timeout and not loader.num_workers:
            raise AssertionError("timeout must be 0 with num_workers=0")
        self._course, self._limit = loader._course, loader._limit
        saved, self._course.saved = self._course.saved, None
        drawing = Drawing(loader.generator, None if saved is None else saved.random)
        with drawing:
            random = generator_state(loader.generator)
            super().__init__(loader)
            if saved is None:
                saved = ResumePoint(None, int(self._base_seed))
            self._place = ResumePoint(random, saved.base_seed, saved.number)
            if saved.number:  # of workers that stayed, whose seed was drawn before
                drawing.rewind()
            if saved.number or self._num_workers:
                self._sampler_iter = iter(self._index_sampler)  # once more, as torch does
            self._engine: sp.Loader | InTurn | None = None
            self._keys: dict[int, Any] = {}
            is_left = self._begin(loader, saved)
        if saved.delivered and not is_left:  # the state was saved after an epoch's last batch
            self.__init__(loader)  # type: ignore[misc]

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Start the next epoch with the same workers. torch calls it with ``persistent_workers=True``."""
        if self._course.saved is not None:
            self._stop()
            self.__init__(loader)  # type: ignore[misc]
            return
        random = generator_state(loader.generator)
        super()._reset(loader, first_iter)
        self._place = ResumePoint(random, self._place.base_seed, self._place.number + 1)
        self._begin(loader, self._place)

    def _begin(self, loader: DataLoader[Any], saved: ResumePoint) -> bool:
        """Start to make batches after the first ``saved.delivered`` ones. Return False if none is left.

        Raises ``StateError`` if the sampler's first batches differ from those of the saved epoch.
        """
        self._ahead = self._num_workers * (loader.prefetch_factor or 0)
        self._rows = loader.batch_size or 1
        self._plan: Callable[[int], sp.Loader | InTurn] = loader_maker(
            loader, self._place.base_seed, self._keys
        )
        self._here = (
            Here(loader.dataset, loader.collate_fn, alone=not self._auto_collation)
            if loader._makes_here
            else None
        )
        self._batches: Iterator[Any] | None = None
        self._fetched: Any = None  # the engine's next batch, while it isn't delivered
        self._is_ahead = (
            False  # True if the engine may have given more than was delivered, as after an interrupt
        )
        self._nest: Nest | None = None
        self._named: Named | None = None
        self._place.delivered = saved.delivered
        self._course.place = self._place
        is_left = True
        if not loader._is_stream:
            most_rows = self._rows if loader.batch_size or not self._auto_collation else None
            most_rows = most_rows if self._here is None else sys.maxsize
            self._named = Named(
                self._sampler_iter,
                self._keys if self._here is None else None,
                many=self._auto_collation,
                most_rows=most_rows,
            )
            self._named.leave_out(saved.delivered)
            if saved.delivered and self._named.at.digest != saved.digest:
                raise sp.StateError(
                    "the sampler gives another order than when the state was saved. Either the dataset has changed, "
                    "or the sampler uses random numbers from elsewhere than generator= or torch's global generator"
                )
            self._place.digest = self._named.at.digest
            # Draw the first batch now, while the generator still has the state from the epoch's start.
            is_left = self._named.look(
                max(self._ahead, saved is not self._place and saved.random is not None)
            )
            if self._num_workers and is_left:
                self._start()
        return is_left

    def _start(self) -> None:
        """Start the workers, if they aren't running, and the iterator over the remaining batches."""
        if self._here is not None:
            assert self._named is not None
            self._batches = map(self._here.batch, self._named.batches())
            return
        if self._engine is None:
            self._engine = self._plan(self._rows if self._named is None else self._named.most_rows)
            self._course.engine = weakref.ref(self._engine)
            if self._place.number:
                self._engine.set_epoch(self._place.number)
            if self._place.delivered:
                self._engine.skip_steps(self._place.delivered)
        try:
            if isinstance(self._engine, InTurn):
                self._batches = iter(self._engine)
            elif self._named is None:
                self._batches = begun(self._engine)
            else:
                self._batches = self._engine.from_batches(self._named.batches(), ahead=self._ahead)
        except BaseException:  # the engine may have begun the epoch, and wouldn't begin it again
            self._stop()
            raise

    def _next_data(self) -> Any:
        if self._is_ahead:
            self._stop()  # it begins again at the place
        self._is_ahead = self._named is not None  # a stream isn't read again: its batch stays in ``_fetched``
        try:
            if self._place.ended:
                raise StopIteration
            data = self._next_batch()
            if self._pin_memory:
                data = _pinned(data, self._pin_memory_device)
            self._passed()
        except StopIteration:
            self._place.ended, self._is_ahead = True, False
            if not self._persistent_workers:
                self._stop()
            raise
        except (sp.SampleError, sp.StalledError, sp.WorkerDiedError) as error:
            # Look the key up before _passed() drops it. With _here, keys aren't numbered, and may be unhashable.
            index: Any = error.index
            key = index if self._here is not None else self._keys.get(index, index)
            self._passed()
            raise _told(error, self._limit, key) from error.__cause__
        except sp.StandpipeError:
            self._is_ahead = False
            raise
        return data

    def _next_batch(self) -> Any:
        misfit: sp.SampleError | None = None
        while True:
            if self._batches is None:
                self._start()
            assert self._batches is not None
            try:
                if self._fetched is None:
                    # Unlike next(), with no moment for an interrupt before the assignment.
                    self._fetched = self._batches.__next__()
                return self._fetched if self._here is not None else self._made(self._fetched)
            except StopIteration:
                if self._named is None or self._named.waits is None:
                    raise
                self._stop()
                if not self._named.waits:
                    return self._made_of_none()
                self._named.make_room()
            except sp.SampleError as error:
                if misfit is not None:
                    error.add_note(str(misfit))
                if self._course.collates or not _is_misfit(error):
                    raise
                # The batch's samples differ in type or shape: make it again, and let default_collate decide.
                misfit, self._course.collates = error, True
                self._stop()

    def _made_of_none(self) -> Any:
        """Return ``collate_fn([])`` for a batch for which the sampler gave no records, as torch does."""
        try:
            return self._collate_fn([])
        except Exception as error:
            error.add_note(
                "the sampler named a batch without records, for which collate_fn got an empty list"
            )
            self._passed()
            raise

    def _made(self, fields: dict[str, Any]) -> Any:
        """Return the batch in the structure that ``collate_fn`` gives, from the engine's fields.

        Raises ``StopIteration`` for a stream's short last batch with ``drop_last``.
        """
        if self._named is None and self._drop_last and len(fields["index"]) < self._rows:
            raise StopIteration
        if BATCH in fields:
            return fields[BATCH].value
        if self._nest is None:
            assert self._engine is not None
            self._nest = Nest(list(self._engine.plan.batch.contents))
        return self._nest.batch(fields)

    def _passed(self) -> None:
        """Advance the position by one batch, which was delivered or raised an error."""
        named, passed = self._named, replace(self._place, delivered=self._place.delivered + 1)
        if named is not None:
            passed.ended = bool(self._ahead) and not named.is_left()
            at = named.next_place()
            passed.digest = at.digest
        # From here on nothing is called, so that an interrupt comes before all of this or after it.
        if named is not None:
            named.at = at
        self._place = self._course.place = passed
        self._fetched, self._is_ahead = None, False

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._course.bad += self._engine.bad_samples
            self._course.engine = None
        self._engine = self._batches = self._fetched = self._nest = None


def loader_maker(
    loader: DataLoader[Any], base_seed: int, keys: Mapping[int, Any]
) -> Callable[[int], sp.Loader | InTurn]:
    """Return a function that makes a running standpipe loader for a given maximum number of rows in a batch.

    keys  the sampler's values, by the record numbers that stand for them
    """
    course, workers, shared = loader._course, loader.num_workers, loader.share_lists
    dataset, collate_fn, alone = loader.dataset, loader.collate_fn, not loader._auto_collation
    is_stream, settings, init_fn = loader._is_stream, loader._engine_settings(), loader.worker_init_fn
    on_error, drop_last, certain = loader._policy, loader.drop_last, loader.split_by_worker is True

    def pipeline(rows: int, number: int | None = None) -> sp.Pipeline:
        seat = TorchWorkerState(base_seed, workers, init_fn, number, bool(settings.get("round_robin")))
        form = as_it_is if course.collates else columns
        collates = Collate(collate_fn, alone) if course.collates else None
        if is_stream:
            stream = sp.IterableSource(TorchStream(dataset, seat), share_lists=shared)
            made = sp.Pipeline(stream, seed=base_seed + (number or 0))
            made = made.batch(rows, collate_fn=collates, last_batch="partial")
        else:
            samples = sp.MapSource(Samples(dataset, form, seat, alone), share_lists=shared, keys=keys)
            made = sp.Pipeline(samples, seed=base_seed).batch(rows, collate_fn=collates, batch_sampler=True)
        return made.on_error(on_error)

    def plan(rows: int) -> sp.Loader | InTurn:
        if not is_stream or workers < 2:
            return pipeline(rows).loader(**settings)
        parts = [pipeline(rows, number) for number in range(workers)]
        each = parts[0].plan(**settings).memory_bytes // workers
        loaders = [part.loader(**{**settings, "memory": each}) for part in parts]
        return InTurn(loaders, rows=rows, drop_last=drop_last, certain=certain)

    return plan


class Drawing:
    """A context in which a generator starts from an earlier state.

    At the end, torch's global generator gets its former state back. A generator that the caller gave doesn't.

    generator  None: torch's global generator
    random     the earlier state; None: the generator keeps its present state
    """

    def __init__(self, generator: torch.Generator | None, random: bytes | None) -> None:
        self._generator, self._random = generator, random
        self._before: torch.Tensor | None = None

    def __enter__(self) -> None:
        if self._random is not None and self._generator is None:
            self._before = torch.get_rng_state()
        self.rewind()

    def rewind(self) -> None:
        """Set the generator back to the state at the epoch's start."""
        if self._random is not None:
            set_state(self._generator, self._random)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            torch.set_rng_state(self._before)


def generator_state(generator: torch.Generator | None) -> bytes:
    """Return the state of a generator; None means torch's global generator."""
    state = torch.get_rng_state() if generator is None else generator.get_state()
    return state.numpy().tobytes()


def set_state(generator: torch.Generator | None, random: bytes) -> None:
    """Set a generator to the state ``random``; None means torch's global generator."""
    state = torch.frombuffer(bytearray(random), dtype=torch.uint8)
    if generator is None:
        torch.set_rng_state(state)
    else:
        generator.set_state(state)


def _is_misfit(error: sp.SampleError) -> bool:
    return isinstance(error.__cause__, NotPlain) or error.place == "batch"


def _told(error: sp.SampleError | sp.StalledError | sp.WorkerDiedError, limit: str, key: Any) -> Exception:
    """Return the error with the names of DataLoader arguments, and without advice on a ``Pipeline``.

    limit  name of the DataLoader argument that limits the time for a sample
    key    the sampler's value for the failed sample

    If the user's code raised the cause, the result is also an instance of the cause's type, as with torch.
    """
    error.__notes__ = [note for note in getattr(error, "__notes__", []) if ".on_error(" not in note]
    if isinstance(error, sp.StalledError):  # starts with torch's words, which users search for
        text = (
            str(error)
            .replace("stall_timeout_s=", f"{limit}=")
            .replace("start_timeout_s=", "stall_timeout_s=")
        )
        error.args = (f"DataLoader timed out after {error.seconds:.0f} seconds: {text}",)
    if key is not error.index:  # index and path only stand for the key
        error.index, error.path = key, None
    cause = error.__cause__
    if isinstance(error, sp.SampleError) and isinstance(cause, Exception):
        with contextlib.suppress(Exception):  # the two types can't be combined
            both = _both(type(error), type(cause))(  # type: ignore[arg-type]  # classes can be hashed
                error.reason, place=error.place, index=error.index, path=error.path, offset=error.offset
            )
            both.__dict__.update(error.__dict__)
            return both
    return error


@functools.cache
def _both(kind: type[sp.SampleError], cause: type[Exception]) -> type[sp.SampleError]:
    """Return a class that derives from both error types. Raises ``TypeError`` if they can't be combined.

    ``StopIteration`` and ``StopAsyncIteration`` are never combined: such an error would end a loop.
    """
    if issubclass(cause, NotPlain | StopIteration | StopAsyncIteration):
        raise TypeError
    return type(kind.__name__, (kind, cause), {"__module__": kind.__module__, "__str__": Exception.__str__})
