"""Transforms that apply other pixel transforms at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import (
    AtRandom,
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    Size,
    is_number,
)
from standpipe.transform.kinds import MOVED, FieldKind


class Group(PixelTransform):
    """The base class of transforms that apply others: transforms of colours and filters.

    Crops, resizes and horizontal flips can't be in most groups: a kernel does these row by row.
    """

    __slots__ = ()
    transforms: Sequence[ImageTransform]

    def check(self) -> None:
        """Raise ``PlanError`` if there is no transform, or one that can't be in a group, or an invalid one."""
        name = type(self).__name__
        given = self.transforms
        if not isinstance(given, tuple | list) or not given:
            raise PlanError(f"{name}({given!r}): give it a list of at least one transform")
        for each in given:
            if not isinstance(each, PixelTransform) or each.geometric:
                raise PlanError(
                    f"{name} can't contain {each!r}: only transforms that change pixels where they are can be in a "
                    "group, such as ColorJitter or GaussianBlur; move it out of the group. Crops, resizes and "
                    "horizontal flips can only be in a RandomApply that has nothing else. For a choice of A or "
                    "[B, A], write RandomApply([B]), then A"
                )
            each.check()

    @property
    def is_random(self) -> bool:
        """True if there are several transforms, or the one is random."""
        return len(self._parts) > 1 or any(each.is_random for each in self._parts)

    @property
    def moves(self) -> tuple[str, ...]:
        """The kinds of pictures that each transform moves that moves any."""
        moving = [each.moves for each in self._parts if each.moves]
        return tuple(name for name in MOVED if moving and all(name in each for each in moving))

    def for_kind(self, kind: FieldKind) -> ImageTransform | None:
        """Return the group with the kind's transforms. Those of colours stay: they only use random numbers."""
        if kind.is_image:
            return self
        if kind.name not in self.moves:
            return None
        this: Any = self  # a dataclass, as each transform is
        moved: ImageTransform = replace(
            this, transforms=tuple(each.for_kind(kind) or each for each in self._parts)
        )
        return moved

    @property
    def _parts(self) -> tuple[PixelTransform | GeometricTransform, ...]:
        """The transforms, as far as they are any: this is asked before ``check()`` refuses others."""
        given = self.transforms if isinstance(self.transforms, tuple | list) else ()
        return tuple(each for each in given if isinstance(each, PixelTransform | GeometricTransform))

    def scaled(self, scale: Fraction) -> ImageTransform:
        """Return the group with the transforms for a picture of another scale. Raises ``PlanError`` if one has none."""
        if scale == 1:
            return self
        this: Any = self  # a dataclass, as each transform is
        scaled: ImageTransform = replace(this, transforms=tuple(each.scaled(scale) for each in self._parts))
        return scaled

    def size_after(self, size: Size | None) -> Size | None:
        """Return ``size``. Raises ``PlanError`` if a transform of the group needs or gives another one."""
        for each in self._parts:
            if each.size_after(size) != size:
                raise PlanError(
                    f"{type(self).__name__} can't contain {each!r}, which changes the size; move it out"
                )
        return size

    def channels_after(self, channels: int) -> int:
        """Return ``channels``. Raises ``PlanError`` if a transform of the group doesn't take it, or changes it."""
        for each in self._parts:
            if each.channels_after(channels) != channels:
                raise PlanError(
                    f"{type(self).__name__} can't contain {each!r}, which changes the number of channels; move it out"
                )
        return channels

    def stages(self, size: Size | None) -> list[_native.PixelStage]:
        """Return the native passes of the transforms. Their random numbers are those of the group."""
        return [each.stage(0, size) for each in self._parts if isinstance(each, PixelTransform)]


