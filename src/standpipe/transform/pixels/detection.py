"""Transforms of detection recipes that change the scale of an image, or its size to one of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from standpipe import _native
from standpipe.transform.image import (
    MASK_FILL,
    MOST_PX,
    AtRandom,
    GeometricStep,
    GeometricTransform,
    Size,
    is_number,
    is_pair,
)
from standpipe.transform.pixels.geometry import (
    INTERPOLATIONS,
    InterpolationName,
    SizedTransform,
    VaryingTransform,
    WarpInterpolation,
    WindowPlace,
    filter_number,
    side_pair,
)
from standpipe.transform.pixels.window import MODES, Colour, PaddingMode, colour_of
from standpipe.units import is_count


@dataclass(frozen=True, slots=True)
class RandomZoomOut(AtRandom, GeometricTransform):
    """Put an image at a random place of a larger canvas, like ``torchvision.transforms.v2.RandomZoomOut``.

    Before a crop or resize, the canvas is never made: only the rows that the result needs are put together. All
    images of a batch have one size, so a resize or crop to a fixed size must follow. It moves the fields ``image`` and
    ``mask``.

    Parameters
    ----------
    fill : int or tuple of int, default 0
        Level of all channels or of each, 0 to 255, of the canvas.
    side_range : (float, float), default (1.0, 4.0)
        The canvas' sides are so many times as long as the image's, truncated to integers: one random number for
        both sides, from 1 to 256.
    p : float, default 0.5
        Probability of the change.
    mask_fill : int, default 255
        Class number of the canvas in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).map(sp.RandomZoomOut(fill=(123, 117, 104)), sp.Resize((48, 48)))
    >>> with photos.batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 48, 48, 3)
    """

    draw_kind: ClassVar[int] = 49
    step: ClassVar[GeometricStep] = GeometricStep.ZOOM_OUT

    fill: int | Colour = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5
    mask_fill: int = field(default=MASK_FILL, repr=False)

    @property
    def is_random(self) -> bool:
        """True unless ``p`` is 0."""
        return self.p != 0

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        colour_of("RandomZoomOut", self.fill)
        self.check_integer("mask_fill", 0, 255)
        self.check_range("side_range", 1, _native.MOST_ZOOM)

    def size_after(self, size: Size | None) -> Size | None:
        """Return None: images differ in size, unless ``p`` is 0."""
        return size if self.p == 0 else None

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the canvas to a native pass."""
        stage.zoom_out(op=op, p=self.p, times=self.side_range, fill=colour_of("RandomZoomOut", self.fill))


