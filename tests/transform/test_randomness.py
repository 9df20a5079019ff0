"""Which transforms are known to draw, against those that are installed."""

import functools
import inspect
import re
from typing import Any

import albumentations
import numpy as np
import pytest
from torch import nn

import standpipe as sp
from standpipe.transform.python.randomness import ALBUMENTATIONS, TORCHVISION, first_random, what_draws
from torchvision_cpu import torchvision

v1, v2 = torchvision.transforms, torchvision.transforms.v2
IMAGE = np.random.default_rng(3).integers(0, 256, (40, 50, 3), np.uint8)
# In the source of torchvision's classes, and of what those of version 2 share; functions that draw for two of them.
DRAWS = re.compile(
    r"torch\.rand|torch\.multinomial|torch\.distributions|uniform_\(|\.normal_\(|random\.(choices|shuffle)"
)
BY_FUNCTIONS = {"GaussianNoise", "MixUp"}
ONE_OF_FIVE = {"FiveCrop"}  # says torch.randn in the example of its docstring


def of(*transforms: Any) -> tuple[Any, ...]:
    return sp.Pipeline(sp.Arrays(image=IMAGE[None])).map(*transforms).transforms


def drawn(transform: Any) -> str | None:
    return what_draws(of(transform)[0])


def plain(image: Any) -> Any:
    return image


def with_rng(image: Any, rng: np.random.Generator) -> Any:
    return image


class Flips(v2.RandomHorizontalFlip):  # type: ignore[misc]
    """Somebody's own."""


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomResizedCrop(8), "RandomResizedCrop(size=8"),
        (sp.RandomHorizontalFlip(), "RandomHorizontalFlip(p=0.5)"),
        (with_rng, "with_rng, which takes rng"),
        (functools.partial(with_rng), "which takes rng"),
        (v1.RandomCrop(8), "RandomCrop of torchvision"),
        (v2.ColorJitter(0.5), "ColorJitter of torchvision"),
        (Flips(), "Flips of "),
        (v1.Compose([v1.Resize(8), v1.RandomCrop(8)]), "RandomCrop of torchvision, in Compose"),
        (v2.Compose([v2.Compose([v2.RandomErasing()])]), "RandomErasing of torchvision, in Compose"),
        (nn.Sequential(v1.Resize(8), v1.RandomCrop(8)), "RandomCrop of torchvision, in Sequential"),
        (v2.RandomApply([v2.Resize(8)]), "RandomApply of torchvision"),
        (functools.partial(v2.RandomCrop(8)), "RandomCrop of torchvision, in partial"),
        (albumentations.Resize(8, 8, p=0.9), "Resize of albumentations"),
        (albumentations.RandomCrop(8, 8, p=1), "RandomCrop of albumentations"),
        (albumentations.PadIfNeeded(8, 8, position="random"), "PadIfNeeded of albumentations"),
        (albumentations.SmallestMaxSize([8, 9]), "SmallestMaxSize of albumentations"),
        (albumentations.OneOf([albumentations.Resize(8, 8)], p=1), "OneOf of albumentations"),
        (albumentations.Compose([albumentations.Resize(8, 8)], p=0.5), "Compose of albumentations"),
        (
            albumentations.Compose([albumentations.HorizontalFlip()]),
            "HorizontalFlip of albumentations, in Compose",
        ),
    ],
)
def test_what_draws_is_named(transform: Any, says: str) -> None:
    assert says in (drawn(transform) or "nothing")


@pytest.mark.parametrize(
    "transform",
    [
        sp.Resize(8),
        sp.CenterCrop(8),
        sp.RandomHorizontalFlip(p=0),
        sp.RandomHorizontalFlip(p=1),
        plain,
        v1.Compose([v1.Resize(8), v1.CenterCrop(8), v1.ToTensor()]),
        v2.Compose([v2.Resize(8), v2.CenterCrop(8)]),
        nn.Sequential(v1.Resize(8)),
        albumentations.Compose([albumentations.Resize(8, 8), albumentations.Normalize()]),
        albumentations.Sequential([albumentations.HorizontalFlip(p=1)], p=1),
    ],
)
def test_what_draws_nothing_is_let_pass(transform: Any) -> None:
    assert drawn(transform) is None


def test_the_first_one_is_found() -> None:
    transforms = of(sp.Resize(8), plain, v2.RandomCrop(8), sp.RandomHorizontalFlip())
    assert first_random(transforms) is transforms[2]
    assert first_random(transforms[:2]) is None


def classes_of(module: Any) -> list[type]:
    found = [value for value in vars(module).values() if inspect.isclass(value)]
    return [value for value in found if value.__module__.startswith("torchvision.transforms")]


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_torchvisions_random_classes_are_all_known(module: Any) -> None:
    for kind in classes_of(module):
        sources = [
            inspect.getsource(each) for each in kind.__mro__ if each.__module__.startswith("torchvision")
        ]
        draws = any(DRAWS.search(source) for source in sources) or kind.__name__ in BY_FUNCTIONS
        draws = draws and kind.__name__ not in ONE_OF_FIVE
        known = kind.__name__.startswith("Random") or kind.__name__ in TORCHVISION
        assert known == draws or kind.__name__ == "UniformTemporalSubsample", kind


def test_torchvisions_classes_that_are_known_are_there() -> None:
    assert {kind.__name__ for kind in classes_of(v2)} >= TORCHVISION


ARGUMENTS: dict[str, dict[str, Any]] = {
    "CenterCrop": {"height": 8, "width": 8},
    "CenterCrop3D": {"size": (1, 8, 8)},
    "Crop": {"x_max": 8, "y_max": 8},
    "LongestMaxSize": {"max_size": 8},
    "Pad": {"padding": 3},
    "Pad3D": {"padding": 3},
    "PadIfNeeded": {"min_height": 60, "min_width": 60},
    "PadIfNeeded3D": {"min_zyx": (3, 60, 60)},
    "Resize": {"height": 8, "width": 8},
    "SmallestMaxSize": {"max_size": 8},
}


@pytest.mark.parametrize("name", sorted(ALBUMENTATIONS))
def test_albumentations_that_draw_nothing_give_one_result(name: str) -> None:
    kind = getattr(albumentations, name)
    transform = kind(**ARGUMENTS.get(name, {}), p=1)
    assert drawn(transform) is None
    value = np.stack([IMAGE] * 2) if "3D" in name else IMAGE[..., :1] if name == "ToRGB" else IMAGE
    value = value.astype(np.float32) / 255 if name == "FromFloat" else value
    results = []
    for seed in range(8):
        transform.set_random_seed(seed)
        (result,) = transform(**{"volume" if "3D" in name else "image": value}).values()
        results.append(np.asarray(result))
    assert all(np.array_equal(result, results[0]) for result in results)
