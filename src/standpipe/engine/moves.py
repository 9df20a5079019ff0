"""Find where the pixels of a batch's images go, before the images are made: the moves of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import RaggedRows, Records
from standpipe.pipeline.description import Description
from standpipe.spec import AnyArray, Int32Array, Int64Array, UInt64Array
from standpipe.transform import NativeKernel, NativeStep
from standpipe.transform.instances import moved_boxes

if TYPE_CHECKING:
    from standpipe import _native
    from standpipe.plan.parts import SamplePlan
    from standpipe.plan.plan import Plan

Moves = NDArray[np.float64]

MOVE_NUMBERS = 12  # a matrix of three rows, the result's height and width, and whether boxes are dropped


@dataclass(frozen=True, slots=True)
class Traced:
    """The instances of n rows, and what geometric transforms do to the rows' images.

    sizes      (n, 2) int64: height and width of the stored images in pixels
    moves      (n, moves, 12) float64 for each output of the image, by the output's name; at least one move. A move is
               a matrix of three rows, from a place in the picture before it to one in the result, in pixels from the
               upper left corner; the result's height and width; and 1 if boxes whose centre isn't in the result become
               empty
    instances  the source's ragged columns, by name
    windows    (n, 4 × windows) int32: left, top, width and height of each crop that boxes decide, in pixels of the
               picture before it; None without any
    """

    sizes: Int64Array
    moves: Mapping[str, Moves]
    instances: Mapping[str, RaggedRows]
    windows: Int32Array | None = None

    def take(self, rows: Int64Array) -> Traced:
        """Return the rows ``rows``, (k,) int64."""
        moves = {name: own[rows] for name, own in self.moves.items()}
        instances = {name: own.take(rows) for name, own in self.instances.items()}
        windows = None if self.windows is None else self.windows[rows]
        return Traced(self.sizes[rows], moves, instances, windows)

    def with_rows(self, rows: Int64Array, other: Traced) -> Traced:
        """Return the same with other records in the rows ``rows``, (k,) int64; ``other`` has k rows."""
        count = len(self.sizes)
        order = np.arange(count)
        order[rows] = count + np.arange(len(rows))
        merged = {
            name: RaggedRows.merged([own, other.instances[name]], order)
            for name, own in self.instances.items()
        }
        moves = {name: _joined(own, other.moves[name])[order] for name, own in self.moves.items()}
        windows = None
        if self.windows is not None and other.windows is not None:
            windows = np.concatenate([self.windows, other.windows])[order]
        sizes = np.concatenate([self.sizes, other.sizes])[order]
        return Traced(sizes, moves, merged, windows)


class Tracer:
    """Repeats what native kernels draw for an image, without the image. Any thread may use it.

    kernels  those that make an image, in order, for each segment of epochs
    segment  the segment of an epoch
    """

    def __init__(
        self,
        pipeline: Description,
        kernels: Sequence[Sequence[NativeKernel]],
        segment: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._seed, self._segment = pipeline.seed, segment
        self._kernels = kernels
        self._programs = [[kernel.compile(pipeline.decoding) for kernel in each] for each in kernels]

    @classmethod
    def of(cls, plan: Plan) -> Tracer:
        """Return the tracer of a plan's images."""
        before = None if plan.cache is None else plan.cache.before
        parts = [each.samples for each in plan.segments] or [plan.samples]
        return cls(plan.pipeline, [_kernels(part, before) for part in parts], plan.segment)

    @property
    def has_windows(self) -> bool:
        """True if boxes decide crops of the images."""
        return any(program.windows for programs in self._programs for program in programs)

    def trace(self, epoch: int, records: Records, positions: Int64Array, attempts: Int64Array) -> Traced:
        """Return the moves of rows that are made from ``records``, and their instances.

        positions  (rows,) positions in the epoch's global order
        attempts   (rows,) 0; 1 and more for a record that replaces a bad one
        """
        assert records.sizes is not None
        seed, segment = self._seed, self._segment(epoch)
        keys = np.asarray(positions, np.uint64), np.asarray(attempts, np.uint64)
        kernels, programs = self._kernels[segment], self._programs[segment]
        count = len(records.index)
        done = np.zeros((count, 1, MOVE_NUMBERS))  # the first move changes nothing
        done[..., :9], done[:, 0, 9:11] = np.eye(3).ravel(), records.sizes
        for program in programs[:-1]:  # one before a cache has one output
            done, _ = _then(done, program, 0, seed, epoch, keys)
        last, heads, windows = programs[-1], kernels[-1].heads, None
        boxes = _boxes_at(records, done) if last.windows else None
        found = {
            head.field: _then(done, last, number, seed, epoch, keys, boxes)
            for number, head in enumerate(heads)
            if head.input == heads[0].input
        }
        moves = {field: moved for field, (moved, _) in found.items()}
        if last.windows:  # each output has its own, beside zeros
            windows = np.maximum.reduce([drawn for _, drawn in found.values()])
        return Traced(records.sizes, moves, records.ragged, windows)


