"""Heartbeats: each Python worker writes its current task, row and step into memory, and when the step began.

A heartbeat is eight 64-bit words. Heartbeats of worker processes are in shared memory and outlive the worker. Writing
a heartbeat costs about 0.3 µs a sample. Native code writes to it too while it waits: native/memory/heartbeat.h knows
the first four words.
"""

from __future__ import annotations

import mmap
import os
from io import FileIO
from typing import TYPE_CHECKING, Any

from standpipe import _native

if TYPE_CHECKING:
    from standpipe.plan.plan import Plan

Heartbeat = Any  # a writable buffer of int64
# The words of a heartbeat: number of the task; row in the task, from 0; step, as below; the step's begin in nanoseconds
# of ``time.monotonic_ns()``.
PIECE, ROW, STEP, SINCE = range(4)
WORDS = 8  # words of a heartbeat: a cache line, so that two workers never write to the same one

# Steps. 0 is the dataset; 1, 2, … the steps of the program.
IDLE = -1
LOADING = -2  # a worker in late mode loads the setup
READING = 1 << 16
ANSWERING = READING + 1
TOGETHER = READING + 2  # the dataset makes all rows of the task at once
FUNCTIONS = 1 << 17  # the first function of the whole batch; the numbers after it are the next functions
FOR_MEMORY = (
    _native.FOR_MEMORY
)  # added by native code while it waits for memory that others hold, or for a cache's disk

_BYTES = 8 * WORDS


def new_heartbeat() -> Heartbeat:
    """Return a new heartbeat for a thread of this process, in the step ``IDLE``."""
    heartbeat = memoryview(bytearray(_BYTES)).cast("q")
    heartbeat[STEP] = IDLE
    return heartbeat


class Board:
    """The heartbeats of all worker processes, in memory that the workers share with the trainer.

    workers     the most workers
    descriptor  descriptor of the memory's file, to pass to other processes
    """

    def __init__(self, workers: int) -> None:
        self.descriptor = os.memfd_create("standpipe-board", os.MFD_CLOEXEC)
        self._file = FileIO(self.descriptor, "r+")
        try:
            os.ftruncate(self.descriptor, workers * _BYTES)
            self._words = _words(self.descriptor)
        except BaseException:
            self._file.close()
            raise

    def heartbeat(self, number: int) -> Heartbeat:
        """Return the heartbeat of a worker."""
        return heartbeat_of(self._words, number)

    def close(self) -> None:
        """Close the file; heartbeats stay readable. A second call does nothing."""
        self._file.close()


def shared_words(descriptor: int) -> Heartbeat:
    """Map the memory of a trainer's ``Board``, close ``descriptor``, and return the heartbeats of all workers."""
    try:
        return _words(descriptor)
    finally:
        os.close(descriptor)


def heartbeat_of(words: Heartbeat, number: int) -> Heartbeat:
    """Return the heartbeat of a worker."""
    return words[number * WORDS : (number + 1) * WORDS]


def _words(descriptor: int) -> Heartbeat:
    return memoryview(mmap.mmap(descriptor, 0)).cast("q")


def step_text(plan: Plan, step: int) -> str:
    """Return text about a step in a heartbeat, such as ``"the dataset"`` or ``"reading its file"``."""
    if step >= FOR_MEMORY:
        return f"waiting for memory that others use, or for a cache's disk, for {step_text(plan, step - FOR_MEMORY)}"
    if step >= FUNCTIONS:
        return plan.functions[step - FUNCTIONS].describe()
    if step == READING:
        return "reading its file"
    if step == ANSWERING:
        return "handing it over"
    assert plan.samples.program is not None
    return "the dataset" if step <= 0 or step == TOGETHER else plan.samples.program.steps[step - 1].describe()
