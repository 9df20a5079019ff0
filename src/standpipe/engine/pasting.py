"""Choose the objects that are pasted on images, and find where they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.engine.moves import Moves, Traced
from standpipe.source.targets import BOXES
from standpipe.spec import Int64Array
from standpipe.transform import ComposedKernel
from standpipe.transform.instances import moved_boxes
from standpipe.transform.pixels.compositions import CopyPaste
from standpipe.transform.shapes import moved_shapes

Value = TypeVar("Value", bound=np.generic)


class Pasted(NamedTuple):
    """The shapes that are pasted on pictures: of picture i of all rows, those up to ``ends[i]``."""

    shapes: RaggedRows
    ends: Int64Array


@dataclass(frozen=True, slots=True)
class Pasting:
    """A choice of the objects that are pasted in rows, and of their places.

    A row has one picture or several on which objects are pasted. Each is made of some images, and so is what its
    objects are taken from: of as many images of partners, or of the same ones, mirrored.

    rule      which objects
    op        its part of the key of random numbers
    level     number of compositions in front of it
    pictures  their number in a row
    """

    rule: CopyPaste
    op: int
    level: int
    pictures: int

    @classmethod
    def of(cls, composed: ComposedKernel, composer: _native.Composer) -> Pasting | None:
        """Return where rows get objects; None if they don't."""
        if composed.paste is None:
            return None
        level, rule = composed.paste
        return cls(rule, composed.levels[level].op, level, composer.pasted_pictures)

    def arranged(self, own: NDArray[Value], mirrored: NDArray[Value] | None = None) -> NDArray[Value]:
        """Return values of the images of rows, (rows, images, …): for each picture, its own ones and those of partners.

        own       values of the frames of rows, (rows, frames, …)
        mirrored  those of frames that are mirrored and pasted; None: the same
        """
        if self.rule.mode == "simple":
            return own
        rows, frames, *rest = own.shape
        both = (own, own if mirrored is None else mirrored)
        parts = [each.reshape(rows, self.pictures, frames // self.pictures, *rest) for each in both]
        return np.stack(parts, axis=2).reshape(rows, 2 * frames, *rest)

    def pasted(
        self, traced: Traced, there: NDArray[np.bool_], moves: Moves, seeds: tuple[int, int, Int64Array]
    ) -> tuple[Traced, Pasted]:
        """Return the instances of rows with no more of partners' than are pasted, and what is pasted.

        traced  all instances of all images
        there   (rows, images) False for images that aren't made
        moves   (images, moves, 12) of those that are, to the pictures on which objects are pasted, without mirroring
        seeds   seed and epoch, and the position of each row
        """
        each = there.shape[1] // (2 * self.pictures)
        layers = np.arange(2 * self.pictures * len(there)).repeat(each)[there.ravel()]
        boxes, shapes = traced.instances[BOXES], traced.shapes
        assert shapes is not None
        images = np.repeat(np.arange(len(layers)), np.diff(boxes.ends, prepend=0))
        inside = _has_area(moved_boxes(boxes.values, images, moves))
        found, hulls = moved_shapes(shapes.where(inside), images, moves)
        seen, above, pictures = _has_area(hulls), layers[images] & 1 == 1, layers[images] >> 1
        kept = ~above
        for picture in np.unique(pictures[above & seen]).tolist():
            of_picture = seen & (pictures == picture)
            own, others = np.flatnonzero(of_picture & ~above), np.flatnonzero(of_picture & above)
            row, number = divmod(picture, self.pictures)
            key = _native.sample_key(*seeds[:2], int(seeds[2][row]), 0, self.op + number)
            rng = np.random.Generator(np.random.Philox(key=key))
            width_px = float(moves[images[others[0]], -1, 10])
            kept[others[self.rule.chosen(rng, hulls[own], hulls[others], width_px)]] = True
        pasted, left = np.flatnonzero(kept & above), np.flatnonzero(kept)
        ends = np.searchsorted(pictures[pasted], np.arange(self.pictures * len(there)), "right")
        counts = np.bincount(images[left], minlength=len(layers))
        instances = {
            name: RaggedRows(column.values[left], np.cumsum(counts))
            for name, column in traced.instances.items()
        }
        own_traced = replace(traced, instances=instances, shapes=shapes.take(left), layers=layers)
        return own_traced, Pasted(found.take(pasted), ends)


def _has_area(boxes: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    return np.asarray(np.all(boxes[:, 2:] > boxes[:, :2], axis=1))
