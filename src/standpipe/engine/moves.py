"""Find where the pixels of images go, before the images are made: the moves of each row, and the crops by boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import RaggedRows, Records
from standpipe.pipeline.description import Description
from standpipe.source.targets import BOXES
from standpipe.spec import Int32Array, Int64Array
from standpipe.transform import NativeKernel
from standpipe.transform.instances import moved_boxes

if TYPE_CHECKING:
    from standpipe import _native
    from standpipe.order import Cursor
    from standpipe.plan.parts import SamplePlan
    from standpipe.plan.plan import Plan

Moves = NDArray[np.float64]

MOVE_NUMBERS = 12  # a matrix of three rows, the result's height and width, and the kind of move


@dataclass(frozen=True, slots=True)
class Traced:
    """The instances of n rows, and what geometric transforms do to the rows' images.

    sizes      (n, 2) int64: height and width of the stored images in pixels
    moves      (n, moves, 12) float64 for each output of the image, by the output's name; at least one move. A move is
               a matrix of three rows, from a place in the picture before it to one in the result, in pixels from the
               upper left corner; the result's height and width; and its kind: 1 if boxes whose centre isn't in the
               result become empty, 2 for a warp, else 0
    instances  the source's ragged columns, by name
    windows    (n, 4 × windows) int32: left, top, width and height of each crop that boxes decide, in pixels of the
               picture before it
    boxes      (total, 4) float32: the boxes in front of the kernel that has these crops; None without any
    shapes     the instances' shapes; None without any
    parts      (n + 1,) int64: where the images of each row begin among those of all rows, of which ``moves``,
               ``instances`` and ``shapes`` are; None if each row has one image
    layers     twice the number of the picture that each image becomes a part of, and 1 more if its instances are pasted
               on it, (images,) int64, ascending; None if nothing is pasted
    """

    sizes: Int64Array
    moves: Mapping[str, Moves]
    instances: Mapping[str, RaggedRows]
    windows: Int32Array
    boxes: RaggedRows | None
    shapes: RaggedRows | None = None
    parts: Int64Array | None = None
    layers: Int64Array | None = None

    def of_rows(self, image: str) -> Moves:
        """Return the moves of each row's own image, (n, moves, 12)."""
        return self.moves[image] if self.parts is None else self.moves[image][self.parts[:-1]]


class Tracer:
    """Repeats what native kernels draw for an image, without the image. Any thread may use it.

    kernels  those that make an image, in order, for each segment
    segment  returns the segment of the step at a cursor
    """

    def __init__(
        self,
        pipeline: Description,
        kernels: Sequence[Sequence[NativeKernel]],
        segment: Callable[[Cursor], int] = lambda _: 0,
    ) -> None:
        self._seed, self._segment = pipeline.seed, segment
        self._kernels = [[(kernel, kernel.compile(pipeline.decoding)) for kernel in each] for each in kernels]

    @classmethod
    def of(cls, plan: Plan) -> Tracer:
        """Return the tracer of a plan's images."""
        before = None if plan.cache is None else plan.cache.before
        parts = [each.samples for each in plan.segments] or [plan.samples]
        return cls(plan.pipeline, [_kernels(part, before) for part in parts], plan.segment)

    @property
    def has_windows(self) -> bool:
        """True if boxes decide crops of the images."""
        return any(program.windows for kernels in self._kernels for _, program in kernels)

    def trace(self, at: Cursor, records: Records, positions: Int64Array, attempts: Int64Array) -> Traced:
        """Return the moves of rows that are made from ``records``, and their instances.

        at         the cursor of their step
        positions  (rows,) positions in the epoch's global order
        attempts   (rows,) 0; 1 and more for a record that replaces a bad one
        """
        assert records.sizes is not None
        done = unmoved(records.sizes)
        for kernel, program in self._kernels[self._segment(at)]:
            boxes = _boxes_after(done, records) if program.windows else None
            moves, windows = traced(kernel, program, done, (self._seed, at.epoch, positions, attempts), boxes)
            done = moves[kernel.image.field]  # the only output in front of a cache
        return Traced(records.sizes, moves, records.ragged, windows, boxes, records.shapes)


def tracer_of(plan: Plan) -> Tracer | None:
    """Return the tracer of a plan; None if nothing in its batches depends on where pixels go."""
    return Tracer.of(plan) if plan.samples.instances is not None or plan.batch.canvases else None


def tracer_of_windows(plan: Plan) -> Tracer | None:
    """Return the tracer of a plan; None if its rows are made without windows that boxes decide."""
    tracer = tracer_of(plan)
    return tracer if tracer is not None and tracer.has_windows else None


def _kernels(samples: SamplePlan, before: NativeKernel | None) -> list[NativeKernel]:
    """Return the native kernels that make the images, in order; ``before``: the one before a cache, or None."""
    if samples.composed is not None:
        return [samples.composed.frames]
    return samples.kernels if before is None or samples.kernel is None else [before, *samples.kernels]


def unmoved(sizes: Int64Array) -> Moves:
    """Return one move for each row that changes nothing. ``sizes``: (n, 2), heights and widths of the pictures."""
    moves = np.zeros((len(sizes), 1, MOVE_NUMBERS))
    moves[..., :9], moves[:, 0, 9:11] = np.eye(3).ravel(), sizes
    return moves


def traced(
    kernel: NativeKernel,
    program: _native.Program,
    done: Moves,
    seeds: tuple[int, int, Any, Any],
    boxes: RaggedRows | None = None,
) -> tuple[dict[str, Moves], Int32Array]:
    """Return the moves of each output of a kernel's reference, and the windows that boxes decide, as in ``Traced``.

    done   the moves in front of the kernel; those of the kernel follow them in the result
    seeds  seed and epoch; and the position and the attempt of each row
    boxes  the boxes after ``done``; only for a program with windows
    """
    seed, epoch, *keys = seeds
    values = None if boxes is None else np.ascontiguousarray(boxes.values, np.float32)
    ends = None if boxes is None else boxes.ends
    sizes = done[:, -1, 9:11].astype(np.int64)
    positions, attempts = (np.asarray(key, np.uint64) for key in keys)
    moves, windows = {}, []
    for number, head in enumerate(kernel.heads):
        if head.input == kernel.image.input:
            own, drawn = program.trace(number, sizes, seed, epoch, positions, attempts, values, ends)
            moves[head.field] = np.concatenate([done, own.reshape(len(done), -1, MOVE_NUMBERS)], axis=1)
            windows.append(drawn.reshape(len(done), -1))
    return moves, np.maximum.reduce(windows)  # each output has its own windows, beside zeros


def _boxes_after(done: Moves, records: Records) -> RaggedRows:
    """Return the boxes of the records after the moves ``done``."""
    boxes = records.ragged[BOXES]
    rows = np.repeat(np.arange(len(boxes.ends)), np.diff(boxes.ends, prepend=0))
    return RaggedRows(moved_boxes(boxes.values, rows, done).astype(np.float32), boxes.ends)
