"""Convert single transforms of torchvision and timm into native ones that give the same pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from standpipe.transform.converted.values import Unlike, arguments, fill_of
from standpipe.transform.image import GeometricTransform, ImageTransform, PixelTransform
from standpipe.transform.pixels.aug_mix import AugMix
from standpipe.transform.pixels.auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from standpipe.transform.pixels.color import (
    ColorJitter,
    Grayscale,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from standpipe.transform.pixels.detection import (
    RandomIoUCrop,
    RandomShortestSize,
    RandomZoomOut,
    ScaleJitter,
)
from standpipe.transform.pixels.erasing import RandomErasing
from standpipe.transform.pixels.filters import GaussianBlur, RandomAdjustSharpness
from standpipe.transform.pixels.geometry import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from standpipe.transform.pixels.groups import RandomApply, RandomChoice, RandomOrder
from standpipe.transform.pixels.instances import ClampBoundingBoxes, SanitizeBoundingBoxes
from standpipe.transform.pixels.timm_augment import ThreeAugment, TimmRandAugment
from standpipe.transform.pixels.warps import RandomAffine, RandomPerspective, RandomRotation
from standpipe.transform.pixels.window import PadImage, RandomCrop

# timm's usual operations, without the ending of those whose strength increases with the magnitude.
TIMM_OPERATIONS = frozenset(
    [
        *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color"),
        *("Contrast", "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
    ]
)
TIMM_HPARAMS = {"translate_const", "img_mean", "magnitude_std", "magnitude_max", "interpolation"}
PACKAGES = ("torchvision", "timm")
# What to do about a class of the user's, by a part of the names that recipes give them. Its code decides what it does.
INSTEAD = {
    "blur": "if it is Pillow's ImageFilter.GaussianBlur, write sp.PillowGaussianBlur(radius) in its place, inside "
    "RandomApply if it has a probability",
    "solari": "if it is Pillow's ImageOps.solarize, write RandomSolarize(128, p) in its place",
    "fixedsizecrop": "if it is that of torchvision's references, write FixedSizeCrop(size, fill) in its place",
    "padifsmaller": "leave it out, and give RandomCrop pad_if_needed=True, which pads all sides",
}
OF_INSTANCES = ("ClampBoundingBoxes", "ConvertBoundingBoxFormat", "SanitizeBoundingBoxes")
GROUPS = ("RandomApply", "RandomChoice", "RandomOrder")
# Parts of which torchvision makes the same bytes of uint8 tensors and Pillow images.
SAME_ON_TENSORS = frozenset(
    [
        *("CenterCrop", "RandomCrop", "Pad", "RandomHorizontalFlip", "RandomVerticalFlip"),
        *("RandomZoomOut", "RandomIoUCrop"),
        *("RandomInvert", "RandomPosterize", "RandomSolarize", "RandomEqualize", "GaussianBlur"),
        *("RandomApply", "RandomChoice", "RandomOrder"),  # if each of their parts is
    ]
)


def package(part: object) -> str:
    """Return the name of the package that a part's class is from."""
    return type(part).__module__.partition(".")[0]


def check_theirs(part: object) -> None:
    """Raise ``Unlike`` for an object of another class than torchvision's and timm's; it names a native form."""
    if package(part) in PACKAGES:
        return
    name = type(part).__name__
    plain = name.lower().replace("_", "")
    same = (
        f"if torchvision's {name} does the same, write that in its place"
        if name in _ALIKE or name in _OTHER
        else ""
    )
    way_out = next((native for known, native in INSTEAD.items() if known in plain), same)
    raise Unlike(f"it isn't a class of torchvision or timm{': ' * bool(way_out)}{way_out}")


def is_compose(part: object) -> bool:
    """Return True for a ``Compose`` of torchvision or timm."""
    return type(part).__name__ == "Compose" and package(part) in PACKAGES


def flat(transforms: Any) -> Iterator[Any]:
    """Yield the parts of a composition or list, and those of compositions in it."""
    parts = list(transforms.transforms) if is_compose(transforms) else transforms
    for part in parts if isinstance(parts, list | tuple) else [transforms]:
        yield from flat(part) if is_compose(part) else (part,)


