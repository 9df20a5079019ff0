"""Compositions of torchvision and timm as native transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from reference import delivered
from standpipe.transform.converted import composition

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

pytest.importorskip("timm")
import timm.data  # isort: skip  # it imports torchvision

V1, V2 = torchvision.transforms, torchvision.transforms.v2
BILINEAR = V1.InterpolationMode.BILINEAR
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POLICIES = ("RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix")


def ending(module: Any) -> list[Any]:
    to_float = (
        module.ToDtype(torch.float, scale=True) if module is V2 else module.ConvertImageDtype(torch.float)
    )
    return [module.PILToTensor(), to_float, module.Normalize(MEAN, STD)]


def training(module: Any, policy: str | None) -> Any:
    """The training preset of torchvision's classification references, for Pillow images."""
    parts = [module.RandomResizedCrop(32, interpolation=BILINEAR), module.RandomHorizontalFlip(0.5)]
    if policy is not None:
        parts.append(getattr(module, policy)(interpolation=BILINEAR))
    return module.Compose([*parts, *ending(module), module.RandomErasing(0.1)])


@pytest.mark.parametrize("policy", [None, *POLICIES])
@pytest.mark.parametrize("module", [V1, V2], ids=["v1", "v2"])
def test_torchvisions_training_presets_are_native(module: Any, policy: str | None) -> None:
    converted = sp.from_torchvision(training(module, policy))
    assert not converted.python
    assert all(line.endswith(": native") for line in str(converted).splitlines())
    names = [type(each).__name__ for each in converted.native]
    middle = [] if policy is None else [policy]
    assert names == ["RandomResizedCrop", "RandomHorizontalFlip", *middle, "Normalize", "RandomErasing"]
    assert getattr(converted.native[2], "interpolation", "bilinear") == "bilinear"


