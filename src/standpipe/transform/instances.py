"""Move boxes and points as transforms move the pixels of their images, many rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.spec import AnyArray, Float32Array, Float64Array, Int64Array

DROPS, WARPS = 1, 2  # kinds of moves: what drops boxes whose centre is outside, and warps
# Numbers of a matrix that are 0 where sides stay straight: in crops, pads, resizes and flips.
STRAIGHT = [1, 3, 6, 7]


def moved_boxes(boxes: AnyArray, rows: Int64Array, moves: Float64Array, *, cut: bool = True) -> Float64Array:
    """Return where boxes are after the moves of their rows: the hull of their moved corners.

    Where a warp makes all places one, boxes are (0, 0, 0, 0).

    boxes  (n, 4) xyxy in pixels of the stored images
    rows   (n,) the row of each box
    moves  (rows, moves, 12): matrices, heights and widths of their results, and their kinds. After ``DROPS``, boxes
           whose centre is outside become (0, 0, 0, 0)
    cut    True: cut boxes off at the edges of each result, as torchvision does
    """
    edges, moves = np.ascontiguousarray(boxes, np.float64), np.ascontiguousarray(moves)
    moved: Float64Array = _native.move_boxes(edges, rows, moves, cut).reshape(-1, 4)
    return moved


def whole_areas(
    boxes: AnyArray, rows: Int64Array, moves: Float64Array, *, of: Literal["source", "warp"]
) -> Float64Array:
    """Return the areas of boxes after the moves of their rows, had nothing been cut off, (n,).

    ``boxes``, ``rows`` and ``moves`` are those of ``moved_boxes``.

    of  "source": the area is that of the hull of the moved corners. "warp": it is that of the box in front of the last
        warp, where earlier moves have cut it off, times the factor of area that the warp and later moves have at the
        box's centre. Without a warp, it begins with the stored box
    """
    if of == "source":
        left, top, right, bottom = moved_boxes(boxes, rows, moves, cut=False).T
        return np.asarray((right - left) * (bottom - top))
    warps = moves[..., 11] == WARPS
    last = np.where(warps.any(axis=1), moves.shape[1] - 1 - np.argmax(warps[:, ::-1], axis=1), 0)
    is_left = np.arange(moves.shape[1]) >= last[:, None]
    stay = [*np.eye(3).ravel(), np.inf, np.inf, 0]
    left, top, right, bottom = moved_boxes(boxes, rows, np.where(is_left[..., None], stay, moves)).T
    matrices = _product(np.where(is_left[..., None, None], _matrices(moves), np.eye(3)))
    depth = matrices[rows, 2] * np.stack([(left + right) / 2, (top + bottom) / 2, np.ones_like(top)], axis=1)
    factor = np.linalg.det(matrices)[rows] / depth.sum(axis=1) ** 3
    return np.asarray((right - left) * (bottom - top) * np.abs(factor))


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
    back = np.asarray(np.linalg.inv(_product(_matrices(moves))), np.float64)
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


def _product(matrices: Float64Array) -> Float64Array:
    """Return the matrices of all moves together, (rows, 3, 3)."""
    whole = matrices[:, 0]
    for number in range(1, matrices.shape[1]):
        whole = matrices[:, number] @ whole
    return whole
