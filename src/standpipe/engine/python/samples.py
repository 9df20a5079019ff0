"""Make one sample with Python code: dataset, native kernels and functions, then its row.

The same code runs in the caller's thread, in worker threads and in worker processes, so all give the same bytes. Only
random numbers from global generators differ: worker processes set these generators, and threads leave them alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from standpipe import _native
from standpipe.engine.python.cached_samples import NO_FILE, as_kept, prove_kept
from standpipe.engine.python.calls import PythonCall, python_call, row_failed, said
from standpipe.engine.python.columns import Columns, Uneven, in_turn, write_columns
from standpipe.engine.python.draws import Draws
from standpipe.engine.python.encoded import is_part_of_file, is_struct
from standpipe.engine.python.encoded_rows import encoded_rows
from standpipe.engine.python.fields import measured, write_row
from standpipe.engine.python.generators import Marks, changed, marks
from standpipe.engine.python.images import ImageMaker
from standpipe.engine.python.instances import in_image, with_instances
from standpipe.engine.python.own_generators import OwnGenerators
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.rows import END, BatchRows, CantWork, EncodedFile, Inputs, RowFailed, RowKey, Sample
from standpipe.engine.timing import Laps
from standpipe.engine.watchdog.board import IDLE, ROW, SINCE, STEP, Heartbeat, new_heartbeat
from standpipe.engine.workers import Failure
from standpipe.plan.parts import MeasuredSample
from standpipe.spec import BOXES_PX, KEY, NAMES, AnyArray, StreamEnded
from standpipe.stats.counters import Counts, counts_since
from standpipe.system.faults import faultpoint
from standpipe.transform import DATASET_OP, FunctionStep, NativeStep, Step, moves

if TYPE_CHECKING:
    from standpipe.source import Stream

_VALUES = frozenset((int, float, np.ndarray))  # types of samples that are one value

Result = TypeVar("Result")


class SampleMaker:
    """Makes samples in one thread, from records to fields.

    setup     how samples are made
    supplies   objects that all makers of this process share
    keyed      True in a worker process, where global generators are set for samples; False: they are left alone
    catches    exceptions of the user's code that fail only the sample: all in a worker, with ``SystemExit`` and
               panics of other languages; in the training loop's thread, an interrupt is raised there instead
    heartbeat  memory where the maker writes its current row and step; None: new memory
    """

    def __init__(
        self,
        setup: WorkerSetup,
        supplies: Supplies,
        *,
        keyed: bool = False,
        catches: type[BaseException] = Exception,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.own = OwnGenerators()
        self.heartbeat: Heartbeat = new_heartbeat() if heartbeat is None else heartbeat
        self._catches = catches
        self.setup = setup
        self._images = ImageMaker(setup, supplies, self.heartbeat)
        self.recount = self._images.recount  # for images that are made again
        self._draws = Draws(setup.seed, self.recount, streams=setup.streams) if keyed else None
        self._told: Counts = {}
        self._gives: type = dict  # what the dataset's last sample was: dict, tuple, or any other object
        own = PythonCall(self._item, False, DATASET_OP, "source", "the dataset")
        self._dataset = None if setup.dataset is None else own
        self._own_steps = setup.program.steps
        self._steps = [
            python_call(step, self.own) if isinstance(step, FunctionStep) else step
            for step in self._own_steps
        ]
        self._checks = setup.checks if setup.checks.any else None
        self._kept = supplies.kept
        bare = not (self._steps or self._checks or setup.collate or setup.cache)
        self._columns = getattr(setup.dataset, "__getcolumns__", None) if bare else None
        self._fixed = False  # whether it is at what comes before the cache, which may not draw
        self._sees_draws = True  # whether all that was drawn there would have been seen
        # Generators by the function that uses them, during a probe.
        self._drawing: dict[str, list[str]] | None = None
        self.laps = Laps()
        self._encoded = encoded_rows(setup, self._own_steps, self._images, self.laps, self._check)
        self._proves = False  # whether samples are to be proven to be fit for the cache
        # A kernel makes numbers of bytes: all are finite.
        last = self._steps[-1] if self._steps else None
        self._made_natively = last.writes if isinstance(last, NativeStep) else ()

    def measure(self, key: RowKey, inputs: Inputs, segment: int) -> MeasuredSample | Failure:
        """Make a sample, and return its facts or its failure.

        key     the sample's record and the key of its random numbers
        inputs  the source's values for the record
        segment the segment whose program makes it
        """
        set_back = self.recount()  # the same row is made, and counted, later

        def make() -> MeasuredSample | Failure:
            self.at(0)
            self._proves = self.setup.keeps_samples
            moved = self._images.moved = []
            try:
                return measured(self.make(key, inputs.row(0), {}), self.setup, moved)
            except Exception as error:
                return row_failed(error).failure(0)
            finally:
                set_back()
                self._proves, self._images.moved = False, None
                self.heartbeat[STEP] = IDLE

        return self.task(key.epoch, segment, lambda: self.sample(key, make))

    def drawing(self, make: Callable[[], object]) -> Mapping[str, Sequence[str]]:
        """Call ``make()``, and return the names of the global generators that each call of user code used in it."""
        found = self._drawing = {}
        for _ in range(2):  # a call may import torch, whose generator is looked at from then on
            with contextlib.suppress(Exception):  # the delivery of the sample reports the error
                make()
        self._drawing = None
        self.heartbeat[STEP] = IDLE
        return found

    def at(self, row: int, step: int = 0) -> None:
        """Write into the heartbeat that a row begins, or a function of the whole batch.

        step  the step's number, as in ``board``
        """
        heartbeat = self.heartbeat
        heartbeat[SINCE] = time.monotonic_ns()
        heartbeat[ROW] = row
        heartbeat[STEP] = step

    def begins(self, row: int) -> None:
        """Record that a row begins, in the heartbeat and in the timer."""
        self.at(row)
        self.laps.begins()

    def ends(self) -> None:
        """Record in the timer that a sample is finished."""
        if self.laps.on:
            self.laps.ends(self.heartbeat[SINCE])

    def task(self, epoch: int, segment: int, make: Callable[[], Result]) -> Result:
        """Return ``make()``, which makes the samples of a task, each inside ``sample()``.

        segment  the segment whose program makes them

        In worker processes ``make()`` may be called twice, to get reproducible random numbers; see ``Draws``.
        """
        if self.setup.segments:
            self._enter(self.setup.segments[segment].steps)
        return make() if self._draws is None else self._draws.task(epoch, make)

    def _enter(self, steps: tuple[Step, ...]) -> None:
        """Make samples by the steps of a segment from now on. Segments differ in native steps only."""
        if steps is self._own_steps:
            return
        self._own_steps = steps
        self._steps = [
            step if isinstance(step, NativeStep) else old
            for step, old in zip(steps, self._steps, strict=True)
        ]
        self._encoded = encoded_rows(self.setup, steps, self._images, self.laps, self._check)

    def sample(self, key: RowKey, make: Callable[[], Result]) -> Result:
        """Return ``make()``, which makes one sample. In worker processes it may be called twice; see ``Draws``."""
        return make() if self._draws is None else self._draws.sample(key, make)

    def batch(self, rows: BatchRows, prepare: Callable[[], object], make: Callable[[], Result]) -> Result:
        """Return ``make()``, which calls the functions of a batch and may be called twice; see ``Draws``.

        prepare  makes the batch's samples; called before each ``make()``
        """
        if self._draws is not None:
            return self._draws.batch(rows.batch_key, prepare, make)
        prepare()
        return make()

    def fill(self, rows: BatchRows, first: int, stop: int) -> list[Failure]:
        """Make rows [first, stop) as one task, and return the failures of rows that can't be made."""
        return self.task(rows.epoch, rows.segment, lambda: self.filled(rows, first, stop))

    def filled(self, rows: BatchRows, first: int, stop: int) -> list[Failure]:
        """Make rows [first, stop) inside ``task()``, and return the failures of rows that can't be made."""
        if self.at_once(rows, first, stop, lambda columns: write_columns(columns, rows, first, stop)):
            return []
        together = self._encoded
        if together is not None and (self._looks_at_each or not together.suits(rows)):
            together = None
        begins = self.begins if together is None else self.at  # the time of rows that wait is taken together
        made_there = [(name, rows.views[name]) for name in self._made_natively if name in rows.views]
        out: Mapping[str, AnyArray] = {}
        bad = []
        key_of, inputs_of, begin, finish = rows.key, rows.inputs.row, self._begin, self._finish

        def made() -> RowFailed | None:
            begins(row)
            try:
                first_step, sample = begin(key, inputs_of(row), out)
                if together is not None and together.takes(row, key, sample, rows, self.heartbeat[SINCE]):
                    return None
                write_row(finish(first_step, key, sample, out), row, rows, out)
            except Exception as error:
                return row_failed(error)
            self.ends()
            return None

        for row in range(first, stop):
            key = key_of(row)
            if made_there:
                out = {name: view[row] for name, view in made_there}
            if (failed := self.sample(key, made)) is not None:
                bad.append(failed.failure(row))
                if failed.place == END:
                    break
        if together is None:
            return bad
        return sorted([*bad, *together.failures(rows)], key=lambda failure: failure.row)

    def at_once(self, rows: BatchRows, first: int, stop: int, use: Callable[[Columns], object]) -> bool:
        """Get the samples of rows [first, stop) from the dataset at once, and pass them to ``use`` field by field.

        Return False if the samples must be made one by one: the dataset can't do this, it raised an error, or
        ``use`` raised ``Uneven`` as the samples don't fit the slot.
        """
        if self._columns is None or self._looks_at_each or not rows.inputs.empty:
            return False
        self.begins(first)
        begin_ns = self.heartbeat[SINCE]
        try:
            use(self._columns(in_turn(rows.indices[first:stop], first, self.heartbeat)))
        except Uneven:
            self._columns = None  # other samples are as these
            return False
        except self._catches:  # one after another they show which one it is
            return False
        self.laps.together(stop - first, begin_ns)
        return True

    @property
    def _looks_at_each(self) -> bool:
        """True if generators are compared after each sample, so that samples are made one by one."""
        return self._draws is not None and not self._draws.together

    def given(self, rows: BatchRows, row: int) -> Any:
        """Make the sample of a row, and return it in the form that the dataset uses, or its ``RowFailed``."""
        self.begins(row)
        try:
            sample = self.as_given(self.make(rows.key(row), rows.inputs.row(row), {}))
        except Exception as error:
            return row_failed(error)
        self.ends()
        return sample

    def new_counters(self) -> dict[str, float]:
        """Return the counters of reads, and of damaged and truncated files, since the last call."""
        before, self._told = self._told, self._images.counters
        return counts_since(self._told, before)

    def make(self, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]) -> Sample:
        """Make the sample of a record, and return its values by field. Raises ``RowFailed`` if it can't be made.

        sample  the source's values for the record, by field; an image's encoded bytes are an ``EncodedFile``
        out     rows of the slot by field. If the last step can write into such a row without a copy, the row itself
                is the sample's value
        """
        first, sample = self._begin(key, sample, out)
        return self._finish(first, key, sample, out)

    def _begin(self, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]) -> tuple[int, Sample]:
        """Return the number of the first step to apply to a sample, and the sample then; see ``make``."""
        faultpoint("worker.row", key.index)
        if self._proves and not (self._kept is not None and self._kept.has(key.index)):
            return self._before_cache, self._proven(key, sample)
        if self._kept is not None and self.setup.keeps_samples:
            boxes = {name: sample.pop(name) for name in (BOXES_PX,) if name in sample}  # never in the cache
            return self._before_cache, self._found_or_made(key, sample, out) | boxes
        return 0, self._begun(key, sample)

    def _finish(self, first: int, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]) -> Sample:
        """Apply the steps from ``first`` on to a sample, and return it; see ``make``."""
        sample = self._through(first, len(self._steps), key, sample, out)
        if self.setup.instances:
            sample = in_image(sample, self.setup.instances, self.setup.box_form)
        self._check(sample)
        return sample

    def _check(self, sample: Sample) -> None:
        """Raise ``RowFailed`` for a finished sample with a wrong value."""
        if self._checks is not None and (problem := self._checks.problem(sample, self._made_natively)):
            raise RowFailed("batch", problem)

    def as_given(self, sample: Sample) -> Any:
        """Return a sample in the form of the dataset's last sample: a dict, a tuple, or its only value."""
        if self._gives is dict or sample.keys() - set(self.setup.names):
            return sample
        return tuple(sample.values()) if self._gives is tuple else next(iter(sample.values()))

    def _begun(self, key: RowKey, sample: Sample) -> Sample:
        """Return the record's values from the source, merged with the dataset's."""
        if self._dataset is not None:
            if KEY in sample:
                key = replace(key, asked=sample.pop(KEY))
            begin = time.perf_counter_ns() if self.laps.on else 0
            sample |= self.call(self._dataset, key, key)
            if begin:
                self.laps.step(0, begin)
        setup = self.setup
        return with_instances(sample, setup.instances, setup.box_form) if setup.instances else sample

    def _through(
        self, first: int, stop: int, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]
    ) -> Sample:
        """Return the sample after steps [first, stop) of the program; ``out`` is that of ``make``."""
        since = time.perf_counter_ns() if self.laps.on else 0
        for number in range(first, stop):
            step = self._steps[number]
            self.heartbeat[STEP] = 1 + number
            if isinstance(step, PythonCall):
                if self._images.moved is not None:
                    self._images.moved += moves(self._own_steps[number].transforms, sample, {})
                sample = self.call(step, key, self._images.with_bytes(sample))
            else:
                there = out if number == len(self._steps) - 1 else {}
                sample = self._images.make(number, step, key, sample, there)
            if since:
                since = self.laps.step(1 + number, since)
        return sample

    def _found_or_made(self, key: RowKey, inputs: Sample, out: Mapping[str, AnyArray]) -> Sample:
        """Return the sample from the cache; if it isn't there, make it by the steps before the cache, and store it."""
        assert self._kept is not None
        self._kept.enter(key.epoch)
        file = inputs.get("image")
        found, kept = self._kept.find(key.index, file if isinstance(file, EncodedFile) else None)
        if found is not None and kept is not None:
            sample, self._gives = found
            self._images.count(kept.damaged, kept.truncated)
            return sample
        counters = self._images.counters
        made = self._fixed_part(key, inputs, out)
        row, sample = as_kept(made, self._gives)
        if row is not None and self._sees_draws:
            new = counts_since(self._images.counters, counters)
            damaged, truncated = "damaged" in new, "truncated" in new
            stamp = self._images.stamp if isinstance(file, EncodedFile) else NO_FILE
            self._kept.keep(key.index, row, stamp, stale=kept, damaged=damaged, truncated=truncated)
        return sample

    def _proven(self, key: RowKey, inputs: Sample) -> Sample:
        """Make a sample twice by the steps before the cache, and return it.

        Raises ``CantWork`` if the two differ, or if a cache can't store the sample.
        """
        made = self._fixed_part(key, dict(inputs), {})
        other = self._fixed_part(replace(key, attempt=key.attempt + 1), dict(inputs), {})
        prove_kept(made, other, self._gives)
        return as_kept(made, self._gives)[1]

    def _fixed_part(self, key: RowKey, inputs: Sample, out: Mapping[str, AnyArray]) -> Sample:
        """Run the steps before the cache. Raises ``CantWork`` if they use random numbers."""
        self._fixed = self._sees_draws = True
        try:
            begun = self._begun(key, inputs)
            return self._through(0, self._before_cache, key, begun, out)
        finally:
            self._fixed = False

    @property
    def _before_cache(self) -> int:
        return self.setup.program.before_cache

    def _item(self, key: RowKey, _: int) -> Sample:
        """Return the dataset's sample for a key, as values by field."""
        dataset, names = self.setup.dataset, self.setup.names
        asked = key.index if key.asked is None else key.asked[0]
        item = self._streamed(dataset, key) if self.setup.streams else dataset[asked]
        if item is None:
            raise RowFailed("source", f"dataset[{asked!r}] returned None; return the sample")
        kind = type(item)
        if kind is dict:
            if self.setup.decodes and is_struct(item):
                self._gives = object
                return {"image": item}
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
            if self.setup.decodes and names in (NAMES, NAMES[:1]) and is_part_of_file(item):
                self._gives = object
                return {names[0]: item}
            fields = (*names, *(f"field{number}" for number in range(len(names), len(values))))
            raise RowFailed("source", f"a sample of {len(values)} values; name them, as fields={fields!r}")
        if len(values) < len(names) and names != NAMES:
            raise RowFailed("source", f"a sample of {len(values)} values, and fields={names!r} are more")
        return dict(zip(names, values, strict=False))

    def call(self, step: PythonCall, key: RowKey, argument: Any) -> Sample:
        """Call the user's code, and return its result. Raises ``RowFailed`` with its exception.

        key       determines the random numbers of the call
        argument  the sample, the batch, or the key of the dataset
        """
        number = 0
        if step.takes_key:  # a quarter of what calling costs
            number = _native.sample_key(self.setup.seed, key.epoch, key.position, key.attempt, step.op)
        looks = self._drawing is not None or (self._fixed and self._draws is not None)
        before = marks() if looks else None
        try:
            result: Sample = step.call(argument, number)
        except RowFailed:
            raise
        except StreamEnded as ended:
            raise _end_of(self.setup.dataset, ended) from None
        except self._catches as error:
            raise RowFailed(step.place, f"{step.name}: {said(error)}", error) from error
        if before is not None:
            self._look(step, before)
        for name, value in result.items():
            if type(value) is GeneratorType:
                raise RowFailed(
                    step.place, f"{step.name}: {name!r} is a generator; return the value, don't yield it"
                )
        return result

    def _look(self, step: PythonCall, before: Marks) -> None:
        """Record which global generators a call has used since ``before``, their states before the call.

        Raises ``CantWork`` if a step before the cache has used one.
        """
        after = marks()
        names = [generator.name for generator in changed(before, after)]
        if self._drawing is not None:
            if names:
                self._drawing[step.name] = names
        elif names:
            raise CantWork(
                step.place,
                f"cache(…): {step.name} uses random numbers, and what comes before the cache is made once for all "
                "epochs: each would see the same draws. Put .cache(…) before it, or draw in a function behind it",
            )
        # Else it has imported torch, and may have drawn from it.
        self._sees_draws &= after.keys() == before.keys()

    def _streamed(self, dataset: Stream, key: RowKey) -> Any:
        if self._draws is None or self._drawing is not None:  # a probe has no keys
            return dataset.sample(key.epoch, key.index)
        return dataset.sample(key.epoch, key.index, self._draws.begin_streamed)


def _end_of(stream: Stream, ended: StreamEnded) -> RowFailed:
    if stream.length is None:
        return RowFailed(END, f"the stream ends after {ended.position} samples")
    return RowFailed("source", f"the stream ends after {ended.position} of length={stream.length} samples")
