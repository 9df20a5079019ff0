"""Heartbeats: each Python worker writes down its current step, and since when.

A heartbeat is a few 64-bit words. Those of worker processes are in shared memory and outlive the worker. Writing one
costs about 0.3 µs a sample. Native code writes there too while it waits: native/memory/heartbeat.h knows the first four
words.
"""

from __future__ import annotations

import mmap
import os
from io import FileIO
from typing import Any

from standpipe.plan.plan import Plan

Heartbeat = Any  # of ints, which can be set; a writable buffer of int64

# The words of a heartbeat: piece of work; row of it, from 0; a step, as below; nanoseconds, monotonic.
PIECE, ROW, STEP, SINCE = range(4)
WORDS = 8  # of a heartbeat: a cache line, so that no worker's writing slows down another's

# Steps. 0 is the dataset; 1, 2, … the steps of the program.
IDLE = -1
READING = 1 << 16
ANSWERING = READING + 1
TOGETHER = READING + 2  # the dataset, at all rows of the piece
FUNCTIONS = 1 << 17  # and those after it: what happens to the whole batch
FOR_MEMORY = 1 << 21  # added by native code while it waits for memory that others hold, or for a cache's disk

_BYTES = 8 * WORDS


def new_heartbeat() -> Heartbeat:
    """Return the heartbeat of a thread."""
    heartbeat = memoryview(bytearray(_BYTES)).cast("q")
    heartbeat[STEP] = IDLE
    return heartbeat


class Board:
    """Heartbeats of worker processes, in memory that they share with the trainer.

    descriptor  the memory's file, to pass to other processes
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
    """Return the heartbeats on a trainer's board. It takes over the descriptor."""
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
    """Describe a step."""
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
