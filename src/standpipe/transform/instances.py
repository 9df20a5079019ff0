"""Move boxes and points as transforms move the pixels of their images, many rows at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import AnyArray, Float32Array, Int64Array

Float64Array = NDArray[np.float64]

CORNERS = np.array([[0, 1], [2, 1], [2, 3], [0, 3]])  # x and y in an xyxy box


def moved_boxes(boxes: AnyArray, rows: Int64Array, moves: Float64Array, *, cut: bool = True) -> Float64Array:
    """Return where boxes are after the moves of their rows: the hull of their moved corners.

    Where a warp makes all places one, boxes are (0, 0, 0, 0).

    boxes  (n, 4) xyxy in pixels of the stored images
    rows   (n,) the row of each box
    moves  (rows, moves, 11): matrices, and heights and widths of their results
    cut    True: cut boxes off at the edges of each result, as torchvision does
    """
    edges = boxes.astype(np.float64)
    for matrix, size in _each(moves, rows):
        corners = _moved(edges[:, CORNERS], matrix)
        edges = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        if cut:
            np.clip(edges, 0, size[:, [1, 0, 1, 0]], out=edges)
    return np.nan_to_num(edges, copy=False)


def moved_points(points: AnyArray, rows: Int64Array, moves: Float64Array) -> Float32Array:
    """Return where points are after the moves of their rows. One that leaves a picture gets the visibility 0.

    points  (n, K, 3): x, y and visibility; ``rows`` and ``moves`` are those of ``moved_boxes``
    """
    moved = points.astype(np.float32)
    places = points[..., :2].astype(np.float64)
    for matrix, size in _each(moves, rows):
        places = _moved(places, matrix)
        inside = (places >= 0) & (places <= size[:, None, ::-1])
        moved[..., 2] *= inside.all(axis=-1)
    moved[..., :2] = np.nan_to_num(places)
    return moved


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


def _each(moves: Float64Array, rows: Int64Array) -> Iterator[tuple[Float64Array, Float64Array]]:
    """Yield each move's matrices (n, 3, 3) and sizes (n, 2), one for each of ``rows``."""
    for number in range(moves.shape[1]):
        move = moves[rows, number]
        yield _matrices(move), move[:, 9:]


def _moved(places: Float64Array, matrices: Float64Array) -> Float64Array:
    """Return places (n, k, 2) after matrices (n, 3, 3)."""
    moved = places @ matrices[:, :, :2].transpose(0, 2, 1) + matrices[:, None, :, 2]
    return moved[..., :2] / moved[..., 2:]


def _matrices(moves: Float64Array) -> Float64Array:
    return moves[..., :9].reshape(*moves.shape[:-1], 3, 3)
