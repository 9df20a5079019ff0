"""Move boxes and points as transforms move the pixels of their images, many rows at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import AnyArray, Float32Array, Float64Array, Int64Array

AT_ONCE = 2048  # boxes that are moved together, so that what lies between takes little memory
# Numbers of a matrix that are 0 where sides stay straight: in crops, pads, resizes and flips.
STRAIGHT = [1, 3, 6, 7]


def moved_boxes(boxes: AnyArray, rows: Int64Array, moves: Float64Array, *, cut: bool = True) -> Float64Array:
    """Return where boxes are after the moves of their rows: the hull of their moved corners.

    Where a warp makes all places one, boxes are (0, 0, 0, 0).

    boxes  (n, 4) xyxy in pixels of the stored images
    rows   (n,) the row of each box
    moves  (rows, moves, 12): matrices, heights and widths of their results, and whether boxes whose centre is
           outside become (0, 0, 0, 0)
    cut    True: cut boxes off at the edges of each result, as torchvision does
    """
    parts = [slice(first, first + AT_ONCE) for first in range(0, len(boxes), AT_ONCE)]
    moved = [_moved_boxes(boxes[part], rows[part], moves, cut) for part in parts]
    return np.concatenate([np.zeros((0, 4)), *moved])


def _moved_boxes(boxes: AnyArray, rows: Int64Array, moves: Float64Array, cut: bool) -> Float64Array:
    edges = boxes.T.astype(np.float64)
    for move in _each(moves, rows):
        if (move[STRAIGHT] == 0).all():  # two corners are enough
            x, y = _moved(edges[::2], edges[1::2], move)
        else:
            x, y = _moved(edges[[0, 2, 2, 0]], edges[[1, 1, 3, 3]], move)
        edges = np.stack([x.min(axis=0), y.min(axis=0), x.max(axis=0), y.max(axis=0)])
        if cut:
            x, y = (edges[:2] + edges[2:]) / 2
            inside = (x > 0) & (x < move[10]) & (y > 0) & (y < move[9])
            edges[:, (move[11] > 0) & ~inside] = 0
            np.clip(edges, 0, move[[10, 9, 10, 9]], out=edges)
    return np.nan_to_num(edges.T)


def moved_points(points: AnyArray, rows: Int64Array, moves: Float64Array) -> Float32Array:
    """Return where points are after the moves of their rows. One that leaves a picture gets the visibility 0.

    points  (n, K, 3): x, y and visibility; ``rows`` and ``moves`` are those of ``moved_boxes``
    """
    x, y, visibility = points.T.astype(np.float64)  # (K, n) each
    for move in _each(moves, rows):
        x, y = _moved(x, y, move)
        visibility *= (x >= 0) & (x <= move[10]) & (y >= 0) & (y <= move[9])
    return np.nan_to_num(np.stack([x, y, visibility]).T.astype(np.float32))


def mirrored(moves: Float64Array) -> NDArray[np.bool_]:
    """Return which rows' moves mirror the picture, (rows,) bool: left is right in the result."""
    turned: NDArray[np.bool_] = np.linalg.det(_matrices(moves)).prod(axis=1) < 0
    return turned


def to_stored(moves: Float64Array) -> Float64Array:
    """Return the matrices from places in the results to places in the stored images, (rows, 3, 3)."""
    whole = _matrices(moves[:, 0])
    for number in range(1, moves.shape[1]):
        whole = _matrices(moves[:, number]) @ whole
    back = np.asarray(np.linalg.inv(whole), np.float64)
    return back / back[:, 2:, 2:]


def _each(moves: Float64Array, rows: Int64Array) -> Iterator[Float64Array]:
    """Yield each move of ``rows``, (12, n)."""
    for number in range(moves.shape[1]):
        yield moves[:, number].T[:, rows]


def _moved(x: Float64Array, y: Float64Array, move: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return places (…, n) after a move, (12, n)."""
    if (move[STRAIGHT] == 0).all():
        return (move[0] * x + move[2]) / move[8], (move[4] * y + move[5]) / move[8]
    x, y, depth = (row[0] * x + row[1] * y + row[2] for row in move[:9].reshape(3, 3, -1))
    return x / depth, y / depth


def _matrices(moves: Float64Array) -> Float64Array:
    return moves[..., :9].reshape(*moves.shape[:-1], 3, 3)
