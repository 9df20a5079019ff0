"""The stages of a kernel: passes over an image's pixels, which can be compiled to native objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from standpipe import _native
from standpipe.contracts import Transform
from standpipe.transform.image import (
    AtRandom,
    GeometricStep,
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    Size,
)


@dataclass(frozen=True, slots=True)
class GeometryStage:
    """One pass that moves pixels, row by row: [zoom out] → [crop] → [flips] → [resize] → [window] → [flips].

    parts   the pass's transforms in pipeline order, each with its part of the key of random numbers
    chance  of the group that the transforms are in: its part of that key, and the probability that it's applied
    """

    parts: tuple[tuple[GeometricTransform, int], ...] = ()
    chance: tuple[int, float] | None = None

    def takes(self, transform: GeometricTransform) -> bool:
        """Return True if this pass can do ``transform`` after the steps that the pass has."""
        if self.chance is not None:
            return False
        if transform.step is GeometricStep.FLIP:
            return True
        steps = [part.step for part, _ in self.parts]
        last = max((each for each in steps if each is not GeometricStep.FLIP), default=0)
        first = transform.first_step or transform.step
        follows_flip = steps[-1:] == [GeometricStep.FLIP]
        return first > last and (not follows_flip or last < GeometricStep.RESIZE <= first)

    def extended(self, transform: GeometricTransform, op: int) -> GeometryStage:
        """Return a pass with ``transform`` added. ``op`` is the transform's part of the key of random numbers."""
        return replace(self, parts=(*self.parts, (transform, op)))

    def compile(self) -> _native.GeometryStage:
        """Return the native form."""
        stage = _native.GeometryStage()
        for transform, op in self.parts:
            transform.add_to(stage, op)
        if self.chance is not None:
            stage.perhaps(*self.chance)
        return stage

    @property
    def names(self) -> tuple[str, ...]:
        """The class names of the pass's transforms, for ``explain()``."""
        return tuple(type(transform).__name__ for transform, _ in self.parts)


@dataclass(frozen=True, slots=True)
class PixelStage:
    """A pass of one pixel transform, which needs the whole image.

    op    the transform's part of the key of random numbers
    size  (height, width) of the images in pixels; None if it differs among images
    """

    transform: PixelTransform
    op: int
    size: Size | None

    def compile(self) -> _native.PixelStage:
        """Return the native form."""
        return self.transform.stage(self.op, self.size)

    @property
    def names(self) -> tuple[str, ...]:
        """The class name of the transform, in a tuple, for ``explain()``."""
        return (type(self.transform).__name__,)


Stage = GeometryStage | PixelStage


def with_ops(
    transforms: Iterable[Transform], earlier: Iterable[Transform]
) -> Iterator[tuple[Transform, int]]:
    """Yield each transform with its part of the key of random numbers; 0 for one that isn't random.

    That is its number among the transforms of its class. So adding or removing a transform of another class doesn't
    change the numbers.

    earlier  native transforms that run before these, which count as well
    """
    drawn = Counter(each.draw_kind for each in earlier if isinstance(each, ImageTransform))
    for transform in transforms:
        kind = transform.draw_kind if isinstance(transform, ImageTransform) else 0
        yield transform, kind and kind << 16 | drawn[kind]
        drawn[kind] += 1


def followed_by(
    stages: tuple[Stage, ...], transform: GeometricTransform | PixelTransform, op: int, size: Size | None
) -> tuple[Stage, ...]:
    """Return ``stages`` with one more transform: in the last stage if that stage can do it, else in a new stage.

    op    the transform's part of the key of random numbers
    size  (height, width) of the images before the transform; None if it differs among images
    """
    if isinstance(transform, PixelTransform) and transform.geometric:
        assert isinstance(transform, AtRandom)
        own: tuple[Stage, ...] = ()
        for each, number in with_ops(transform.geometric, ()):
            assert isinstance(each, GeometricTransform)
            own = followed_by(own, each, number, None)
        chance = op, transform.p
        return (*stages, *(replace(each, chance=chance) for each in own if isinstance(each, GeometryStage)))
    if isinstance(transform, PixelTransform):
        return (*stages, PixelStage(transform, op, size))
    *first, last = stages or (GeometryStage(),)
    if isinstance(last, GeometryStage) and last.takes(transform):
        return (*first, last.extended(transform, op))
    return (*stages, GeometryStage(((transform, op),)))
