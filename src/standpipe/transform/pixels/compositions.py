"""Transforms that make an image of several: the sample's own and those of its partners."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, Float32Array, Int64Array, set_plain
from standpipe.transform.image import MOST_PX, AtRandom, ImageTransform, Size, is_number
from standpipe.transform.kinds import IMAGE, MOVED, FieldKind
from standpipe.transform.pixels.geometry import side_pair
from standpipe.transform.pixels.window import Colour, colour_of
from standpipe.units import is_count

MOST_ROWS = 1 << 16  # of a window
MOST_COVERED = 0.3  # of an object's box, by the box of another one that can be pasted
# The least part of an instance's box in the rectangle with which it comes: without masks, and with them.
LEAST_INSIDE = 0.1, 0.01
RECTANGLES = 3  # among which one is chosen


@dataclass(frozen=True, slots=True)
class Recent:
    """Partners among the rows before a sample's own: of its rank, and of the same epoch.

    Their images are decoded once and stay in memory, which ``explain()`` shows. A resumed run decodes them again, so
    its batches are equal. With another world size, a sample gets other partners. The first row of an epoch has no row
    before it and is its own partner.

    Parameters
    ----------
    rows : int, default 128
        Number of rows among which partners are chosen, from 1 to 65,536.

    Examples
    --------
    >>> mosaic = sp.Mosaic(64, partners=sp.Recent(64))
    """

    rows: int = 128

    def __post_init__(self) -> None:
        set_plain(self)


Partners = Recent | Literal["any", "batch"]


class ComposingTransform(AtRandom):
    """The base class of transforms that put several images together."""

    __slots__ = ()
    moved: ClassVar[tuple[str, ...]] = MOVED
    partners: Partners

    @property
    def pictures(self) -> int:
        """The number of images that are put together."""
        raise NotImplementedError

    @property
    def is_random(self) -> bool:
        """True unless ``p`` is 0."""
        return self.p != 0

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid probability, or invalid partners."""
        AtRandom.check(self)
        named = self.partners in ("any", "batch")
        if not named and not (
            isinstance(self.partners, Recent) and is_count(self.partners.rows, 1, MOST_ROWS)
        ):
            self.refuse("partners", f"sp.Recent(rows), from 1 to {MOST_ROWS:,} rows, 'batch' or 'any'")

    def for_kind(self, kind: FieldKind) -> ImageTransform | None:
        """Return the transform itself for images. Raises ``PlanError`` for other pictures."""
        if kind != IMAGE:
            raise PlanError(f"{type(self).__name__} can't put {kind.plural} together: leave the field out")
        return self

    def composition(self, op: int) -> _native.Composition:
        """Return the native form. ``op``: the transform's part of the key of random numbers."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Mosaic(ComposingTransform):
    """Put four images around a random place of a canvas twice as high and wide, as the YOLO family does.

    The place is uniform in the middle half of the canvas, in whole pixels. The sample's own image is up left of it, its
    partners' images are up right, down left and down right. What leaves the canvas is cut off. Images keep their
    pixels: resize them first, so that their longer side is ``size``. Follow it with ``RandomAffine(size=…)``, which
    makes an image of the canvas. Boxes, keypoints and all other values of the instances are joined, the
    sample's own first.

    Parameters
    ----------
    size : int or (int, int)
        (height, width) of a quarter of the canvas, in pixels.
    p : float, default 1.0
        Probability of a mosaic. Else the image stays alone.
    partners : Recent, "batch" or "any", default Recent(128)
        Where the other three images are from: ``Recent``: random ones of the last rows; ``"batch"``: the rows before
        in the batch, the first following the last; ``"any"``: any records, which are decoded for this sample alone.
    fill : int or tuple of int, default 114
        Level of all channels or of each, 0 to 255, where no image is.

    Raises
    ------
    PlanError
        By ``plan()``: for invalid parameters; for a source without sizes of images; behind Python code.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.Coco("photos", "boxes.json"))
    >>> small = photos.map(sp.Resize((32, 32)), sp.Mosaic(32), sp.CenterCrop(32))
    """

    draw_kind: ClassVar[int] = 57

    size: int | tuple[int, int]
    p: float = 1.0
    partners: Partners = field(default_factory=Recent)
    fill: int | Colour = 114

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        ComposingTransform.check(self)
        if any(side > MOST_PX // 2 for side in self._side):
            self.refuse("size", f"at most {MOST_PX // 2} pixels")
        colour_of("Mosaic", self.fill)

    @property
    def pictures(self) -> int:
        """The number of images that are put together."""
        return 4

    @property
    def _side(self) -> Size:
        return side_pair("Mosaic", "size", self.size)

    def size_after(self, size: Size | None) -> Size | None:
        """Return the canvas' (height, width) in pixels; None if it may differ."""
        height, width = self._side
        canvas = 2 * height, 2 * width
        if self.p == 0:
            return size
        return canvas if self.p == 1 else None

    def composition(self, op: int) -> _native.Composition:
        """Return the native form."""
        return _native.Composition.mosaic(op, self.p, *self._side, colour_of("Mosaic", self.fill))


