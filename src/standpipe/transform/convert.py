"""Convert compositions of torchvision and timm into native transforms, as far as those give the same pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from standpipe.errors import PlanError
from standpipe.transform.auto_augment import INTERPOLATIONS, AutoAugment, RandAugment, TrivialAugmentWide
from standpipe.transform.color import (
    ColorJitter,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from standpipe.transform.element import Normalize, ToDtype, ToLayout
from standpipe.transform.erasing import RandomErasing
from standpipe.transform.geometry import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from standpipe.transform.groups import RandomApply
from standpipe.transform.image import ImageTransform
from standpipe.transform.pixels import GaussianBlur, RandomAdjustSharpness
from standpipe.transform.timm_augment import ThreeAugment, TimmRandAugment
from standpipe.transform.warps import RandomAffine, RandomPerspective, RandomRotation
from standpipe.transform.window import PadImage, RandomCrop

FILTERS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
# timm's usual operations, without the ending of those whose strength increases with the magnitude.
TIMM_OPERATIONS = frozenset(
    [
        *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color"),
        *("Contrast", "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
    ]
)
TIMM_HPARAMS = {"translate_const", "img_mean", "magnitude_std", "interpolation"}
PACKAGES = ("torchvision", "timm")
FLOATS = ("float", "normalized", "erased")  # forms of an image of floats; each may become the ones after it


class _Unlike(Exception):
    """The error that a part has no native form; its text says why."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Transforms for ``Pipeline.map``, made by ``from_torchvision`` or ``from_timm``. ``print`` shows a report.

    native  the native transforms, which come first
    python  the rest, as one callable in a tuple; empty if every part is native
    report  one line for each part of the composition
    """

    native: tuple[ImageTransform, ...]
    python: tuple[Callable[..., Any], ...]
    report: tuple[str, ...]

    def __iter__(self) -> Iterator[ImageTransform | Callable[..., Any]]:
        """Yield the transforms in order, for ``.map(*converted)``."""
        yield from self.native
        yield from self.python

    def __str__(self) -> str:
        return "\n".join(self.report)


def from_torchvision(transforms: Any) -> Converted:
    """Convert a composition of torchvision into native transforms, as far as they give the same pixels.

    Parts are converted up to the first one without an equal native form. It and all later parts stay Python, as
    one callable. Tensors are resized and augmented in another way than Pillow images, so these parts stay Python
    after ``PILToTensor`` or ``ToImage``. ``print`` shows a report with a line for each part.

    Random numbers are standpipe's own, with torchvision's distributions. Pixels are those of Pillow images, with the
    differences that each native transform documents. Numbers after ``Normalize`` are at most 1e-6 away.

    Parameters
    ----------
    transforms : torchvision.transforms.Compose, torchvision.transforms.v2.Compose, or list
        The composition, for Pillow images.

    Returns
    -------
    iterable of transforms
        For ``Pipeline.map``. Its attribute ``native`` has the native ones, and ``python`` the others.

    Raises
    ------
    PlanError
        If it isn't a composition or list.

    Examples
    --------
    >>> converted = sp.from_torchvision([])  # a torchvision.transforms.Compose
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*converted)
    >>> converted.native
    ()
    """
    return _convert(transforms, "from_torchvision")


def from_timm(transforms: Any) -> Converted:
    """Convert a transform of timm's ``create_transform`` into native transforms, as far as they give the same pixels.

    Like ``from_torchvision``, with timm's own classes: ``rand-m9-mstd0.5-inc1``, ``3a``, random erasing and
    ``interpolation="random"`` are native.

    Parameters
    ----------
    transforms : torchvision.transforms.Compose or list
        The result of ``timm.data.create_transform``.

    Returns
    -------
    iterable of transforms
        For ``Pipeline.map``. Its attribute ``native`` has the native ones, and ``python`` the others.

    Raises
    ------
    PlanError
        If it isn't a composition or list.

    Examples
    --------
    >>> converted = sp.from_timm([])  # timm.data.create_transform(224, is_training=True)
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*converted)
    >>> converted.native
    ()
    """
    return _convert(transforms, "from_timm")


def _convert(transforms: Any, asked_by: str) -> Converted:
    parts = list(_flat(transforms))
    if parts and not any(map(is_theirs, parts)):
        raise PlanError(f"{asked_by} takes a composition of transforms, got {transforms!r:.80}")
    return converted(transforms, "image")


def converted(transforms: Any, start: str) -> Converted:
    """Return the native form of a composition or list.

    start  the form of the image before: ``"image"``, then ``"tensor"``, ``"float"``, ``"normalized"``, ``"erased"``
    """
    parts = list(_flat(transforms))
    native: list[ImageTransform] = []
    report: list[str] = []
    state = start
    kept, refused = 0, {}  # the reason, by the number of the part that has no native form
    pending: list[ImageTransform] = []  # of the tensor; Python parts later need these as Python too
    for number, part in enumerate(parts):
        try:
            after, made = _value(part, state)
        except _Unlike as error:
            refused[number] = f" ({error})"
            break
        (native if after == "image" else pending).extend(made)
        if after == "image":
            kept += 1
        state = after
    else:
        kept = len(parts)
        native += _ending(start, state, pending)
    for number, part in enumerate(parts):
        name = type(part).__name__
        where = "native" if number < kept else f"Python{refused.get(number, '')}"
        report.append(f"{name}: {where}")
    rest = parts[kept:]
    python = (type(transforms)(rest),) if rest and _is_compose(transforms) else tuple(rest)
    return Converted(tuple(native), python, tuple(report))


def is_theirs(part: object) -> bool:
    """Return True for an object of a class of torchvision or timm."""
    return _package(part) in PACKAGES


def _flat(transforms: Any) -> Iterator[Any]:
    """Yield the parts of a composition or list, and those of compositions in it."""
    parts = getattr(transforms, "transforms", None) if _is_compose(transforms) else transforms
    for part in parts if isinstance(parts, list | tuple) else [transforms]:
        yield from _flat(part) if _is_compose(part) else (part,)


def _is_compose(part: object) -> bool:
    return type(part).__name__ == "Compose" and _package(part) in PACKAGES


def _ending(start: str, state: str, pending: list[ImageTransform]) -> list[ImageTransform]:
    """Return the value transforms of a composition that was converted completely."""
    if state == "image":
        return []
    if state == "tensor":
        return [] if start == "tensor" else [ToLayout("NCHW")]
    if start in FLOATS or any(isinstance(each, Normalize) for each in pending):
        return pending
    return [ToDtype("float32", True), *pending]


def _value(part: Any, state: str) -> tuple[str, list[ImageTransform]]:
    """Return the form of the image after a part, and its native transforms. Raises ``_Unlike``."""
    name = type(part).__name__
    if _package(part) not in PACKAGES:
        raise _Unlike("it isn't a class of torchvision or timm")
    if name in ("PILToTensor", "ToImage", "MaybePILToTensor") and state == "image":
        return "tensor", []
    if name in ("ToTensor", "MaybeToTensor") and state == "image":
        return "float", []
    if name == "ToPureTensor" and state != "image":
        return state, []
    if name in ("ConvertImageDtype", "ToDtype") and state != "image":
        if str(part.dtype) != "torch.float32" or not (state in FLOATS or getattr(part, "scale", True)):
            raise _Unlike("only float32 from 0 to 1 has a native form")
        return "float" if state == "tensor" else state, []
    if name == "Normalize" and state in FLOATS:
        if state != "float":
            raise _Unlike("only one Normalize, before RandomErasing, has a native form")
        return "normalized", [Normalize(_three(part.mean), _three(part.std))]
    if name == "RandomErasing" and state in FLOATS:
        if state == "erased":
            raise _Unlike("only one RandomErasing has a native form")
        return "erased", [_erasing(part)]
    if state != "image":
        raise _Unlike("tensors have other pixels than Pillow images here")
    return "image", [_pixels(part)]


def _pixels(part: Any) -> ImageTransform:
    name, module = type(part).__name__, type(part).__module__
    if name in _PLAIN:
        return _PLAIN[name](part)
    if name == "RandAugment" and module.startswith("timm."):
        return _timm_rand_augment(part)
    if name == "AutoAugment" and module.startswith("timm."):
        names = sorted(each.name for group in part.policy for each in group)
        if names == ["Desaturate", "GaussianBlurRand", "Solarize"] and len(part.policy) == 3:
            return ThreeAugment()
        raise _Unlike("timm's policies other than '3a' have no native form")
    if name in ("RandAugment", "TrivialAugmentWide", "AutoAugment"):
        return _policy(part)
    if name == "RandomApply":
        return RandomApply([_pixels(each) for each in part.transforms], part.p)
    raise _Unlike("it has no native form")


def _policy(part: Any) -> ImageTransform:
    """Return the native form of one of torchvision's augmentation policies."""
    how = {"interpolation": _filter(part, INTERPOLATIONS), "fill": _fill(part.fill)}
    match type(part).__name__:
        case "RandAugment":
            return RandAugment(part.num_ops, part.magnitude, part.num_magnitude_bins, **how)
        case "AutoAugment":
            return AutoAugment(part.policy.value, **how)
        case _:
            return TrivialAugmentWide(part.num_magnitude_bins, **how)


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
        raise _Unlike("only timm's usual operations, each with the same probability, have a native form")
    several = isinstance(resample, tuple | list)
    kind: Any = (
        "random" if several else {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(int(resample or 0), "")
    )
    if not kind or (several and [int(each) for each in resample] != [2, 3]):
        raise _Unlike("its interpolation has no native form")
    maximum = 10 if first.magnitude_max is None else first.magnitude_max
    fill = _fill(first.kwargs.get("fillcolor"))
    return TimmRandAugment(
        part.num_layers,
        first.magnitude,
        float(first.magnitude_std),
        increasing,
        first.prob,
        maximum,
        kind,
        fill or 0,
    )


def _erasing(part: Any) -> ImageTransform:
    if type(part).__module__.startswith("timm."):
        if part.num_splits:
            raise _Unlike("num_splits has no native form")
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
        raise _Unlike(f"value={part.value!r} has no native form")
    return RandomErasing(part.p, tuple(part.scale), tuple(part.ratio), value)


def _blur(part: Any) -> ImageTransform:
    if len(set(part.kernel_size)) != 1:
        raise _Unlike("only a square kernel has a native form")
    return GaussianBlur(part.kernel_size[0], tuple(part.sigma))


def _size(size: Any) -> Any:
    if isinstance(size, int):
        return size
    return size[0] if len(size) == 1 else tuple(size)


def _filter(part: Any, known: Collection[str] = FILTERS) -> Any:
    value = getattr(part.interpolation, "value", part.interpolation)
    if value not in known:
        raise _Unlike(f"interpolation={value!r} has no native form")
    return value


def _fill(fill: Any) -> Any:
    if fill is None or isinstance(fill, int):
        return fill
    if isinstance(fill, tuple | list) and len(fill) == 3:
        return tuple(int(each) for each in fill)
    raise _Unlike(f"fill={fill!r} has no native form")


def _three(values: Any) -> Any:
    return tuple(float(each) for each in values)


def _range(value: Any) -> Any:
    return 0.0 if value is None else tuple(value)


def _crop(part: Any) -> ImageTransform:
    how = part.interpolation  # a tuple of two for timm's interpolation="random"
    several = isinstance(how, tuple | list) and [each.value for each in how] == ["bilinear", "bicubic"]
    drawn: Any = "random" if several else _filter(part)
    return RandomResizedCrop(_size(part.size), tuple(part.scale), tuple(part.ratio), drawn)


def _window(part: Any) -> ImageTransform:
    padding = part.padding
    if type(part).__module__.startswith("torchvision.transforms.v2") and padding is not None:
        left, right, top, bottom = padding  # the order in which v2 keeps them
        padding = (left, top, right, bottom)
    return RandomCrop(
        _size(part.size), _sides(padding), part.pad_if_needed, _fill(part.fill) or 0, part.padding_mode
    )


def _sides(padding: Any) -> Any:
    return tuple(padding) if isinstance(padding, list) else padding


def _warp(part: Any) -> dict[str, Any]:
    return {"interpolation": _filter(part, ("nearest", "bilinear")), "fill": _fill(part.fill) or 0}


def _rotation(part: Any) -> ImageTransform:
    if part.expand:
        raise _Unlike("expand=True has no native form")
    return RandomRotation(tuple(part.degrees), center=part.center, **_warp(part))


_PLAIN: dict[str, Callable[[Any], ImageTransform]] = {
    "RandomResizedCrop": _crop,
    "RandomResizedCropAndInterpolation": _crop,
    "Resize": lambda part: Resize(_size(part.size), part.max_size, _filter(part)),
    "CenterCrop": lambda part: CenterCrop(_size(part.size)),
    "RandomHorizontalFlip": lambda part: RandomHorizontalFlip(part.p),
    "RandomVerticalFlip": lambda part: RandomVerticalFlip(part.p),
    "ColorJitter": lambda part: ColorJitter(
        _range(part.brightness), _range(part.contrast), _range(part.saturation), _range(part.hue)
    ),
    "RandomGrayscale": lambda part: RandomGrayscale(part.p),
    "RandomInvert": lambda part: RandomInvert(part.p),
    "RandomPosterize": lambda part: RandomPosterize(part.bits, part.p),
    "RandomSolarize": lambda part: RandomSolarize(part.threshold, part.p),
    "RandomAutocontrast": lambda part: RandomAutocontrast(part.p),
    "RandomEqualize": lambda part: RandomEqualize(part.p),
    "RandomAdjustSharpness": lambda part: RandomAdjustSharpness(part.sharpness_factor, part.p),
    "GaussianBlur": _blur,
    "RandomCrop": _window,
    "Pad": lambda part: PadImage(_sides(part.padding), _fill(part.fill) or 0, part.padding_mode),
    "RandomRotation": _rotation,
    "RandomAffine": lambda part: RandomAffine(
        tuple(part.degrees),
        part.translate,
        part.scale,
        None if part.shear is None else tuple(part.shear),
        center=part.center,
        **_warp(part),
    ),
    "RandomPerspective": lambda part: RandomPerspective(part.distortion_scale, part.p, **_warp(part)),
}


def _package(part: object) -> str:
    return type(part).__module__.partition(".")[0]
