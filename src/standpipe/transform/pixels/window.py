"""Transforms that pad an image, and crop it at a random place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import (
    MASK_FILL,
    MOST_CHANNELS,
    MOST_PX,
    GeometricStep,
    GeometricTransform,
    Size,
)
from standpipe.transform.pixels.geometry import SizedTransform, WindowPlace, side_pair

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Sides = tuple[int, int, int, int]  # left, top, right, bottom, in pixels
Colour = tuple[int, ...]  # a level of each channel

MODES = get_args(PaddingMode)  # as native code numbers them


@dataclass(frozen=True, slots=True)
class PadImage(GeometricTransform):
    """Pad an image on all sides, like ``torchvision.transforms.v2.Pad``.

    ``standpipe.Pad`` is something else: it pads samples of a batch. Padding is never negative: use a crop instead. It
    moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    padding : int or tuple of int
        Pixels on each side: one number for all sides, two for (left and right, top and bottom), or four for
        (left, top, right, bottom).
    fill : int or tuple of int, default 0
        Level of all channels or of each, 0 to 255, of the padding; only for ``"constant"``.
    padding_mode : str, default "constant"
        ``"constant"``: one colour. ``"edge"``: the last pixel again. ``"reflect"``: mirrored without the
        last pixel. ``"symmetric"``: mirrored with it.
    mask_fill : int, default 255
        Class number of the padding in the field ``mask``, from 0 to 255; only for ``"constant"``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.

    Examples
    --------
    >>> source = sp.Arrays(image=np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3))
    >>> with sp.Pipeline(source).map(sp.PadImage((1, 0), padding_mode="edge")).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 0].tolist())
    [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    """

    step: ClassVar[GeometricStep] = GeometricStep.WINDOW
    in_pixels: ClassVar[tuple[str, ...] | None] = ("padding",)

    padding: int | tuple[int, ...]
    fill: int | Colour = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        _sides("PadImage", self.padding)
        self.check_choice("padding_mode", MODES)
        colour_of("PadImage", self.fill)
        self.check_integer("mask_fill", 0, 255)

    def size_after(self, size: Size | None) -> Size | None:
        """Return (height, width) with padding; None if images differ in size."""
        if size is None:
            return None
        left, top, right, bottom = _sides("PadImage", self.padding)
        return (size[0] + top + bottom, size[1] + left + right)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the padding to a native pass."""
        stage.window(
            place=WindowPlace.EVERYTHING,
            sides=_sides("PadImage", self.padding),
            mode=MODES.index(self.padding_mode),
            fill=colour_of("PadImage", self.fill),
        )


@dataclass(frozen=True, slots=True)
class RandomCrop(SizedTransform):
    """Crop a window of fixed size at a random place, like ``torchvision.transforms.v2.RandomCrop``.

    Every place has the same probability. Only the window's pixels are decoded. It moves the fields ``image`` and
    ``mask``.

    Parameters
    ----------
    size : int or (int, int)
        Output (height, width) in pixels; an int means a square.
    padding : int or tuple of int, optional
        Pixels that are added on each side before the crop, as for ``PadImage``.
    pad_if_needed : bool, default False
        True: an image that is smaller than ``size`` is padded on both sides with the pixels that it lacks.
        False: it is a bad sample.
    fill, padding_mode, mask_fill
        What the padding has, as for ``PadImage``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if all images are too small.
    DecodeError
        While loading, for an image that is too small.

    Examples
    --------
    >>> images = np.zeros((4, 32, 32, 3), np.uint8)
    >>> with sp.Pipeline(sp.Arrays(image=images)).map(sp.RandomCrop(32, padding=4)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 20
    step: ClassVar[GeometricStep] = GeometricStep.WINDOW
    in_pixels: ClassVar[tuple[str, ...] | None] = ("size", "padding")

    size: int | tuple[int, int]
    padding: int | tuple[int, ...] | None = None
    pad_if_needed: bool = False
    fill: int | Colour = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        side_pair("RandomCrop", "size", self.size)
        _sides("RandomCrop", self.padding or 0)
        self.check_choice("padding_mode", MODES)
        colour_of("RandomCrop", self.fill)
        self.check_integer("mask_fill", 0, 255)
        self.check_flag("pad_if_needed")

    def size_after(self, size: Size | None) -> Size:
        """Return ``output_px``. Raises ``PlanError`` if images of ``size`` are too small."""
        wanted = self.output_px
        if size is not None and not self.pad_if_needed:
            left, top, right, bottom = _sides("RandomCrop", self.padding or 0)
            padded = (size[0] + top + bottom, size[1] + left + right)
            if padded[0] < wanted[0] or padded[1] < wanted[1]:
                raise PlanError(
                    f"{self.describe()} needs {wanted} pixels (height, width), but images have {padded}; use "
                    "pad_if_needed=True, or Resize before it"
                )
        return wanted

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the padding and the random window to a native pass."""
        stage.window(
            place=WindowPlace.RANDOM,
            op=op,
            size=self.output_px,
            sides=_sides("RandomCrop", self.padding or 0),
            pad_if_needed=self.pad_if_needed,
            mode=MODES.index(self.padding_mode),
            fill=colour_of("RandomCrop", self.fill),
        )


def colour_of(owner: str, fill: object) -> Colour:
    """Return ``fill`` as the levels of four channels. Raises ``PlanError`` if it isn't a level, or several.

    ``ImageTransform.channels_after`` compares their number with that of the images' channels.

    owner  name of the transform, for the error
    """
    levels = tuple(fill) if isinstance(fill, tuple | list) else (0 if fill is None else fill,)
    if not 1 <= len(levels) <= MOST_CHANNELS or not all(
        type(each) is int and 0 <= each <= 255 for each in levels
    ):
        raise PlanError(
            f"{owner}(fill={fill!r}): fill must be a level from 0 to 255, or one for each channel of the images"
        )
    return levels * MOST_CHANNELS if len(levels) == 1 else (*levels, *(0,) * (MOST_CHANNELS - len(levels)))


def _sides(owner: str, padding: object) -> Sides:
    given = tuple(padding) if isinstance(padding, tuple | list) else (padding,)
    if len(given) not in (1, 2, 4) or not all(type(each) is int and 0 <= each <= MOST_PX for each in given):
        raise PlanError(
            f"{owner}(padding={padding!r}): padding must be one, two or four integers from 0 to {MOST_PX} pixels: "
            "all sides; (left and right, top and bottom); or (left, top, right, bottom)"
        )
    if len(given) == 4:
        return given
    return (given[0], given[-1]) * 2
