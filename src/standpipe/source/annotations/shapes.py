"""Read the shapes of instances, which annotation files have as polygons or as runs of pixels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.spec import Int64Array

NO_MASK, WRONG_MASK = "instance without a mask", "mask that isn't polygons or runs of pixels"
OTHER_SIZE = "mask of another size than its image"
END = (math.nan, math.nan)  # the point behind each ring
LEAST_NUMBERS = 6  # of a polygon: three points


class ShapeReader:
    """The shapes of instances that are read one after another.

    faults  number of an instance without a valid shape, and what is wrong, as kind and text
    """

    def __init__(self) -> None:
        self.faults: dict[int, tuple[str, str]] = {}
        self._points, self._ends, self._sizes = array("f"), array("q"), array("q")

    def add(self, segmentation: Any) -> None:
        """Add the next instance's shape: a list of polygons, ``{"counts": …, "size": [height, width]}``, or nothing."""
        points, size = array("f"), (0, 0)
        try:
            if not segmentation:
                self.faults[len(self._ends)] = NO_MASK, ""
            elif isinstance(segmentation, Mapping):
                size, points = _runs(segmentation)
            else:
                points = _polygons(segmentation)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            size = (0, 0)
            self.faults[len(self._ends)] = WRONG_MASK, f": {error!s:.80}"
        self._points.extend(points)
        self._ends.append(len(self._points) // 2)
        self._sizes.extend(size)

    def take(self) -> tuple[RaggedRows, Int64Array]:
        """Return all shapes, and height and width of the pictures that have runs of pixels, (m, 2); 0 for others."""
        points = np.frombuffer(self._points, np.float32).reshape(-1, 2)
        sizes = np.frombuffer(self._sizes, np.int64).reshape(-1, 2)
        return RaggedRows(points, np.frombuffer(self._ends, np.int64)), sizes


def _polygons(polygons: Any) -> array[float]:
    """Return the points of polygons, each a list of x and y by turns, all with the same sense of rotation."""
    points = array("f")
    for ring in polygons:
        if len(ring) < LEAST_NUMBERS or len(ring) % 2:
            raise ValueError(f"a polygon of {len(ring)} numbers")
        if not all(map(math.isfinite, ring)):
            raise ValueError("a polygon with a number that isn't finite")
        points.extend(ring)
        points.extend(END)
    _native.turn_alike(np.frombuffer(points, np.float32).reshape(-1, 2))
    return points


def _runs(given: Mapping[str, Any]) -> tuple[tuple[int, int], array[float]]:
    """Return height, width and outline of a picture's pixels, from the lengths of runs or COCO's text of them."""
    counts, (height, width) = given["counts"], given["size"]
    if isinstance(counts, str):
        counts = _native.run_lengths(counts.encode("ascii", "replace"))
    points = _native.outline_of_runs(np.array(counts, np.int64), height, width)
    return (height, width), array("f", points.tobytes())