def is_same_on_tensors(part: Any) -> bool:
    """Return True if torchvision makes the same bytes of a uint8 tensor and of a Pillow image."""
    name = type(part).__name__
    return name in SAME_ON_TENSORS and (
        name not in GROUPS or all(map(is_same_on_tensors, flat(list(part.transforms))))
    )


def pixels(part: Any) -> ImageTransform:
    """Return the native form of a part that takes images and returns images. Raises ``Unlike``."""
    if isinstance(part, ImageTransform):  # standpipe's own, in place of a class of the user's
        return part
    check_theirs(part)
    name, module = type(part).__name__, type(part).__module__
    if name == "RandAugment" and module.startswith("timm."):
        return _timm_rand_augment(part)
    if name == "AutoAugment" and module.startswith("timm."):
        names = sorted(each.name for group in part.policy for each in group)
        if names == ["Desaturate", "GaussianBlurRand", "Solarize"] and len(part.policy) == 3:
            return ThreeAugment()
        raise Unlike("timm's policies other than '3a' have no native form")
    if name in _OTHER:
        return _OTHER[name](part)
    if name in _ALIKE:
        return _ALIKE[name](**arguments(part, _ALIKE[name]))
    if name in GROUPS:
        return _group(part)
    raise Unlike("it has no native form")


