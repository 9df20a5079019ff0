"""A picture and its mask through standpipe's transforms, the slow way: by Pillow and NumPy, one after the other.

Random numbers are those of ``draws``. Nothing here is fast, fused or shared with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

import standpipe as sp
from draws import Draws, Sample, crop_box, crop_filter, ops
from standpipe.spec import AnyArray, UInt8Array

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
}
LAST = sp.Normalize, sp.ToDtype, sp.ToLayout, sp.RandomErasing, sp.Views  # what comes last
STEPS = (  # geometric transforms, which draw for themselves in a group
    *(
        sp.RandomResizedCrop,
        sp.Resize,
        sp.RandomResize,
        sp.RandomShortestSize,
        sp.ScaleJitter,
        sp.RandomZoomOut,
    ),
    *(
        sp.RandomSizeCrop,
        sp.FixedSizeCrop,
        sp.CenterCrop,
        sp.RandomCrop,
        sp.PadImage,
        sp.RandomHorizontalFlip,
    ),
)
Sides = tuple[int, int, int, int]  # left, top, right, bottom


class TooSmall(Exception):
    """The picture is smaller than a crop of it."""


@dataclass(frozen=True)
class Picture:
    """An image, (H, W, 3) uint8, and its mask, (H, W) uint8, if it has one."""

    image: UInt8Array
    mask: UInt8Array | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), as Pillow has it."""
        return self.image.shape[1], self.image.shape[0]

    def by(self, change: Callable[[UInt8Array], UInt8Array]) -> Picture:
        """``change`` of the image, and of the mask."""
        return Picture(change(self.image), None if self.mask is None else change(self.mask))


def moved(transforms: Sequence[Any], picture: Picture, sample: Sample, numbers: Sequence[int]) -> Picture:
    """The picture after those of ``transforms`` that change pixels. ``numbers``: their ``ops``."""
    for transform, op in zip(transforms, numbers, strict=True):
        if isinstance(transform, sp.RandomResizedCrop):
            how = crop_filter(transform, sample, op & 0xFFFF)
            picture = changed(replace(transform, interpolation=how), picture, sample.draws(op))
        elif isinstance(transform, sp.RandomApply) and isinstance(transform.transforms[0], STEPS):
            if sample.draws(op).uniform() < transform.p:
                steps = transform.transforms
                picture = moved(steps, picture, sample.group(op), ops(steps))
        elif not isinstance(transform, LAST):
            picture = changed(transform, picture, sample.draws(op))
    return picture


def transformed(image: Image.Image, transforms: Sequence[Any], sample: Sample) -> UInt8Array:
    """(H, W, 3) uint8: the image after ``transforms``."""
    return moved(transforms, Picture(np.asarray(image)), sample, ops(transforms)).image


def changed(transform: Any, picture: Picture, draws: Draws) -> Picture:
    """The picture after one transform, which takes its random numbers from ``draws``."""
    match transform:
        case sp.RandomResizedCrop():
            box, (height, width) = crop_box(transform, picture.size, draws), transform.output_px
            return by_pillow(
                picture, transform, lambda each, how: each.crop(box).resize((width, height), how)
            )
        case sp.RandomResize():
            side = transform.min_size + draws.below(transform.max_size - transform.min_size)
            return changed(sp.Resize(side, interpolation=transform.interpolation), picture, draws)
        case sp.RandomZoomOut():
            return zoomed_out(transform, picture, draws)
        case sp.ScaleJitter() | sp.RandomShortestSize():
            size = scaled(transform, picture.size, draws)
            return by_pillow(picture, transform, lambda each, how: each.resize(size, how))
        case sp.RandomSizeCrop():
            left, top, right, bottom = box_of_a_size(transform, picture.size, draws)
            return picture.by(lambda each: each[top:bottom, left:right])
        case sp.FixedSizeCrop():
            return window_of(transform, picture, draws)
        case sp.Resize():
            size = resized(transform, picture.size)
            return by_pillow(picture, transform, lambda each, how: each.resize(size, how))
        case sp.CenterCrop():
            return picture.by(lambda each: centred(each, *transform.output_px, fill_of(transform, each)))
        case sp.RandomCrop():
            return cropped(transform, picture, draws)
        case sp.PadImage():
            sides, mode = sides_of(transform.padding), transform.padding_mode
            return picture.by(lambda each: padded(each, sides, mode, fill_of(transform, each)))
        case sp.RandomHorizontalFlip() if draws.uniform() < transform.p:
            return picture.by(lambda each: each[:, ::-1])
        case sp.RandomVerticalFlip() if draws.uniform() < transform.p:
            return picture.by(lambda each: each[::-1])
        case sp.RandomHorizontalFlip() | sp.RandomVerticalFlip():
            return picture
        case sp.RandomRotation():
            return rotated(transform, picture, draws)
        case sp.RandomApply() | sp.RandomChoice() | sp.RandomOrder():
            for member in members(transform, draws):
                picture = changed(member, picture, draws)
            return picture
    return replace(picture, image=coloured(transform, picture.image, draws))