def tracer_of(plan: Plan) -> Tracer | None:
    """Return the tracer of a plan; None if nothing in its batches depends on where pixels go."""
    return Tracer.of(plan) if plan.samples.instances is not None or plan.batch.canvases else None


def tracer_of_windows(plan: Plan) -> Tracer | None:
    """Return the tracer of a plan; None if its rows are made without windows that boxes decide."""
    tracer = tracer_of(plan)
    return tracer if tracer is not None and tracer.has_windows else None


def _kernels(samples: SamplePlan, before: NativeKernel | None) -> list[NativeKernel]:
    """Return the native kernels that make the images, in order; ``before``: the one before a cache, or None."""
    if samples.kernel is not None:
        return [samples.kernel] if before is None else [before, samples.kernel]
    steps = () if samples.program is None else samples.program.steps
    found = [step.kernel or step.any_size for step in steps if isinstance(step, NativeStep)]
    return [kernel for kernel in found if kernel is not None]


def _boxes_at(records: Records, done: Moves) -> RaggedRows:
    """Return the boxes of the records after the moves ``done``."""
    boxes = records.ragged["boxes"]
    rows = np.repeat(np.arange(len(boxes.ends)), np.diff(boxes.ends, prepend=0))
    return RaggedRows(np.ascontiguousarray(moved_boxes(boxes.values, rows, done), np.float32), boxes.ends)


def _then(
    done: Moves,
    program: _native.Program,
    head: int,
    seed: int,
    epoch: int,
    keys: tuple[UInt64Array, UInt64Array],
    boxes: RaggedRows | None = None,
) -> tuple[Moves, AnyArray]:
    """Return the moves ``done``, and behind them those of a program's head; and the windows of the head.

    boxes  where boxes are after ``done``; None if no window depends on them
    """
    sizes = [(int(height), int(width)) for height, width in done[:, -1, 9:11]]
    values = None if boxes is None else np.asarray(boxes.values, np.float32)
    ends = None if boxes is None else boxes.ends
    flat, windows = program.trace(head, sizes, seed, epoch, *keys, values, ends)
    moves = np.concatenate([done, np.asarray(flat).reshape(len(done), -1, MOVE_NUMBERS)], axis=1)
    return moves, np.asarray(windows).reshape(len(done), -1)


def _joined(one: Moves, other: Moves) -> Moves:
    """Return the moves of the rows of both; rows with fewer moves get more that change nothing."""
    most = max(one.shape[1], other.shape[1])
    return np.concatenate([_with_moves(each, most) for each in (one, other)])


def _with_moves(moves: Moves, most: int) -> Moves:
    more = np.zeros((len(moves), most - moves.shape[1], MOVE_NUMBERS))
    more[..., :9], more[..., 9:11] = np.eye(3).ravel(), moves[:, -1:, 9:11]
    return np.concatenate([moves, more], axis=1)