@dataclass(frozen=True, slots=True)
class ScaleJitter(VaryingTransform):
    """Resize an image to a target size times a random scale, like ``torchvision.transforms.v2.ScaleJitter``.

    Both sides are multiplied by min(target_size[1] ÷ height, target_size[0] ÷ width) × scale, as torchvision's code
    does, and truncated to integers; none is below one pixel. Images are always antialiased. All images of a batch have
    one size, so ``FixedSizeCrop`` or a similar transform must follow. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    target_size : (int, int)
        The size in pixels that an image of scale 1 just fits into.
    scale_range : (float, float), default (0.1, 2.0)
        Range of the scale, uniform.
    interpolation : str, default "bilinear"
        One of the filters of ``RandomResizedCrop``, except ``"random"``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> train = photos.map(sp.ScaleJitter((64, 64)), sp.FixedSizeCrop((64, 64), fill=114)).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 64, 64, 3)
    """

    draw_kind: ClassVar[int] = 50
    step: ClassVar[GeometricStep] = GeometricStep.RESIZE

    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: InterpolationName = "bilinear"

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_choice("interpolation", INTERPOLATIONS)
        if isinstance(self.target_size, int):
            self.refuse("target_size", f"a pair such as {(self.target_size, self.target_size)}")
        side_pair("ScaleJitter", "target_size", self.target_size)
        self.check_range("scale_range")

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the resize to a native pass."""
        height, width = self.target_size
        stage.resize_jitter(
            op=op,
            height=height,
            width=width,
            scale=self.scale_range,
            filter=filter_number(self.interpolation),
        )


@dataclass(frozen=True, slots=True)
class RandomShortestSize(VaryingTransform):
    """Resize an image's shorter side to one of several lengths, like ``torchvision.transforms.v2.RandomShortestSize``.

    Both sides are multiplied by min(length ÷ shorter side, ``max_size`` ÷ longer side) and truncated to integers, so
    rounding may leave one pixel less than the length, as in torchvision; none is below one pixel. Images are always
    antialiased. All images of a batch have one size, so ``FixedSizeCrop`` or a similar transform must follow. It moves
    the fields ``image`` and ``mask``.

    Parameters
    ----------
    min_size : int or sequence of int
        Lengths of the shorter side in pixels, each with the same probability.
    max_size : int, optional
        Limit of the longer side in pixels.
    interpolation : str, default "bilinear"
        One of the filters of ``RandomResizedCrop``, except ``"random"``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> train = photos.map(sp.RandomShortestSize((48, 64), 96), sp.FixedSizeCrop((96, 96))).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 96, 96, 3)
    """

    draw_kind: ClassVar[int] = 51
    step: ClassVar[GeometricStep] = GeometricStep.RESIZE

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: InterpolationName = "bilinear"

    @property
    def is_random(self) -> bool:
        """True if there are several lengths."""
        return len(self._lengths) > 1

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_choice("interpolation", INTERPOLATIONS)
        if not self._lengths or not all(is_count(each, 1, MOST_PX) for each in self._lengths):
            self.refuse("min_size", f"an integer, or a list of integers, each from 1 to {MOST_PX} pixels")
        if self.max_size is not None:
            self.check_integer("max_size", 1, MOST_PX)

    @property
    def _lengths(self) -> tuple[int, ...]:
        given: Any = self.min_size
        return tuple(given) if isinstance(given, tuple | list) else (given,)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the resize to a native pass."""
        stage.resize_listed(
            op=op,
            lengths=list(self._lengths),
            max_size=self.max_size or 0,
            filter=filter_number(self.interpolation),
        )