def fill_of(transform: Any, pixels: UInt8Array) -> Any:
    """The colour around an image, or the class number around a mask."""
    return transform.mask_fill if pixels.ndim == 2 else getattr(transform, "fill", 0)


def by_pillow(picture: Picture, transform: Any, change: Callable[[Image.Image, Any], Image.Image]) -> Picture:
    """``change`` with the filter of ``transform``; masks take the nearest pixel."""
    hows = {2: Image.Resampling.NEAREST, 3: FILTERS[transform.interpolation]}
    return picture.by(lambda each: np.asarray(change(Image.fromarray(each), hows[each.ndim])))


def resized(resize: sp.Resize, size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) after ``resize``, by torchvision's rule: the longer side is truncated."""
    if not isinstance(resize.size, int):
        return resize.size[1], resize.size[0]
    width, height = size
    shorter, longer = min(size), max(size)
    new_shorter, new_longer = resize.size, int(resize.size * longer / shorter)
    if resize.max_size is not None and new_longer > resize.max_size:
        new_shorter, new_longer = int(resize.max_size * new_shorter / new_longer), resize.max_size
    new_shorter = max(new_shorter, 1)
    return (new_shorter, new_longer) if width <= height else (new_longer, new_shorter)


def centred(image: UInt8Array, height: int, width: int, fill: int = 0) -> UInt8Array:
    """The middle, by torchvision's rule: what is missing is filled, an odd surplus is rounded to even."""
    have_h, have_w = image.shape[:2]
    across, down = max(width - have_w, 0), max(height - have_h, 0)
    sides = across // 2, down // 2, across - across // 2, down - down // 2
    image = padded(image, sides, "constant", fill)
    top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
    return image[top : top + height, left : left + width]


def sides_of(padding: Any) -> Sides:
    given = tuple(padding) if isinstance(padding, tuple) else (padding or 0,)
    return given if len(given) == 4 else (given[0], given[-1]) * 2  # type: ignore[return-value]


def padded(image: UInt8Array, sides: Sides, mode: Any, fill: Any = 0) -> UInt8Array:
    """Return an image padded as torchvision pads Pillow images: by NumPy, except for one colour."""
    left, top, right, bottom = sides
    height, width, *channels = image.shape
    if mode != "constant":
        return np.pad(image, ((top, bottom), (left, right), *[(0, 0) for _ in channels]), mode)
    result = np.empty((height + top + bottom, width + left + right, *channels), np.uint8)
    result[:] = fill
    result[top : top + height, left : left + width] = image
    return result


def cropped(crop: sp.RandomCrop, picture: Picture, draws: Draws) -> Picture:
    """Crop by torchvision's rule: pad, add what is missing on both sides, then choose a uniform place."""
    left, top, right, bottom = sides_of(crop.padding)
    height, width = crop.output_px
    if crop.pad_if_needed:
        down = max(height - (picture.size[1] + top + bottom), 0)
        across = max(width - (picture.size[0] + left + right), 0)
        left, top, right, bottom = left + across, top + down, right + across, bottom + down
    sides = left, top, right, bottom
    whole = picture.by(lambda each: padded(each, sides, crop.padding_mode, fill_of(crop, each)))
    if whole.size[0] < width or whole.size[1] < height:
        raise TooSmall
    y = draws.below(whole.size[1] - height + 1)
    x = draws.below(whole.size[0] - width + 1)
    return whole.by(lambda each: each[y : y + height, x : x + width])


def zoomed_out(zoom: sp.RandomZoomOut, picture: Picture, draws: Draws) -> Picture:
    """A canvas with the picture anywhere in it."""
    if draws.uniform() >= zoom.p:
        return picture
    width, height = picture.size
    times = draws.uniform(*zoom.side_range)
    across, down = int(width * times) - width, int(height * times) - height
    left, top = int(across * draws.uniform()), int(down * draws.uniform())
    sides = left, top, across - left, down - top
    return picture.by(lambda each: padded(each, sides, "constant", fill_of(zoom, each)))


def scaled(resize: Any, size: tuple[int, int], draws: Draws) -> tuple[int, int]:
    """(width, height) after a resize by one factor."""
    width, height = size
    if isinstance(resize, sp.ScaleJitter):
        factor = min(resize.target_size[1] / height, resize.target_size[0] / width)
        factor *= draws.uniform(*resize.scale_range)
    else:
        lengths = [resize.min_size] if isinstance(resize.min_size, int) else resize.min_size
        factor = lengths[draws.below(len(lengths))] / min(size)
        factor = min(factor, (resize.max_size or math.inf) / max(size))
    return max(int(width * factor), 1), max(int(height * factor), 1)