@pytest.mark.parametrize(("module", "away"), [(V1, 0.0), (V2, 1e-6)], ids=["v1", "v2"])
def test_evaluation_gives_torchvisions_numbers(module: Any, away: float) -> None:
    preset = module.Compose([module.Resize(40, BILINEAR), module.CenterCrop(32), *ending(module)])
    converted = sp.from_torchvision(preset)
    images = np.random.default_rng(3).integers(0, 256, (4, 50, 61, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(*converted)
    for image, row in zip(images, delivered(pipeline.batch(4)), strict=True):
        wanted = preset(Image.fromarray(image)).numpy()
        assert np.abs(wanted - row).max() <= away


@pytest.mark.parametrize(
    ("how", "native"),
    [
        (
            {
                "auto_augment": "rand-m9-mstd0.5-inc1",
                "re_prob": 0.25,
                "re_mode": "pixel",
                "interpolation": "bicubic",
            },
            ["RandomResizedCrop", "RandomHorizontalFlip", "TimmRandAugment", "Normalize", "RandomErasing"],
        ),
        (
            {
                "auto_augment": "rand-m9-mstd0.5-inc1",
                "re_prob": 0.25,
                "re_mode": "pixel",
                "interpolation": "random",
            },
            ["RandomResizedCrop", "RandomHorizontalFlip", "TimmRandAugment", "Normalize", "RandomErasing"],
        ),
        (
            {"interpolation": "random"},
            ["RandomResizedCrop", "RandomHorizontalFlip", "ColorJitter", "Normalize"],
        ),
        (
            {"auto_augment": "3a", "color_jitter": 0.3, "interpolation": "bilinear"},
            ["RandomResizedCrop", "RandomHorizontalFlip", "ThreeAugment", "ColorJitter", "Normalize"],
        ),
    ],
    ids=["rand", "rand, random filters", "random filter", "3a"],
)
def test_timms_recipes_are_native(how: dict[str, Any], native: list[str]) -> None:
    converted = sp.from_timm(timm.data.create_transform(32, is_training=True, **how))
    assert not converted.python
    assert all(line.endswith(": native") for line in str(converted).splitlines())
    assert [type(each).__name__ for each in converted.native] == native
    for each in converted.native:
        if isinstance(each, sp.RandomResizedCrop | sp.TimmRandAugment):
            assert each.interpolation == how["interpolation"]


@pytest.mark.parametrize(
    ("policy", "most"), [("rand-m15-mmax20", 20), ("rand-m9", 10), ("rand-m9-mmax0", 10)]
)
def test_timms_largest_magnitude_is_converted(policy: str, most: float) -> None:
    converted = sp.from_timm(timm.data.create_transform(32, is_training=True, auto_augment=policy))
    assert not converted.python
    (policies,) = [each for each in converted.native if isinstance(each, sp.TimmRandAugment)]
    assert policies.magnitude_max == most


def test_parameters_are_those_of_the_parts() -> None:
    parts = [
        V2.RandomCrop(32, padding=(1, 2, 3, 4), fill=7, padding_mode="reflect"),
        V1.Pad((1, 2), fill=(1, 2, 3)),
        V2.RandomRotation(10, fill=5),
        V1.RandomAffine(3, translate=(0.1, 0.2), shear=4, interpolation=BILINEAR),
        V2.RandomPerspective(0.3, p=0.4),
        V1.RandomSolarize(100, p=0.1),
    ]
    assert sp.from_torchvision(parts).native == (
        sp.RandomCrop((32, 32), (1, 2, 3, 4), fill=7, padding_mode="reflect"),
        sp.PadImage((1, 2), fill=(1, 2, 3)),
        sp.RandomRotation((-10.0, 10.0), fill=5),
        sp.RandomAffine((-3.0, 3.0), (0.1, 0.2), shear=(-4.0, 4.0), interpolation="bilinear"),
        sp.RandomPerspective(0.3, 0.4),
        sp.RandomSolarize(100, 0.1),
    )


def test_what_has_no_equal_form_stays_python_with_all_that_follows() -> None:
    converted = sp.from_torchvision(
        V1.Compose([V1.CenterCrop(32), V1.ElasticTransform(), V1.RandomHorizontalFlip()])
    )
    assert converted.native == (sp.CenterCrop((32, 32)),)
    assert str(converted).splitlines() == [
        "CenterCrop: native",
        "ElasticTransform: Python (it has no native form)",
        "RandomHorizontalFlip: Python",
    ]
    late = sp.from_torchvision([V1.CenterCrop(32), V1.PILToTensor(), V1.RandomAutocontrast()])
    assert str(late).splitlines() == [
        "CenterCrop: native",
        "PILToTensor: Python",
        "RandomAutocontrast: Python (tensors have other pixels than Pillow images here. "
        'tensors="as_pillow" takes Pillow\'s)',
    ]
    (rest,) = converted.python
    images = np.random.default_rng(3).integers(0, 256, (2, 40, 40, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(*converted).batch(2)
    with pipeline.loader(executor="inline") as loader:
        assert next(iter(loader))["image"].shape == (2, 32, 32, 3)
    assert isinstance(rest, V1.Compose)


@pytest.mark.parametrize(
    "part",
    [
        V1.Resize(32, V1.InterpolationMode.NEAREST_EXACT),
        V1.RandomRotation(10, expand=True),
        V1.RandomRotation(10, interpolation=V1.InterpolationMode.BICUBIC),
        V1.GaussianBlur((3, 5)),
        V2.ToDtype(torch.float16, scale=True),
        V2.Resize(None, max_size=40),
        V2.RandomPosterize(9),
    ],
    ids=lambda part: type(part).__name__,
)
def test_other_parameters_stay_python(part: Any) -> None:
    assert not sp.from_torchvision([part]).native


def test_other_random_filters_of_timm_stay_python() -> None:
    crop = timm.data.transforms.RandomResizedCropAndInterpolation(32, interpolation="random")
    crop.interpolation = crop.interpolation[::-1] * 2
    assert str(sp.from_timm([crop])).startswith("RandomResizedCropAndInterpolation: Python (interpolation=")


def test_classes_and_presets_that_were_not_called_are_named() -> None:
    for given in (
        V2.CenterCrop,
        [V2.RandomInvert(), V2.CenterCrop],
        V2.Compose([V2.RandomInvert(), V2.CenterCrop]),
    ):
        with pytest.raises(
            sp.PlanError, match=r"^from_torchvision: CenterCrop is a class, write CenterCrop\(…\)$"
        ):
            sp.from_torchvision(given)
    with pytest.raises(sp.PlanError, match=r"; call it first, as weights\.transforms\(\)$"):
        sp.from_torchvision(torchvision.models.ResNet18_Weights.DEFAULT.transforms)


@pytest.mark.parametrize("given", ["a string", [print], 3])
def test_what_is_no_composition_is_refused(given: Any) -> None:
    with pytest.raises(sp.PlanError, match="takes a Compose or list of transforms"):
        composition.from_timm(given)


def test_a_preset_object_is_refused_with_a_hint() -> None:
    class Preset:
        transforms = V1.Compose([V1.CenterCrop(8)])

    with pytest.raises(sp.PlanError, match="give it the Compose, its attribute transforms"):
        sp.from_torchvision(Preset())


@pytest.mark.parametrize("name", ["ToTensor", "ToNumpy"])
def test_timms_own_tensors_have_values_up_to_255(name: str) -> None:
    preset = V1.Compose([V1.CenterCrop(32), getattr(timm.data.transforms, name)()])
    converted = sp.from_timm(preset)
    assert not converted.python
    images = np.random.default_rng(3).integers(0, 256, (2, 50, 61, 3), np.uint8)
    rows = delivered(sp.Pipeline(sp.Arrays(image=images)).map(*converted).batch(2))
    for image, row in zip(images, rows, strict=True):
        wanted = np.asarray(preset(Image.fromarray(image)))
        assert wanted.dtype == row.dtype
        assert np.array_equal(wanted, row)
