"""How one sample is made where Python code takes part: dataset, native kernels and functions, then its row.

The same code runs in the caller's thread, in worker threads and in worker processes, so that all give the same
bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import GeneratorType
from typing import Any, TypeVar

import numpy as np

from standpipe import _native
from standpipe.engine.board import IDLE, IN_TURN, ROW, SINCE, STEP, Desk, new_desk
from standpipe.engine.calls import PythonCall, python_call, said
from standpipe.engine.collating import numbered
from standpipe.engine.draws import Drew, GlobalGenerators
from standpipe.engine.fields import measured, write_row
from standpipe.engine.images import ImageMaker
from standpipe.engine.keeping import NO_FILE, as_kept
from standpipe.engine.own_generators import OwnGenerators
from standpipe.engine.recipe import Recipe, Supplies
from standpipe.engine.rows import END, CantBeKept, EncodedFile, Inputs, RowFailed, RowKey, Rows, Sample
from standpipe.engine.stored import NotStorable, to_bytes
from standpipe.engine.timing import Laps
from standpipe.engine.workers import NO_FLAWS, Failure, Flaws
from standpipe.faults import faultpoint
from standpipe.source import NAMES, Stream, StreamEnded
from standpipe.spec import AnyArray, Listed, Spec
from standpipe.transform import DATASET_OP, FunctionStep, NativeStep

_VALUES = frozenset((int, float, np.ndarray))  # types of samples that are one value

Result = TypeVar("Result")


class SampleMaker:
    """Makes samples for one thread, inside ``with maker.own``.

    supplies  what it shares with others of its process
    catches   what the user's code may raise without ending the thread: in a worker everything, also ``SystemExit``
              and the panics of other languages; in the caller's thread an interrupt is the caller's
    desk      where it writes down what it is at
    group     stands for all makers of a loader; default: it is alone
    """

    def __init__(
        self,
        recipe: Recipe,
        shared: GlobalGenerators,
        supplies: Supplies,
        *,
        catches: type[BaseException] = Exception,
        desk: Desk | None = None,
        group: object = None,
    ) -> None:
        self.own = OwnGenerators(shared, self if group is None else group)
        self.desk: Desk = new_desk() if desk is None else desk
        self._catches = catches
        self.recipe, self._shared = recipe, shared
        self._images = ImageMaker(recipe, supplies, self.desk)
        self._told = Flaws()
        self._gives: type = dict  # what the dataset's last sample was: dict, tuple, or any other object
        self._dataset = (
            None
            if recipe.dataset is None
            else PythonCall(self._item, False, DATASET_OP, "source", "the dataset")
        )
        self._steps = [
            python_call(step, self.own) if isinstance(step, FunctionStep) else step
            for step in recipe.program.steps
        ]
        self._checks = recipe.checks if recipe.checks.any else None
        self._kept = supplies.kept
        self._fixed = False  # whether it is at what comes before the cache, which may not draw
        self.laps = Laps()
        self._proves = False  # whether samples are to be proven to be fit for the cache
        # A kernel makes numbers of bytes: all are finite.
        self._made_natively = "image" if self._steps and isinstance(self._steps[-1], NativeStep) else None

    def measure(self, key: RowKey, inputs: Inputs) -> Mapping[str, Spec | Listed] | Failure:
        """What each field of a sample looks like, or why it can't be made."""

        def make(seeded: bool) -> Mapping[str, Spec | Listed] | Failure:
            self.at(0)
            self._proves = self.recipe.keeps_samples
            try:
                return measured(numbered(self.make(key, inputs.row(0), {}, seeded), self.recipe.collate))
            except RowFailed as failed:
                return failed.failure(0)
            finally:
                self._proves = False
                self.desk[STEP] = IDLE

        return self.run(make)

    def at(self, row: int, step: int = 0) -> None:
        """Write down that a row begins, or a step with the whole batch."""
        desk = self.desk
        desk[SINCE] = time.monotonic_ns()
        desk[ROW] = row
        desk[STEP] = step

    def begins(self, row: int) -> None:
        """A row of a piece of work begins."""
        self.at(row)
        self.laps.begins()

    def ends(self) -> None:
        """It is made."""
        if self.laps.on:
            self.laps.ends(self.desk[SINCE])

    def fill(self, rows: Rows, first: int, stop: int) -> list[Failure]:
        """Make rows [first, stop); which of them can't be made."""
        return self.run(lambda seeded: self.filled(rows, first, stop, seeded))

    def filled(self, rows: Rows, first: int, stop: int, seeded: bool) -> list[Failure]:
        """Likewise, inside ``run``."""
        image = rows.views.get("image")
        out: Mapping[str, AnyArray] = {}
        bad = []
        key_of, inputs_of, make = rows.key, rows.inputs.row, self.make
        for row in range(first, stop):
            if image is not None:
                out = {"image": image[row]}
            self.begins(row)
            try:
                write_row(make(key_of(row), inputs_of(row), out, seeded), row, rows, out)
                self.ends()
            except RowFailed as failed:
                bad.append(failed.failure(row))
                if failed.place == END:
                    break
        return bad

    def new_flaws(self) -> Flaws:
        """Rows that were made of files that aren't whole, since the last call."""
        now = self._images.flaws
        before, self._told = self._told, now
        return NO_FLAWS if now is NO_FLAWS else now - before

    def run(self, make: Callable[[bool], Result]) -> Result:
        """``make(False)``, or ``make(True)`` where calls have to be seeded; ``draws`` says why."""
        return self._shared.run(self.own, make)

    def make(self, key: RowKey, sample: Sample, out: Mapping[str, AnyArray], seeded: bool) -> Sample:
        """The sample of a record, its values by field. Raises ``RowFailed``.

        sample  what the source says of the record, by field; an image's encoded bytes as ``EncodedFile``
        out     rows to write into, by field, where the last step can do that without a copy: then the sample's
                value is that row
        """
        faultpoint("worker.row", key.index)
        first = 0
        if self._proves and not (self._kept is not None and self._kept.has(key.index)):
            first = self._before_cache
            sample = self._proven(key, sample, seeded)
        elif self._kept is not None and self.recipe.keeps_samples:
            first = self._before_cache
            sample = self._found_or_made(key, sample, out, seeded)
        else:
            sample = self._begun(key, sample, seeded)
        sample = self._through(first, len(self._steps), key, sample, out, seeded)
        if self._checks is not None and (problem := self._checks.problem(sample, self._made_natively)):
            raise RowFailed("batch", problem)
        return sample

    def as_given(self, sample: Sample) -> Any:
        """A sample in the dataset's own form: a dict, a tuple, or its only value."""
        if self._gives is dict or sample.keys() - set(self.recipe.names):
            return sample
        return tuple(sample.values()) if self._gives is tuple else next(iter(sample.values()))

    def _begun(self, key: RowKey, sample: Sample, seeded: bool) -> Sample:
        """What the source says of a record, with what the dataset gives."""
        if self._dataset is not None:
            begin = time.perf_counter_ns() if self.laps.on else 0
            sample |= self.call(self._dataset, key, key, seeded)
            if begin:
                self.laps.step(0, begin)
        return sample

    def _through(
        self, first: int, stop: int, key: RowKey, sample: Sample, out: Mapping[str, AnyArray], seeded: bool
    ) -> Sample:
        """The sample after steps [first, stop)."""
        since = time.perf_counter_ns() if self.laps.on else 0
        for number in range(first, stop):
            step = self._steps[number]
            self.desk[STEP] = 1 + number
            if isinstance(step, PythonCall):
                sample = self.call(step, key, sample, seeded)
            else:
                row = out.get("image") if number == len(self._steps) - 1 else None
                sample = {**sample, "image": self._images.make(number, step, key, sample.get("image"), row)}
            if since:
                since = self.laps.step(1 + number, since)
        return sample

    def _found_or_made(
        self, key: RowKey, inputs: Sample, out: Mapping[str, AnyArray], seeded: bool
    ) -> Sample:
        """The sample at the cache: the one that was kept, or made now and kept, and the same in both cases."""
        assert self._kept is not None
        self._kept.enter(key.epoch)
        file = inputs.get("image")
        found, stale = self._kept.find(key.index, file if isinstance(file, EncodedFile) else None)
        if found is not None:
            self._gives = found.form
            self._images.count(found.damaged, found.truncated)
            return found.sample
        flaws, marks = self._images.flaws, self._shared.marks()
        made = self._fixed_part(key, inputs, out, seeded)
        row, sample = as_kept(made, self._gives)
        # Where somebody has drawn, all is made again, with calls that tell who it was. Before that nothing is known.
        if row is not None and self.own.sees_torch and (seeded or self._shared.marks() == marks):
            flaws = self._images.flaws - flaws
            damaged, truncated = flaws.damaged > 0, flaws.truncated > 0
            stamp = self._images.stamp if isinstance(file, EncodedFile) else NO_FILE
            self._kept.keep(key.index, row, stamp, stale=stale, damaged=damaged, truncated=truncated)
        return sample

    def _proven(self, key: RowKey, inputs: Sample, seeded: bool) -> Sample:
        """The sample at the cache, made twice: it can be kept, and comes out the same. Else raises ``CantBeKept``."""
        made = self._fixed_part(key, dict(inputs), {}, seeded)
        other = self._fixed_part(replace(key, attempt=key.attempt + 1), dict(inputs), {}, seeded)
        try:
            row, again = to_bytes(made, self._gives), to_bytes(other, self._gives)
        except NotStorable as error:
            raise CantBeKept(
                "transform",
                f"cache(…): {error}, which no cache keeps; it keeps arrays and tensors of numbers, numbers, texts, "
                "bytes, images, and lists, tuples and dicts of these. Put .cache(…) before what makes it, or make "
                "something else of it",
            ) from error
        if not np.array_equal(row, again):
            raise CantBeKept(
                "transform",
                "cache(…): what comes before it makes something else of a record each time, and the cache would keep "
                "one for ever; put .cache(…) before what changes, or draw from a parameter rng behind it",
            )
        return as_kept(made, self._gives)[1]

    def _fixed_part(self, key: RowKey, inputs: Sample, out: Mapping[str, AnyArray], seeded: bool) -> Sample:
        """What comes before the cache. Raises ``CantBeKept`` when it draws."""
        self._fixed = True
        try:
            begun = self._begun(key, inputs, seeded)
            return self._through(0, self._before_cache, key, begun, out, seeded)
        finally:
            self._fixed = False

    @property
    def _before_cache(self) -> int:
        return self.recipe.program.before_cache

    def _item(self, key: RowKey, _: int) -> Sample:
        """The dataset's values by field."""
        dataset, names = self.recipe.dataset, self.recipe.names
        item = dataset.sample(key.epoch, key.index) if isinstance(dataset, Stream) else dataset[key.index]
        if item is None:
            raise RowFailed("source", f"dataset[{key.index}] returned None; return the sample")
        kind = type(item)
        if kind is dict:
            self._gives = dict
            return {**item}
        if kind is tuple or kind is list or kind in _VALUES:  # asking for more takes half a microsecond
            several = kind not in _VALUES
        elif isinstance(item, Mapping) or (isinstance(item, tuple) and hasattr(item, "_asdict")):
            self._gives = dict
            return dict(item if isinstance(item, Mapping) else item._asdict())
        else:
            several = isinstance(item, tuple | list)
        self._gives = tuple if several else object
        if not several and (len(names) == 1 or names == NAMES):
            return {names[0]: item}
        values = item if several else (item,)
        if len(values) > len(names):
            fields = (*names, *(f"field{number}" for number in range(len(names), len(values))))
            raise RowFailed("source", f"a sample of {len(values)} values; name them, as fields={fields!r}")
        if len(values) < len(names) and names != NAMES:
            raise RowFailed("source", f"a sample of {len(values)} values, and fields={names!r} are more")
        return dict(zip(names, values, strict=False))

    def call(self, step: PythonCall, key: RowKey, argument: Any, seeded: bool) -> Sample:
        """Call Python code with its random numbers set."""
        number = 0
        if (
            seeded or step.takes_key or self.own.watches_torch or self._fixed
        ):  # a quarter of what calling costs
            number = _native.sample_key(self.recipe.seed, key.epoch, key.position, key.attempt, step.op)
            self.own.set(number)
        try:
            result: Sample = (
                self._shared.seeded(self.own, self._in_turn(step.call), argument, number)
                if seeded
                else step.call(argument, number)
            )
        except (Drew, RowFailed):
            raise
        except StreamEnded as ended:
            raise _end_of(self.recipe.dataset, ended) from None
        except self._catches as error:
            raise RowFailed(step.place, f"{step.name}: {said(error)}", error) from error
        if self._fixed and self.own.has_drawn():
            raise CantBeKept(
                step.place,
                f"cache(…): {step.name} draws random numbers, and what comes before the cache is made once for all "
                "epochs: each would see the same draws. Put .cache(…) before it, or draw in a function behind it",
            )
        for name, value in result.items():
            if type(value) is GeneratorType:
                raise RowFailed(
                    step.place, f"{step.name}: {name!r} is a generator; return the value, don't yield it"
                )
        return result

    def _in_turn(self, call: Callable[[Any, int], Sample]) -> Callable[[Any, int], Sample]:
        """The call, for which it has to wait: that others take their time isn't its slowness."""
        desk, begin = self.desk, time.monotonic_ns()
        desk[STEP] += IN_TURN

        def called(argument: Any, number: int) -> Sample:
            desk[SINCE] += time.monotonic_ns() - begin
            desk[STEP] -= IN_TURN
            return call(argument, number)

        return called


def unforeseen(row: int, error: BaseException) -> Failure:
    """The fate of rows whose worker met an error outside of the user's code: it goes on, and nobody waits for it."""
    return Failure(row, "batch", said(error), error)


def _end_of(stream: Stream, ended: StreamEnded) -> RowFailed:
    if stream.length is None:
        return RowFailed(END, f"the stream ends after {ended.position} samples")
    return RowFailed("source", f"the stream ends after {ended.position} of length={stream.length} samples")
