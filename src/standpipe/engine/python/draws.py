"""Make global random numbers of Python code in a worker process a function of (seed, epoch, position) alone.

A worker process makes one sample at a time and does nothing else, so the generators of ``random``, NumPy and torch
belong to its code alone. Setting them for each sample would add some 20 µs to code that uses no random numbers. So:

- A sample is made with the generators in a state that depends on (seed, epoch). A sample that uses them is made again,
  with the generators set by (seed, epoch, position). Which samples these are depends on the samples alone, and
  so do batches.
- While no sample uses them, the generators are compared once a task, after all of its samples, and set back.
- Once a task has changed them, each of its samples is checked separately, and so are those of later tasks. As long as
  most samples use them, generators are set for each sample at once.
- Functions of a batch are checked in the same way, and use the batch's first position.
- A stream can't give a sample twice, so its generators are set for each sample at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from standpipe import _native
from standpipe.engine.python.generators import (
    GENERATORS,
    Marks,
    begin_all,
    changed,
    go_back,
    read_marks,
    seed_all,
    those_there,
)
from standpipe.engine.rows import RowKey
from standpipe.transform import BATCH_OP, EPOCH_OP, SAMPLE_OP

MOST_CERTAIN = 8  # highest value of ``_Habit.certain``
KEYED_AT_ONCE = 4  # from this value on, generators are set for a sample before it is made the first time
QUIET_AFTER = 256  # samples in a row without random numbers, after which generators are compared once a task

Made = TypeVar("Made")


def _nothing() -> None:
    """Prepare nothing."""


class _Habit:
    """A guess if the next sample, or the functions of the next batch, use global generators.

    A wrong guess costs time, but changes no batch.
    """

    def __init__(self) -> None:
        self.certain = 0  # up 2 for each sample that used a generator, down 1 for others; from 0
        self.idle = QUIET_AFTER  # number of samples since the last one that used a generator
        self.generator = GENERATORS[0]  # the generator that was used last

    def learn(self, drew: bool) -> None:
        """Update the guess: ``drew`` is True if the last sample, or batch, used a generator."""
        self.certain = min(self.certain + 2, MOST_CERTAIN) if drew else max(self.certain - 1, 0)
        self.idle = 0 if drew else self.idle + 1


class Draws:
    """Makes samples and batches of one worker process with reproducible global generators; see above for the rule.

    seed      seed of the pipeline
    recount   called before a sample is made; returns a function that resets the counters to their values then
    streams   True if samples come from a stream
    together  True if generators are compared once a task, after all its samples; False: after each sample
    """

    def __init__(self, seed: int, recount: Callable[[], Callable[[], None]], *, streams: bool) -> None:
        self._seed, self._recount, self._streams = seed, recount, streams
        self._samples, self._batches = _Habit(), _Habit()
        self.together = True
        self._epoch: int | None = None  # whose state the generators are in
        self._base_key = 0  # by which they were set to that state
        self._base: Marks = {}  # marks of that state

    def task(self, epoch: int, make: Callable[[], Made]) -> Made:
        """Return ``make()``, which makes each sample inside ``sample()`` and may be called again."""
        if self._streams:
            return make()
        self.together = self._samples.idle >= QUIET_AFTER
        if self.together:
            set_back = self._recount()
            made, drew = self._made_at_base(epoch, make, self._samples, set_back)
            if not drew:
                return made
            set_back()
            self._samples.certain, self.together = MOST_CERTAIN, False
        return make()

    def sample(self, key: RowKey, make: Callable[[], Made]) -> Made:
        """Return ``make()``, which makes one sample and may be called twice; ``key`` sets its random numbers."""
        if self._streams or self.together:
            return make()
        return self._made(key, SAMPLE_OP, make, self._samples)

    def batch(self, key: RowKey, prepare: Callable[[], object], make: Callable[[], Made]) -> Made:
        """Return the result of ``make``, the functions of a batch, with random numbers keyed by ``key``.

        ``make`` may be called twice. ``prepare``, which makes the batch's samples, is called before each call.
        """
        if not self._streams:
            return self._made(key, BATCH_OP, make, self._batches, prepare)
        prepare()
        self._key(key, BATCH_OP)
        return make()

    def begin_streamed(self, epoch: int, place: int | None) -> None:
        """Set the generators for the sample at ``place`` of a stream; None: for the start of the stream."""
        position, op = (0, EPOCH_OP) if place is None else (place, SAMPLE_OP)
        self._key(RowKey(position, epoch, position), op)

    def _made(
        self,
        key: RowKey,
        op: int,
        make: Callable[[], Made],
        habit: _Habit,
        prepare: Callable[[], object] = _nothing,
    ) -> Made:
        set_back = self._recount()

        def begin() -> None:
            set_back()
            prepare()

        if habit.certain >= KEYED_AT_ONCE:
            made, drew = self._made_keyed(key, op, make, habit, begin)
            if drew:
                habit.learn(drew)
                return made
        made, drew = self._made_at_base(key.epoch, make, habit, begin)
        habit.learn(drew)
        return self._made_keyed(key, op, make, habit, begin)[0] if drew else made

    def _made_at_base(
        self, epoch: int, make: Callable[[], Made], habit: _Habit, begin: Callable[[], object]
    ) -> tuple[Made, bool]:
        """Return ``make()`` with generators in the epoch's state, and True if it used them.

        begin  called before each ``make()``
        """
        while True:
            begin()
            if self._epoch != epoch:
                self._epoch, self._base_key = epoch, _native.sample_key(self._seed, epoch, 0, 0, EPOCH_OP)
                begin_all(self._base_key)
                self._base = read_marks()
                go_back(self._base_key)
            made = make()
            after = read_marks()
            drew = changed(self._base, after)
            if drew:
                begin_all(self._base_key)
                self._epoch, habit.generator = None, drew[0]
            else:
                go_back(self._base_key)
            if after.keys() == self._base.keys():
                return made, bool(drew)
            self._epoch = None  # it has imported torch, whose generator nobody has set

    def _made_keyed(
        self, key: RowKey, op: int, make: Callable[[], Made], habit: _Habit, begin: Callable[[], object]
    ) -> tuple[Made, bool]:
        """Return ``make()`` with generators set by ``key`` and ``op``, and True if it used the one in ``habit``.

        Only the generator that was used last is checked, since setting all of them again takes some 20 µs.
        """
        while True:
            begin()
            number = self._key(key, op)
            there, before = those_there(), habit.generator.mark()
            habit.generator.seed(number)
            made = make()
            if those_there() == there:
                return made, habit.generator.mark() != before

    def _key(self, key: RowKey, op: int) -> int:
        """Set the generators for a sample or a batch, and return the 64-bit number that was their seed."""
        self._epoch = None
        number = _native.sample_key(self._seed, key.epoch, key.position, key.attempt, op)
        seed_all(number)
        return number
