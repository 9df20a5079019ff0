"""Find random transforms by their class and parameters, without calling them.

The following transforms count as random:

- standpipe's random transforms, except with ``p=0`` or ``p=1``, where the result is certain; and any of its transforms
  with a ``Schedule`` or ``PerStep``, whose result depends on the epoch or step.
- Functions with a parameter named ``rng``.
- torchvision's classes whose names begin with ``Random``, and those in ``TORCHVISION``, whatever their
  parameters.
- albumentations' transforms with ``p`` below 1, those that aren't in ``ALBUMENTATIONS``, and those in it with
  a parameter that is chosen at random.

Parts of ``Compose``, ``Sequential`` and similar containers are examined one by one. Other callables are
unknown: only a call shows if they use the global generators.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from standpipe.contracts import Transform
from standpipe.transform.image import ImageTransform
from standpipe.transform.python.function import Function, callable_name
from standpipe.transform.python.schedule import is_scheduled

# torchvision's random classes whose names don't begin with Random.
TORCHVISION = frozenset(
    [
        *("AugMix", "AutoAugment", "ColorJitter", "CutMix", "ElasticTransform", "GaussianBlur"),
        *("GaussianNoise", "JPEG", "MixUp", "RandAugment", "ScaleJitter", "TrivialAugmentWide"),
    ]
)
# albumentations' classes that aren't random if p is 1. All others are, or may be.
ALBUMENTATIONS = frozenset(
    [
        "CenterCrop",
        "CenterCrop3D",
        "Crop",
        "Equalize",
        "FromFloat",
        "HorizontalFlip",
        "InvertImg",
        "LongestMaxSize",
        "NoOp",
        "Normalize",
        "Pad",
        "Pad3D",
        "PadIfNeeded",
        "PadIfNeeded3D",
        "Resize",
        "SmallestMaxSize",
        "ToFloat",
        "ToGray",
        "ToRGB",
        "ToSepia",
        "ToTensor3D",
        "ToTensorV2",
        "Transpose",
        "VerticalFlip",
    ]
)
_ALBUMENTATIONS = ("albumentations", "albumentationsx")  # packages
_IN_TURN = ("Compose", "ReplayCompose", "Sequential")  # albumentations' containers that apply every part
_POSITIONS = ("position", "pad_position")  # parameters for a padding's position; "random" is a value of both


def first_random(transforms: Sequence[Transform]) -> Transform | None:
    """Return the first transform that is known to be random; None if there is none."""
    return next((transform for transform in transforms if what_draws(transform) is not None), None)


def what_draws(transform: Transform) -> str | None:
    """Return a description of the first part of a transform that is known to be random; None if there is none.

    Parts are the members of containers such as ``Compose``, and the transform itself.
    """
    match transform:
        case ImageTransform():
            return transform.describe() if is_scheduled(transform) or transform.is_random else None
        case Function(takes_rng="numpy" | "torch"):
            return f"{callable_name(transform.fn)}, which takes rng"
        case Function():
            return next((_shown(part, transform.fn) for part in _inside(transform.fn) if draws(part)), None)
    return None


def draws(part: object) -> bool:
    """Return True if an object is a random transform of torchvision or albumentations.

    Only the object itself counts, and not the transforms that it contains.
    """
    for kind in type(part).__mro__:
        package, _, rest = kind.__module__.partition(".")
        if package == "torchvision" and rest.startswith("transforms"):
            name = kind.__name__.lstrip("_")
            if name.startswith("Random") or name in TORCHVISION:
                return True
    return is_albumentations(part) and _albumentation_draws(part)


def is_albumentations(value: object) -> bool:
    """Return True if ``value`` is a transform or container of albumentations, also of a class derived from these."""
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(value).__mro__}
    return any(
        f"{package}.{name}" in names
        for package in _ALBUMENTATIONS
        for name in ("BasicTransform", "BaseCompose")
    )


def _albumentation_draws(part: Any) -> bool:
    if part.p < 1:
        return True
    if type(part).__name__ in _IN_TURN:
        return False
    theirs = type(part).__module__.partition(".")[0] in _ALBUMENTATIONS
    several = isinstance(getattr(part, "max_size", None), Sequence)  # one of them is chosen at random
    anywhere = any(str(getattr(part, name, "")).endswith("random") for name in _POSITIONS)
    return not theirs or type(part).__name__ not in ALBUMENTATIONS or several or anywhere


def _inside(fn: Any, seen: frozenset[int] = frozenset()) -> Iterator[object]:
    """Yield a callable, then all callables inside it: of partials, bound methods, ``Compose`` and torch modules.

    seen  ids of the callables that contain ``fn``, so that a cycle ends
    """
    if id(fn) in seen:
        return
    yield fn
    parts: list[Any] = [fn.func] if isinstance(fn, functools.partial) else []
    if (owner := getattr(fn, "__self__", None)) is not None:
        parts.append(owner)
    transforms = getattr(fn, "transforms", None)
    if isinstance(transforms, list | tuple):
        parts += transforms
    # Children of a torch.nn.Module.
    if callable(children := getattr(fn, "children", None)) and hasattr(type(fn), "named_parameters"):
        parts += children()
    for part in parts:
        yield from _inside(part, seen | {id(fn)})


def _shown(part: object, whole: object) -> str:
    name = f"{type(part).__name__} of {type(part).__module__.partition('.')[0]}"
    return name if part is whole else f"{name}, in {type(whole).__name__}"
