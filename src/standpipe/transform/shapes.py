"""Move the shapes of instances as transforms move the pixels of their images, many rows at once."""

from __future__ import annotations

import numpy as np

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.spec import Float32Array, Float64Array, Int64Array


def moved_shapes(
    shapes: RaggedRows, rows: Int64Array, moves: Float64Array, *, cut: bool = True
) -> tuple[RaggedRows, Float32Array]:
    """Return where shapes are after the moves of their rows, and the box around each, (n, 4).

    A shape that is outside has no points, and the box (0, 0, 0, 0).

    shapes  n shapes, as ``Records`` has them
    rows    (n,) the row of each
    moves   as for ``moved_boxes``
    cut     True: cut shapes off at the edges of each result
    """
    values = np.ascontiguousarray(shapes.values, np.float32)
    points, ends, hulls = _native.move_shapes(values, shapes.ends, rows, np.ascontiguousarray(moves), cut)
    return RaggedRows(points.reshape(-1, 2), ends), hulls.reshape(-1, 4)


def left_over(boxes: Float32Array, shapes: RaggedRows, layers: Int64Array, sizes: Int64Array) -> Float32Array:
    """Return boxes without what shapes that are pasted cover of other shapes of their picture, (n, 4).

    A box whose shape is covered as a whole becomes (0, 0, 0, 0).

    boxes   (n, 4) float32 around the shapes
    layers  (n,) as in ``engine.moves.Traced``
    sizes   (n, 2) height and width of each shape's picture
    """
    points = np.ascontiguousarray(shapes.values, np.float32)
    left = _native.left_of_shapes(points, shapes.ends, layers, sizes).reshape(-1, 4)
    first, last = np.maximum(boxes[:, :2], left[:, :2]), np.minimum(boxes[:, 2:], left[:, 2:])
    found = np.concatenate([first, last], axis=1)
    found[(last <= first).any(axis=1)] = 0
    return found