def _timm_rand_augment(part: Any) -> ImageTransform:
    first = part.ops[0]
    names = [each.name.removesuffix("Increasing") for each in part.ops]
    same = all(
        (each.prob, each.magnitude, each.magnitude_std, each.magnitude_max)
        == (first.prob, first.magnitude, first.magnitude_std, first.magnitude_max)
        for each in part.ops
    )
    increasing = any(each.name.endswith("Increasing") for each in part.ops)
    resample = first.kwargs.get("resample")
    fits = same and set(names) == TIMM_OPERATIONS and len(names) == len(TIMM_OPERATIONS)
    if not fits or part.choice_weights is not None or set(first.hparams) - TIMM_HPARAMS:
        raise Unlike("only timm's usual operations, each with the same probability, have a native form")
    several = isinstance(resample, tuple | list)
    kind: Any = (
        "random" if several else {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(int(resample or 0), "")
    )
    if not kind or (several and [int(each) for each in resample] != [2, 3]):
        raise Unlike("its interpolation has no native form")
    fill = fill_of(first.kwargs.get("fillcolor"))
    return TimmRandAugment(
        part.num_layers,
        first.magnitude,
        float(first.magnitude_std),
        increasing,
        first.prob,
        first.magnitude_max or 10,
        kind,
        fill or 0,
    )


def erasing(part: Any) -> ImageTransform:
    """Return the native form of a ``RandomErasing``. Raises ``Unlike``."""
    if type(part).__module__.startswith("timm."):
        if part.num_splits:
            raise Unlike("num_splits has no native form")
        low, high = part.log_aspect_ratio
        ratio, scale = (math.exp(low), math.exp(high)), (part.min_area, part.max_area)
        mode: Any = "pixel" if part.per_pixel else "rand" if part.rand_color else "const"
        return RandomErasing(
            part.probability,
            scale,
            ratio,
            0,
            mode,
            part.min_count,
            part.max_count,
        )
    value = part.value
    if isinstance(value, list | tuple):
        value = value[0] if len(value) == 1 else tuple(value)
    if not (
        value == "random" or isinstance(value, int | float) or (isinstance(value, tuple) and len(value) == 3)
    ):
        raise Unlike(f"value={part.value!r} has no native form")
    return RandomErasing(part.p, tuple(part.scale), tuple(part.ratio), value)


def _group(part: Any) -> ImageTransform:
    """Return the native form of torchvision's ``RandomApply``, ``RandomChoice`` or ``RandomOrder``."""
    if type(part).__name__ == "RandomApply":
        steps = [_member(each) for each in flat(list(part.transforms))]
        if all(isinstance(each, GeometricTransform) for each in steps):
            return RandomApply(steps, part.p)
    made = [_joined(each) for each in part.transforms]
    match type(part).__name__:
        case "RandomApply":
            return RandomApply(made, part.p)
        case "RandomChoice":
            return RandomChoice(made, None if part.p is None else list(part.p))
        case _:
            return RandomOrder(made)


def _member(part: Any) -> ImageTransform:
    try:
        return pixels(part)
    except Unlike as error:
        raise Unlike(f"{type(part).__name__} in it: {error}") from None


def selected(part: Any) -> list[ImageTransform]:
    """Return the native form of a ``RandomChoice`` of parts, and of the same ones after others; [] for all else.

    DETR's recipe has such a choice. Raises ``Unlike``.
    """
    if type(part).__name__ != "RandomChoice" or len(part.transforms) != 2:
        return []
    weights = part.p or (1.0, 1.0)
    ways = [
        ([_member(each) for each in flat(way)], p) for way, p in zip(part.transforms, weights, strict=True)
    ]
    (plain, _), (longer, p) = sorted(ways, key=lambda way: len(way[0]))
    before = longer[: len(longer) - len(plain)]
    fits = before + plain == longer and all(isinstance(each, GeometricTransform) for each in before)
    return [RandomApply(before, p / sum(weights)), *plain] if before and fits else []


def _joined(part: Any) -> PixelTransform:
    """Return the native form of a part of a group; a composition is one part of it."""
    made = []
    for each in flat(part):
        name = type(each).__name__
        native = _member(each)
        if not isinstance(native, PixelTransform):
            raise Unlike(
                f"{name} in it is only native outside a group, or in a RandomApply of crops, resizes and flips"
            )
        made.append(native)
    return made[0] if len(made) == 1 else RandomApply(made, 1.0)


def _blur(part: Any) -> ImageTransform:
    if len(set(part.kernel_size)) != 1:
        raise Unlike("only a square kernel has a native form")
    return GaussianBlur(**arguments(part, GaussianBlur, kernel_size=part.kernel_size[0]))


def _crop(part: Any) -> ImageTransform:
    how = part.interpolation  # a tuple of two for timm's interpolation="random"
    several = isinstance(how, tuple | list) and [each.value for each in how] == ["bilinear", "bicubic"]
    drawn = {"interpolation": "random"} if several else {}
    return RandomResizedCrop(**arguments(part, RandomResizedCrop, **drawn))


def _window(part: Any) -> ImageTransform:
    padding = part.padding
    if type(part).__module__.startswith("torchvision.transforms.v2") and padding is not None:
        left, right, top, bottom = padding  # the order in which v2 keeps them
        padding = (left, top, right, bottom)
    return RandomCrop(**arguments(part, RandomCrop, padding=padding))


def instances(part: Any) -> list[ImageTransform]:
    """Return the native form of a part that changes only boxes. Raises ``Unlike``."""
    match type(part).__name__:
        case "ClampBoundingBoxes":
            return [ClampBoundingBoxes()]
        case "ConvertBoundingBoxFormat":
            if getattr(part.format, "value", part.format) != "XYXY":
                raise Unlike("boxes of a batch are XYXY: convert them in your loop")
            return []
        case _:
            if part.labels_getter is None:
                raise Unlike("labels_getter=None would leave the labels of dropped boxes")
            return [SanitizeBoundingBoxes(float(part.min_size), float(part.min_area))]


# Classes whose parameters have torchvision's names.
_ALIKE: dict[str, type[ImageTransform]] = {
    "Pad": PadImage,
    **{
        each.__name__: each
        for each in (
            *(Resize, RandomResize, ScaleJitter, RandomShortestSize, RandomZoomOut, CenterCrop),
            *(RandomHorizontalFlip, RandomVerticalFlip, RandomRotation, RandomAffine, RandomPerspective),
            *(ColorJitter, RandomPhotometricDistort, Grayscale, RandomGrayscale, RandomInvert),
            *(RandomPosterize, RandomSolarize, RandomAutocontrast, RandomEqualize, RandomAdjustSharpness),
            *(RandAugment, TrivialAugmentWide, AutoAugment, AugMix),
        )
    },
}
_OTHER: dict[str, Callable[[Any], ImageTransform]] = {
    "RandomResizedCrop": _crop,
    "RandomResizedCropAndInterpolation": _crop,
    "GaussianBlur": _blur,
    "RandomCrop": _window,
    "RandomIoUCrop": lambda part: RandomIoUCrop(
        **arguments(part, RandomIoUCrop, sampler_options=part.options)
    ),
}