def box_of_a_size(crop: sp.RandomSizeCrop, size: tuple[int, int], draws: Draws) -> Sides:
    """DETR's: a width, a height, and a place."""
    sides = []
    for side in size:
        most = min(side, crop.max_size)
        least = min(crop.min_size, most)
        sides.append(least + draws.below(most - least + 1))
    (width, height), (wide, high) = sides, size
    top, left = draws.below(high - height + 1), draws.below(wide - width + 1)
    return left, top, left + width, top + height


def window_of(crop: sp.FixedSizeCrop, picture: Picture, draws: Draws) -> Picture:
    """A crop on the diagonal, padded behind."""
    height, width = crop.output_px
    share = draws.uniform()
    top, left = int(max(picture.size[1] - height, 0) * share), int(max(picture.size[0] - width, 0) * share)
    part = picture.by(lambda each: each[top : top + height, left : left + width])
    sides = 0, 0, width - part.size[0], height - part.size[1]
    return part.by(lambda each: padded(each, sides, crop.padding_mode, fill_of(crop, each)))


def rotated(turn: sp.RandomRotation, picture: Picture, draws: Draws) -> Picture:
    draws.uniform()  # whether it takes place
    degrees = turn.degrees if isinstance(turn.degrees, tuple) else (-turn.degrees, turn.degrees)
    angle = draws.uniform(*degrees)
    fill = turn.fill if isinstance(turn.fill, tuple) else (turn.fill,) * 3

    def turned(image: Image.Image, how: Any) -> Image.Image:
        around = turn.mask_fill if image.mode == "L" else fill
        return image.rotate(angle, how, center=turn.center, fillcolor=around)

    return by_pillow(picture, turn, turned)


def members(group: Any, draws: Draws) -> Iterable[Any]:
    """The transforms of a group that take place, in their order."""
    parts = list(group.transforms)
    match group:
        case sp.RandomApply():
            if draws.uniform() >= group.p:
                return []
            draws.uniform()  # which list: there is one
            return parts
        case sp.RandomChoice():
            draws.uniform()  # whether it takes place
            weights = group.p or (1,) * len(parts)
            bounds, drawn = np.cumsum(weights) / sum(weights), draws.uniform()
            return [next(part for part, bound in zip(parts, bounds, strict=True) if drawn < bound)]
        case _:
            draws.uniform()
            return shuffled(parts, draws)


def shuffled(parts: list[Any], draws: Draws) -> Iterator[Any]:
    """Yield the parts in random order. Each takes random numbers of its own before the next one is chosen."""
    for place in range(len(parts)):
        other = place + draws.below(len(parts) - place)
        parts[place], parts[other] = parts[other], parts[place]
        yield parts[place]


CHANGES: dict[type, Callable[[Any, Image.Image], Image.Image]] = {
    sp.RandomInvert: lambda _, image: ImageOps.invert(image),
    sp.RandomPosterize: lambda how, image: ImageOps.posterize(image, how.bits),
    sp.RandomSolarize: lambda how, image: ImageOps.solarize(image, how.threshold),
    sp.RandomAutocontrast: lambda _, image: ImageOps.autocontrast(image),
    sp.RandomEqualize: lambda _, image: ImageOps.equalize(image),
    sp.RandomGrayscale: lambda _, image: image.convert("L").convert("RGB"),
    sp.RandomAdjustSharpness: lambda how, image: ImageEnhance.Sharpness(image).enhance(how.sharpness_factor),
}


def coloured(transform: Any, image: UInt8Array, draws: Draws) -> UInt8Array:
    """The image after a transform that moves no pixel."""
    if isinstance(transform, sp.RandomPhotometricDistort):
        return distorted(transform, image, draws)
    if isinstance(transform, sp.ColorJitter):
        return jittered(transform, image, draws)
    takes_place = draws.uniform() < getattr(transform, "p", 1)
    if isinstance(transform, sp.GaussianBlur):
        sigma = transform.sigma if isinstance(transform.sigma, tuple) else (transform.sigma,) * 2
        return blurred(image, transform.kernel_size, draws.uniform(*sigma))
    picture = Image.fromarray(image)
    if isinstance(transform, sp.PillowGaussianBlur):
        radius = transform.radius if isinstance(transform.radius, tuple) else (transform.radius,) * 2
        return np.asarray(picture.filter(ImageFilter.GaussianBlur(draws.uniform(*radius))))
    return np.asarray(CHANGES[type(transform)](transform, picture) if takes_place else picture)