@dataclass(frozen=True, slots=True)
class MixUpInstances(ComposingTransform):
    """Blend an image with a partner's, and join the instances of both, as the YOLO family does.

    The weight of the sample's own image is a random number of Beta(alpha, alpha). Levels are rounded to the nearest
    integer. The partner's image is made by the transforms in front of this one, with random numbers of its own: behind
    ``Mosaic`` and ``RandomAffine`` it is another mosaic. Instances of both images keep their labels.
    ``MixUp`` is the one for class labels, and mixes whole batches.

    Parameters
    ----------
    p : float, default 1.0
        Probability of the change.
    alpha : float, default 32.0
        Both parameters of the beta distribution, above 0.
    partners : Recent, "batch" or "any", default Recent(128)
        Where the other image is from, as for ``Mosaic``.

    Raises
    ------
    PlanError
        By ``plan()``: for invalid parameters; if images differ in size; and as for ``Mosaic``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.Coco("photos", "boxes.json"))
    >>> mixed = photos.map(sp.Resize((32, 32)), sp.MixUpInstances(p=0.1))
    """

    draw_kind: ClassVar[int] = 58

    p: float = 1.0
    alpha: float = 32.0
    partners: Partners = field(default_factory=Recent)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        ComposingTransform.check(self)
        if not is_number(self.alpha) or not self.alpha > 0:
            self.refuse("alpha", "a number above 0")

    @property
    def pictures(self) -> int:
        """The number of images that are put together."""
        return 2

    def composition(self, op: int) -> _native.Composition:
        """Return the native form."""
        return _native.Composition.mix_up(op, self.p, self.alpha)


