"""Choose the objects and rectangles that are pasted on images, and find where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.engine.instances import moved_instances
from standpipe.engine.moves import Moves, Traced
from standpipe.source.targets import BOXES
from standpipe.spec import Int64Array
from standpipe.transform import ComposedKernel
from standpipe.transform.instances import moved_boxes
from standpipe.transform.pixels.compositions import LEAST_INSIDE, RECTANGLES, CopyPaste, CutMixInstances
from standpipe.transform.python.mixing import cut_box
from standpipe.transform.shapes import moved_shapes

if TYPE_CHECKING:
    from standpipe.plan.parts import InstancePlan

Value = TypeVar("Value", bound=np.generic)

NUMBER = "number"  # of an instance among all, as a column beside its boxes
CORNERS = [[0, 1], [2, 1], [2, 3], [0, 3]]  # of a box, as x and y


class Pasted(NamedTuple):
    """The shapes that are pasted on pictures: of picture i of all rows, those up to ``ends[i]``."""

    shapes: RaggedRows
    ends: Int64Array


@dataclass(frozen=True, slots=True)
class Pasting:
    """A choice of what is pasted in rows, and of its places.

    A row has one picture or several on which something is pasted. Each is made of some images, and so is what that
    is taken from: of as many images of partners, or of the same ones, mirrored.

    rule      which objects, or which rectangle
    op        its part of the key of random numbers
    level     number of compositions in front of it
    pictures  their number in a row
    """

    rule: CopyPaste | CutMixInstances
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
        if self.rule.pictures == 2:
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
        assert isinstance(self.rule, CopyPaste)
        layers = self._layers(there)
        boxes, shapes = traced.instances[BOXES], traced.shapes
        assert shapes is not None
        images = _images(boxes)
        inside = _has_area(moved_boxes(boxes.values, images, moves))
        found, hulls = moved_shapes(shapes.where(inside), images, moves)
        above, pictures = layers[images] & 1 == 1, layers[images] >> 1
        kept = ~above
        for _, own, others, rng in self._choices(layers[images], _has_area(hulls), seeds):
            width_px = float(moves[images[others[0]], -1, 10])
            kept[others[self.rule.chosen(rng, hulls[own], hulls[others], width_px)]] = True
        pasted = np.flatnonzero(kept & above)
        ends = np.searchsorted(pictures[pasted], np.arange(self.pictures * len(there)), "right")
        return replace(_only(traced, kept), layers=layers), Pasted(found.take(pasted), ends)

    def cut(
        self,
        traced: Traced,
        there: NDArray[np.bool_],
        moves: Moves,
        seeds: tuple[int, int, Int64Array],
        how: InstancePlan,
    ) -> tuple[Traced, Pasted, Int64Array]:
        """Return the instances of rows, and the rectangles with which those of partners come.

        The rectangles are returned as shapes, and as xyxy in pixels of each picture, (rows × pictures, 4), with zeros
        for none. ``how`` says which instances count; the rest is as for ``pasted``.
        """
        assert isinstance(self.rule, CutMixInstances)
        layers, boxes = self._layers(there), traced.instances[BOXES]
        numbers = RaggedRows(np.arange(len(boxes.values)), boxes.ends)
        (drops,) = how.filters.values()
        whole = replace(traced, instances={BOXES: boxes, NUMBER: numbers}, parts=None)
        found = moved_instances(whole, moves, how, drops).columns
        hulls, numbered = found[BOXES].values.astype(np.float32), found[NUMBER].values
        kept, images = layers[_images(boxes)] & 1 == 0, _images(found[BOXES])
        rectangles = np.zeros((self.pictures * len(there), 4), np.int64)
        least = LEAST_INSIDE[traced.shapes is not None]
        for picture, own, others, rng in self._choices(layers[images], _has_area(hulls), seeds):
            height, width = (int(side) for side in moves[images[others[0]], -1, 9:11])
            drawn = np.array([cut_box(height, width, rng.random(), rng) for _ in range(RECTANGLES)])
            rectangles[picture], chosen = self.rule.chosen(
                rng, drawn[:, [1, 0, 3, 2]], hulls[own], hulls[others], least
            )
            kept[numbered[others[chosen]]] = True
        filled = rectangles[:, 2] > rectangles[:, 0]
        rings = np.full((filled.sum(), len(CORNERS) + 1, 2), np.nan, np.float32)
        rings[:, :-1] = rectangles[filled][:, CORNERS]
        ends = np.arange(1, len(rings) + 1) * rings.shape[1]
        pasted = Pasted(RaggedRows(rings.reshape(-1, 2), ends), np.cumsum(filled))
        return _only(traced, kept), pasted, rectangles

    def _layers(self, there: NDArray[np.bool_]) -> Int64Array:
        """Return ``Traced.layers`` of the images that are made. ``there``: as for ``pasted``."""
        each = there.shape[1] // (2 * self.pictures)
        return np.arange(2 * self.pictures * len(there)).repeat(each)[there.ravel()]

    def _choices(
        self, layers: Int64Array, seen: NDArray[np.bool_], seeds: tuple[int, int, Int64Array]
    ) -> Iterator[tuple[int, Int64Array, Int64Array, np.random.Generator]]:
        """Yield each picture for which a partner has instances: its number, its own instances and the partner's.

        A generator of random numbers is the last.

        layers  (n,) that of each instance, as in ``Traced``
        seen    (n,) False for instances that don't count
        """
        above, pictures = layers & 1 == 1, layers >> 1
        for picture in np.unique(pictures[above & seen]).tolist():
            of_picture = seen & (pictures == picture)
            row, number = divmod(picture, self.pictures)
            key = _native.sample_key(*seeds[:2], int(seeds[2][row]), 0, self.op + number)
            rng = np.random.Generator(np.random.Philox(key=key))
            yield picture, np.flatnonzero(of_picture & ~above), np.flatnonzero(of_picture & above), rng


def _only(traced: Traced, kept: NDArray[np.bool_]) -> Traced:
    """Return the images with some of their instances. ``kept``: which."""
    left, images = np.flatnonzero(kept), _images(traced.instances[BOXES])
    ends = np.cumsum(np.bincount(images[left], minlength=len(traced.instances[BOXES].ends)))
    instances = {name: RaggedRows(column.values[left], ends) for name, column in traced.instances.items()}
    shapes = None if traced.shapes is None else traced.shapes.take(left)
    return replace(traced, instances=instances, shapes=shapes)


def _images(column: RaggedRows) -> Int64Array:
    """Return the number of the image of each instance."""
    return np.repeat(np.arange(len(column.ends)), np.diff(column.ends, prepend=0))


def _has_area(boxes: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    return np.asarray(np.all(boxes[:, 2:] > boxes[:, :2], axis=1))