@dataclass(frozen=True, slots=True)
class FixedSizeCrop(SizedTransform):
    """Crop a window of fixed size, and pad what is too small, like ``FixedSizeCrop`` of torchvision's references.

    Where an image is larger than the window, the window is at a random place: the pixels in front of it are a random
    fraction of those that are left over, the same fraction along both axes. Where it is smaller, padding is added on
    the right and at the bottom. Only the window's pixels are decoded and resized. It moves the fields ``image`` and
    ``mask``.

    Parameters
    ----------
    size : int or (int, int)
        Output (height, width) in pixels; an int means a square.
    fill, padding_mode, mask_fill
        What the padding has, as for ``PadImage``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.

    Examples
    --------
    >>> images = np.ones((4, 24, 32, 3), np.uint8)
    >>> with sp.Pipeline(sp.Arrays(image=images)).map(sp.FixedSizeCrop(28, fill=9)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"][0, 22:26, 0, 0].tolist())
    [1, 1, 9, 9]
    """

    draw_kind: ClassVar[int] = 52
    step: ClassVar[GeometricStep] = GeometricStep.WINDOW

    size: int | tuple[int, int]
    fill: int | Colour = 0
    padding_mode: PaddingMode = "constant"
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        side_pair("FixedSizeCrop", "size", self.size)
        self.check_choice("padding_mode", MODES)
        colour_of("FixedSizeCrop", self.fill)
        self.check_integer("mask_fill", 0, 255)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the window to a native pass."""
        stage.window(
            place=WindowPlace.DIAGONAL,
            op=op,
            size=self.output_px,
            mode=MODES.index(self.padding_mode),
            fill=colour_of("FixedSizeCrop", self.fill),
        )


@dataclass(frozen=True, slots=True)
class LetterBox(GeometricTransform):
    """Resize an image to fit into a size and pad the rest, like ``LetterBox`` of the YOLO family.

    Both sides are multiplied by r = min(height of ``size`` ÷ height, width of ``size`` ÷ width) and rounded, halves to
    the even neighbour; none is below one pixel. Pixels are OpenCV's, bit for bit: ``cv2.resize`` with ``INTER_LINEAR``,
    without antialiasing. It moves the fields ``image`` and ``mask``; in masks the nearest pixel is that of
    ``INTER_NEAREST``.

    The family's loader resizes each image before all else, and ``LetterBox(size, pad=False)`` does the same: the longer
    side becomes ``size``, and the other one is rounded up.

    Parameters
    ----------
    size : int or (int, int)
        Output (height, width) in pixels; an int means a square.
    fill : int or tuple of int, default 114
        Level of all channels or of each, 0 to 255, of the padding.
    scaleup : bool, default True
        False: r is at most 1, so that a smaller image is only padded.
    center : bool, default True
        True: padding is on both sides, and of an odd number the right or bottom side gets one pixel more. False: all
        of it is on the right and at the bottom.
    pad : bool, default True
        False: without padding, so that images differ in size, and both sides are rounded up, to ``size`` at most.
    interpolation : str, default "bilinear"
        ``"nearest"`` or ``"bilinear"``: OpenCV's.
    mask_fill : int, default 255
        Class number of the padding in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> images = np.ones((4, 24, 48, 3), np.uint8)
    >>> with sp.Pipeline(sp.Arrays(image=images)).map(sp.LetterBox(32)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"][0, [7, 8, 23, 24], 0, 0].tolist())
    [114, 1, 1, 114]
    """

    first_step: ClassVar[GeometricStep] = GeometricStep.RESIZE
    step: ClassVar[GeometricStep] = GeometricStep.WINDOW

    size: int | tuple[int, int]
    fill: int | Colour = 114
    scaleup: bool = True
    center: bool = True
    pad: bool = field(default=True, kw_only=True)
    interpolation: WarpInterpolation = field(default="bilinear", kw_only=True)
    mask_fill: int = field(default=MASK_FILL, repr=False, kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        side_pair("LetterBox", "size", self.size)
        colour_of("LetterBox", self.fill)
        for name in ("scaleup", "center", "pad"):
            self.check_flag(name)
        self.check_choice("interpolation", get_args(WarpInterpolation))
        self.check_integer("mask_fill", 0, 255)

    def size_after(self, size: Size | None) -> Size | None:
        """Return the size with padding. Without padding: what fits into it, or None if images differ in size."""
        height, width = side_pair("LetterBox", "size", self.size)
        if self.pad:
            return height, width
        if size is None:
            return None
        factor = min(height / size[0], width / size[1], *([] if self.scaleup else [1.0]))
        return min(math.ceil(size[0] * factor), height), min(math.ceil(size[1] * factor), width)

    def most_after(self, most: Size | None) -> Size | None:
        """Return the (height, width) into which all images fit."""
        return side_pair("LetterBox", "size", self.size)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the resize to a native pass, and the padding."""
        height, width = side_pair("LetterBox", "size", self.size)
        stage.resize_to_fit(
            height=height,
            width=width,
            only_smaller=not self.scaleup,
            round_up=not self.pad,
            nearest=self.interpolation == "nearest",
        )
        if not self.pad:
            return
        fill = colour_of("LetterBox", self.fill)
        # Behind, nothing is cut off, and so its random number doesn't matter.
        place = WindowPlace.CENTRED if self.center else WindowPlace.DIAGONAL
        stage.window(place=place, op=op, size=(height, width), fill=fill)


@dataclass(frozen=True, slots=True)
class RandomSizeCrop(VaryingTransform):
    """Crop a window of random size at a random place, like ``RandomSizeCrop`` of DETR.

    Its width and its height are drawn from ``min_size`` to the image's own, ``max_size`` at most, each length with the
    same probability, and then its place. A side that is shorter than ``min_size`` stays whole, where DETR fails. All
    images of a batch have one size, so a resize to a fixed size must follow, or ``collate={"image": sp.Pad(…)}``.
    It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    min_size, max_size : int
        Shortest and longest side of the window in pixels, both included.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> cropped = sp.RandomApply([sp.RandomShortestSize((40, 50, 60)), sp.RandomSizeCrop(38, 60)], p=0.5)
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).map(cropped, sp.Resize((64, 64)))  # DETR's RandomSelect
    >>> with photos.batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 64, 64, 3)
    """

    draw_kind: ClassVar[int] = 55
    step: ClassVar[GeometricStep] = GeometricStep.WINDOW

    min_size: int
    max_size: int

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_integer("max_size", 1, MOST_PX)
        self.check_integer("min_size", 1, self.max_size)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the window to a native pass."""
        stage.sized_window(op=op, low=self.min_size, high=self.max_size)


@dataclass(frozen=True, slots=True)
class RandomIoUCrop(VaryingTransform):
    """Crop a window that overlaps with a box as SSD does, like ``torchvision.transforms.v2.RandomIoUCrop``.

    A least overlap (intersection over union) with a box is drawn. Then up to ``trials`` windows are tried: one is taken
    if its ratio is in range, and if at least one box has its centre inside and that overlap. Without such a window,
    another overlap is drawn. An instance whose centre is outside gets an empty box, which ``SanitizeBoundingBoxes``
    drops. An image without boxes stays whole, and so does one for which 1,000 overlaps gave no window, where
    torchvision would try for ever.

    It needs a source with the field ``boxes``. All images of a batch have one size, so a resize to a fixed size must
    follow. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    min_scale, max_scale : float, default 0.3 and 1.0
        Range of the window's width and height, as fractions of the image's: a random number for each.
    min_aspect_ratio, max_aspect_ratio : float, default 0.5 and 2.0
        Range of the window's width ÷ height.
    sampler_options : list of float, optional
        Least overlaps, each with the same probability; a number of 1 or more leaves the image whole. Default: 0, 0.1,
        0.3, 0.5, 0.7, 0.9 and 1.
    trials : int, default 40
        Windows that are tried for each overlap.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, for a source without boxes, or if images of a batch would differ in size.

    Examples
    --------
    >>> steps = [sp.RandomIoUCrop(), sp.RandomHorizontalFlip(), sp.Resize((300, 300)), sp.SanitizeBoundingBoxes()]
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*steps)  # a source with boxes, such as sp.Coco
    """

    draw_kind: ClassVar[int] = 54
    step: ClassVar[GeometricStep] = GeometricStep.CROP

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        scales, ratios = self._ranges
        if not is_pair(scales) or not 0 < scales[0] <= scales[1] <= 1:
            self.refuse("min_scale", f"above 0, and max_scale={scales[1]!r} not below it and at most 1")
        if not is_pair(ratios) or not 0 < ratios[0] <= ratios[1]:
            self.refuse("min_aspect_ratio", f"above 0, and max_aspect_ratio={ratios[1]!r} not below it")
        if not self._overlaps or not all(map(is_number, self._overlaps)):
            self.refuse("sampler_options", "a list of at least one number")
        self.check_integer("trials", 1, 10_000)

    @property
    def _ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return (self.min_scale, self.max_scale), (self.min_aspect_ratio, self.max_aspect_ratio)

    @property
    def _overlaps(self) -> tuple[float, ...]:
        if self.sampler_options is None:
            return 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0
        return tuple(self.sampler_options) if isinstance(self.sampler_options, tuple | list) else ()

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the crop to a native pass."""
        scales, ratios = self._ranges
        stage.crop_by_boxes(
            op=op, scale=scales, ratio=ratios, overlaps=list(self._overlaps), trials=self.trials
        )