@dataclass(frozen=True, slots=True)
class CutMixInstances(ComposingTransform):
    """Replace a rectangle that has none of an image's boxes by a partner's pixels there, as the YOLO family does.

    The partner's instances come along if at least a tenth of their box is in the rectangle, or a hundredth where the
    source has masks. Their boxes and masks are cut off at its edges, and follow the sample's own, which stay as they
    are. Three rectangles are drawn at random, as ``CutMix`` with alpha=1 does; if all of them touch a box, or no
    instance would come along, the image stays as it is. So large rectangles are rare, and an image full of boxes never
    changes. Instances that ``SanitizeBoundingBoxes`` would drop don't count.

    ``CutMix`` is the one for class labels, and mixes whole batches.

    Parameters
    ----------
    p : float, default 1.0
        Probability of a try.
    partners : Recent, "batch" or "any", default Recent(128)
        Where the other image is from, as for ``Mosaic``. It is made as for ``MixUpInstances``.

    Raises
    ------
    PlanError
        By ``plan()``: for invalid parameters; if images differ in size; together with ``CopyPaste``, or twice; and as
        for ``Mosaic``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.Coco("photos", "boxes.json"))
    >>> cut = photos.map(sp.Resize((32, 32)), sp.CutMixInstances(p=0.1))
    """

    draw_kind: ClassVar[int] = 60

    p: float = 1.0
    partners: Partners = field(default_factory=Recent)

    @property
    def pictures(self) -> int:
        """The number of images that are put together."""
        return 2

    def composition(self, op: int) -> _native.Composition:
        """Return the native form."""
        return _native.Composition.paste(op, self.p, False)

    def chosen(
        self,
        rng: np.random.Generator,
        rectangles: Int64Array,
        own: Float32Array,
        others: Float32Array,
        least_inside: float,
    ) -> tuple[Int64Array, Int64Array]:
        """Return the rectangle, and the numbers of the partner's instances that come with it; (0, 0, 0, 0) for none.

        rectangles    (n, 4) xyxy in pixels, as are all boxes
        own, others   boxes of the image, and of the partner's instances
        least_inside  least fraction of a box that is inside of the rectangle
        """
        free = rectangles[~common_areas(rectangles, own).any(axis=1)]
        if len(free):
            rectangle = free[int(rng.random() * len(free))]
            common = common_areas(rectangle[None], others)[0]
            areas = (others[:, 2:] - others[:, :2]).prod(axis=1)
            if len(found := np.flatnonzero((common > 0) & (common >= least_inside * areas))):
                return rectangle, found
        return np.zeros(4, np.int64), np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class CopyPaste(ComposingTransform):
    """Paste objects of a partner's image on an image, where they are, with their masks and all values.

    Outlines are those of the objects' masks, with hard edges. An object below loses what is covered of its mask,
    and its box shrinks to what is left; one that is wholly covered gets an empty box, which ``SanitizeBoundingBoxes``
    drops. Pasted objects come behind the sample's own.

    ``"simple"`` is ``SimpleCopyPaste`` of torchvision's references: of the partner's n objects, n are drawn with
    replacement, so 63% of them are pasted on average. The references also widen what is covered by two pixels.

    ``"flip"`` is the YOLO family's: the partner is the image itself, mirrored. Of the objects whose mirrored box covers
    less than 30% of each box of the image, ``share`` are pasted, those first that cover least. The family's masks of
    objects below stay whole. Its place is behind ``Mosaic``, and before ``RandomAffine``.

    Parameters
    ----------
    p : float, default 1.0
        Probability of the change.
    mode : {"simple", "flip"}, default "simple"
        Which objects are pasted.
    share : float, default 0.5
        With ``"flip"``: the part of the objects that can be pasted, from 0 to 1.
    partners : Recent, "batch" or "any", default "batch"
        With ``"simple"``: where the other image is from, as for ``Mosaic``.

    Raises
    ------
    PlanError
        By ``plan()``: for invalid parameters; for a source without masks; if images differ in size; for a second
        ``CopyPaste``, or ``CutMixInstances``; and as for ``Mosaic``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.Coco("photos", "boxes.json"))
    >>> pasted = photos.map(sp.Resize((32, 32)), sp.CopyPaste(), sp.SanitizeBoundingBoxes())
    """

    draw_kind: ClassVar[int] = 59

    p: float = 1.0
    mode: Literal["simple", "flip"] = "simple"
    share: float = 0.5
    partners: Partners = "batch"

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        ComposingTransform.check(self)
        if self.mode not in ("simple", "flip"):
            self.refuse("mode", "'simple' or 'flip'")
        if not is_number(self.share) or not 0 <= self.share <= 1:
            self.refuse("share", "a number from 0 to 1")

    @property
    def pictures(self) -> int:
        """The number of images that are put together."""
        return 1 if self.mode == "flip" else 2

    def composition(self, op: int) -> _native.Composition:
        """Return the native form."""
        return _native.Composition.paste(op, self.p, self.mode == "flip")

    def chosen(
        self, rng: np.random.Generator, own: Float32Array, others: Float32Array, width_px: float
    ) -> Int64Array:
        """Return the numbers of the objects that are pasted.

        own       (n, 4) boxes of the image
        others    (m, 4) boxes of the partner's objects before they are mirrored; m > 0
        width_px  the image's width
        """
        if self.mode == "simple":
            return np.unique(rng.integers(0, len(others), len(others)))
        if rng.random() >= self.p:
            return np.zeros(0, np.int64)
        moved = np.stack(
            [width_px - others[:, 2], others[:, 1], width_px - others[:, 0], others[:, 3]], axis=1
        )
        areas = (own[:, 2:] - own[:, :2]).prod(axis=1)
        covered = (common_areas(moved, own) / areas).max(axis=1, initial=0)
        order = np.argsort(covered, kind="stable")[: (covered < MOST_COVERED).sum()]
        return np.asarray(order[: round(self.share * len(order))])


def common_areas(boxes: AnyArray, others: AnyArray) -> AnyArray:
    """Return the area that each of n boxes has in common with each of m others, (n, m). Boxes are xyxy."""
    first, last = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    return np.asarray((last - first).clip(0).prod(axis=2))