def jittered(jitter: sp.ColorJitter, image: UInt8Array, draws: Draws) -> UInt8Array:
    """Apply each change with a factor of its own, in random order."""
    names = [name for name in ("brightness", "contrast", "saturation", "hue") if getattr(jitter, name)]
    draws.uniform()  # whether it takes place
    picture = Image.fromarray(image)
    for name in shuffled(names, draws):
        draws.uniform()  # whether the change takes place
        given = getattr(jitter, name)
        around = (-given, given) if name == "hue" else (max(1 - given, 0), 1 + given)
        factor = draws.uniform(*around)
        picture = turned_hue(picture, factor) if name == "hue" else ENHANCERS[name](picture).enhance(factor)
    return np.asarray(picture)


def distorted(distort: sp.RandomPhotometricDistort, image: UInt8Array, draws: Draws) -> UInt8Array:
    """Apply SSD's changes: contrast second or last, and then another order of channels."""
    draws.uniform()  # whether it takes place
    names = ["brightness", "contrast", "saturation", "hue"]
    if draws.uniform() >= 0.5:
        names = ["brightness", "saturation", "hue", "contrast"]
    picture = Image.fromarray(image)
    for name in names:
        if draws.uniform() < distort.p:
            factor = draws.uniform(*getattr(distort, name))
            picture = (
                turned_hue(picture, factor) if name == "hue" else ENHANCERS[name](picture).enhance(factor)
            )
    if draws.uniform() >= distort.p:
        return np.asarray(picture)
    order = [0, 1, 2]
    for place in (0, 1):
        other = place + draws.below(3 - place)
        order[place], order[other] = order[other], order[place]
    return np.asarray(picture)[..., order]


ENHANCERS: dict[str, Any] = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def turned_hue(image: Image.Image, turn: float) -> Image.Image:
    """Return an image whose hues are turned as torchvision turns those of Pillow images."""
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.int32(turn * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def blurred(image: UInt8Array, kernel: int, sigma: float) -> UInt8Array:
    """Two passes with integer weights: along rows to 8 more bits, then along columns."""
    exact = [math.exp(-0.5 * ((k - kernel // 2) / sigma) ** 2) for k in range(kernel)]
    weights = [round(each / sum(exact) * 65536) for each in exact]
    weights[kernel // 2] += 65536 - sum(weights)
    height, width, _ = image.shape
    around = ((kernel // 2,) * 2, (kernel // 2,) * 2, (0, 0))
    wide = np.pad(image.astype(np.int64), around, mode="reflect")
    across = sum(weight * wide[:, k : k + width] for k, weight in enumerate(weights)) + 128 >> 8
    down = sum(weight * across[k : k + height] for k, weight in enumerate(weights)) + (1 << 23) >> 24
    return np.asarray(down, np.uint8)


def written(transforms: Sequence[Any], image: UInt8Array, sample: Sample, numbers: Sequence[int]) -> AnyArray:
    """The image as a batch has it: in its dtype and order of axes, with a rectangle erased."""
    dtypes = [each for each in transforms if isinstance(each, sp.ToDtype)]
    layouts = [each.layout for each in transforms if isinstance(each, sp.ToLayout)]
    row = image.astype(np.float32)
    normalizes = [each for each in transforms if isinstance(each, sp.Normalize)]
    for normalize in normalizes:
        row = row / np.float32(255)
        row = (row - np.asarray(normalize.mean, np.float32)) / np.asarray(normalize.std, np.float32)
    if dtypes and dtypes[-1].scale and not normalizes and dtypes[-1].dtype != "uint8":
        row = row / np.float32(255)
    row = row.astype(dtypes[-1].dtype if dtypes else "float32" if normalizes else "uint8")
    for transform, op in zip(transforms, numbers, strict=True):
        if isinstance(transform, sp.RandomErasing):
            draws = sample.draws(op)
            if draws.uniform() < transform.p and (box := erased_box(transform, row.shape, draws)):
                row[box] = transform.value
    planar = (layouts or ["NHWC" if row.dtype == np.uint8 else "NCHW"])[-1] == "NCHW"
    return np.ascontiguousarray(row.transpose(2, 0, 1) if planar else row)


def erased_box(erasing: sp.RandomErasing, shape: tuple[int, ...], draws: Draws) -> tuple[slice, slice] | None:
    """The rectangle of an image of ``shape`` (H, W, 3), by torchvision's rule; None if none of ten fits."""
    height, width, _ = shape
    for _ in range(10):
        area = height * width * draws.uniform(*erasing.scale)
        ratio = math.exp(draws.uniform(*map(math.log, erasing.ratio)))
        high, wide = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if high < height and wide < width:
            top = draws.below(height - high + 1)
            left = draws.below(width - wide + 1)
            return slice(top, top + high), slice(left, left + wide)
    return None
