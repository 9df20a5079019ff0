"""Read the shapes of instances, which annotation files have as polygons or as runs of pixels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.spec import AnyArray, Int64Array

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
        """Add the next instance's shape.

        It is a list of polygons, ``{"counts": …, "size": [height, width]}``, an array of pixels (H, W), or nothing.
        """
        points, size = array("f"), (0, 0)
        try:
            if isinstance(segmentation, np.ndarray):
                size, points = _outline(segmentation.shape, _runs_of(segmentation))
            elif not segmentation:
                self.faults[len(self._ends)] = NO_MASK, ""
            elif isinstance(segmentation, Mapping):
                size, points = _outline(segmentation["size"], _run_lengths(segmentation["counts"]))
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


def _outline(size: Any, runs: Any) -> tuple[tuple[int, int], array[float]]:
    """Return height, width and outline of a picture's pixels, from its size and the lengths of runs."""
    height, width = size
    points = _native.outline_of_runs(np.array(runs, np.int64), height, width)
    return (height, width), array("f", points.tobytes())


def _run_lengths(counts: Any) -> Any:
    """Return the lengths of runs, which may be COCO's text, or its bytes as pycocotools has them."""
    text = counts.encode("ascii", "replace") if isinstance(counts, str) else counts
    return _native.run_lengths(text) if isinstance(text, bytes) else text


def _runs_of(pixels: AnyArray) -> AnyArray:
    """Return the lengths of runs outside and inside by turns, down the columns of pixels, which are not 0 inside."""
    inside = np.concatenate([[False], pixels.T.reshape(-1) != 0])
    return np.diff(np.flatnonzero(np.diff(inside)), prepend=0, append=pixels.size)


def in_pixels(shapes: RaggedRows, sizes: Int64Array, images: Int64Array) -> RaggedRows:
    """Return shapes in pixels, of which polygons are fractions of the sides of their images.

    sizes   (m, 2) that ``take`` returned
    images  (m, 2) heights and widths of the images in pixels
    """
    sides = np.where(sizes == 0, images, 1)[:, ::-1].astype(np.float32)
    sides = np.repeat(sides, np.diff(shapes.ends, prepend=0), axis=0)
    return replace(shapes, values=np.multiply(shapes.values, sides))