@dataclass(frozen=True, slots=True)
class RandomApply(AtRandom, Group):
    """Apply all of several transforms or none of them, like ``torchvision.transforms.v2.RandomApply``.

    It moves the fields that its transforms move. Crops, resizes and horizontal flips can be in it as well, if nothing
    else is. Then images differ in size, unless the transforms keep it.

    Parameters
    ----------
    transforms : list of transforms
        Pixel transforms, such as ``ColorJitter`` and ``GaussianBlur``; or crops, resizes and flips, such as
        ``RandomShortestSize`` and ``RandomSizeCrop``.
    p : float, default 0.5
        Probability that they are applied.

    Raises
    ------
    PlanError
        By ``plan()``, if there is no transform, if one can't be in a group, or if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> jitter = sp.RandomApply([sp.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), jitter).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 13

    transforms: Sequence[ImageTransform]
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        if not self.geometric:
            Group.check(self)
        for each in self.geometric:
            each.check()

    @property
    def geometric(self) -> tuple[GeometricTransform, ...]:
        """The transforms, if all are geometric; else ()."""
        given = self.transforms if isinstance(self.transforms, tuple | list) else ()
        found = tuple(each for each in given if isinstance(each, GeometricTransform))
        return found if len(found) == len(given) else ()

    def size_after(self, size: Size | None) -> Size | None:
        """Return ``size``, or None if only some images keep it."""
        if not self.geometric:
            return Group.size_after(self, size)
        after = size
        for each in self.geometric:
            after = each.size_after(after)
        return size if self.p == 0 else after if self.p == 1 or after == size else None

    @property
    def is_random(self) -> bool:
        """True if it may or may not be applied, or a transform of it is random."""
        return 0 < self.p < 1 or any(each.is_random for each in self._parts)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage.choice(op, self.p, [1.0], [self.stages(size)])


@dataclass(frozen=True, slots=True)
class RandomChoice(Group):
    """Apply one of several transforms, like ``torchvision.transforms.v2.RandomChoice``.

    It moves the fields that its transforms move.

    Parameters
    ----------
    transforms : list of transforms
        Pixel transforms, such as ``ColorJitter`` and ``GaussianBlur``.
    p : list of float, optional
        A weight for each transform; they needn't add up to 1. Default: equal weights.

    Raises
    ------
    PlanError
        By ``plan()``, if there is no transform, if one can't be in a group, or if the weights are invalid.

    Examples
    --------
    >>> choice = sp.RandomChoice([sp.RandomGrayscale(p=1), sp.RandomSolarize(128, p=1), sp.GaussianBlur(5)])
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), choice).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 14

    transforms: Sequence[ImageTransform]
    p: Sequence[float] | None = None

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        Group.check(self)
        if self.p is None:
            return
        fits = isinstance(self.p, tuple | list) and len(self.p) == len(self.transforms)
        if not fits or not all(is_number(each) and each >= 0 for each in self.p) or sum(self.p) <= 0:
            number = len(self.transforms)
            self.refuse(
                "p", f"a list of {number} weights, one for each transform, none below 0, not all of them 0"
            )

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        weights = self.p or (1.0,) * len(self.transforms)
        cumulative = [each / sum(weights) for each in accumulate(weights)]
        return _native.PixelStage.choice(op, 1.0, cumulative, [[each] for each in self.stages(size)])


@dataclass(frozen=True, slots=True)
class RandomOrder(Group):
    """Apply several transforms in random order, like ``torchvision.transforms.v2.RandomOrder``.

    It moves the fields that its transforms move.

    Parameters
    ----------
    transforms : list of transforms
        Pixel transforms, such as ``ColorJitter`` and ``GaussianBlur``; at most 64.

    Raises
    ------
    PlanError
        By ``plan()``, if there is no transform, if there are too many, or if one can't be in a group.

    Examples
    --------
    >>> both = sp.RandomOrder([sp.RandomEqualize(), sp.RandomPosterize(4)])
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), both).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 15

    transforms: Sequence[ImageTransform]

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        Group.check(self)
        if len(self.transforms) > _native.MOST_SHUFFLED:
            raise PlanError(
                f"RandomOrder has {len(self.transforms)} transforms; give it at most {_native.MOST_SHUFFLED}"
            )

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage.shuffle(op, 1.0, [[each] for each in self.stages(size)])
