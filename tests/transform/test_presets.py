"""Presets of torchvision's weights and references, groups, and parts after tensors, as native transforms."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from reference import delivered

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

V1, V2 = torchvision.transforms, torchvision.transforms.v2
BILINEAR = V1.InterpolationMode.BILINEAR
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = np.random.default_rng(5).integers(0, 256, (6, 50, 61, 3), np.uint8)
VERSIONS = pytest.mark.parametrize("module", [V1, V2], ids=["v1", "v2"])


def floats(module: Any, dtype: Any = torch.float) -> list[Any]:
    """Floats, normalised, as the references make them."""
    to_float = module.ToDtype(dtype, scale=True) if module is V2 else module.ConvertImageDtype(torch.float)
    return [to_float, module.Normalize(MEAN, STD)]


def classification(module: Any, backend: str, policy: str | None, erase: float) -> Any:
    """The training preset of torchvision's references for classification."""
    policies = {
        "ra": lambda: module.RandAugment(interpolation=BILINEAR, magnitude=9),
        "ta_wide": lambda: module.TrivialAugmentWide(interpolation=BILINEAR),
        "imagenet": lambda: module.AutoAugment(V1.AutoAugmentPolicy("imagenet"), interpolation=BILINEAR),
    }
    crops = [
        module.RandomResizedCrop(32, interpolation=BILINEAR, antialias=True),
        module.RandomHorizontalFlip(0.5),
    ]
    policy_parts = [] if policy is None else [policies[policy]()]
    tensor = [module.PILToTensor()]
    parts = [*crops, *policy_parts, *tensor] if backend == "pil" else [*tensor, *crops, *policy_parts]
    erasing = [module.RandomErasing(erase)] if erase else []
    return module.Compose([*parts, *floats(module), *erasing, *[V2.ToPureTensor()] * (module is V2)])


def names(converted: Any) -> list[str]:
    return [type(each).__name__ for each in converted.native]


@VERSIONS
@pytest.mark.parametrize(("policy", "erase"), list(product([None, "ra", "ta_wide", "imagenet"], [0.0, 0.1])))
def test_the_references_training_is_native_for_pillow_images(
    module: Any, policy: str | None, erase: float
) -> None:
    preset = classification(module, "pil", policy, erase)
    converted = sp.from_torchvision(preset)
    assert not converted.python
    middle = {"ra": ["RandAugment"], "ta_wide": ["TrivialAugmentWide"], "imagenet": ["AutoAugment"]}
    ending = ["Normalize", *["RandomErasing"] * (erase > 0)]
    assert names(converted) == [
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        *middle.get(str(policy), []),
        *ending,
    ]
    auto = sp.Pipeline(sp.Arrays(image=IMAGES)).map(preset, native="auto")
    assert auto.transforms == converted.native
    assert np.shape(delivered(auto.batch(6))) == (6, 3, 32, 32)


@VERSIONS
def test_the_references_training_stays_python_for_tensors_and_says_why(module: Any) -> None:
    converted = sp.from_torchvision(classification(module, "tensor", "ra", 0.1))
    assert not converted.native
    assert converted.report[:2] == (
        "PILToTensor: Python",
        "RandomResizedCrop: Python (tensors have other pixels than Pillow images here: on photos, 2 levels of 255 "
        'apart at most with bilinear and 23 with bicubic. tensors="as_pillow" takes Pillow\'s)',
    )


@VERSIONS
@pytest.mark.parametrize("backend", ["pil", "tensor"])
def test_the_references_evaluation(module: Any, backend: str) -> None:
    crops, tensor = [module.Resize(40, BILINEAR), module.CenterCrop(32)], [module.PILToTensor()]
    parts = [*crops, *tensor] if backend == "pil" else [*tensor, *crops]
    converted = sp.from_torchvision(module.Compose([*parts, *floats(module)]))
    assert names(converted) == (["Resize", "CenterCrop", "Normalize"] if backend == "pil" else [])
    assert bool(converted.python) == (backend == "tensor")


@pytest.mark.parametrize("backend", ["pil", "tensor", "tv_tensor"])
def test_the_references_segmentation(backend: str) -> None:
    class PadIfSmaller(V2.Transform):  # type: ignore[misc, name-defined]
        """The references' own class; it pads the right and the bottom."""

    mask = torchvision.tv_tensors.Mask
    fill = {mask: 255, "others": 0}
    image = torchvision.tv_tensors.Image if backend == "tv_tensor" else torch.Tensor
    dtype = {image: torch.float32, mask: torch.int64, "others": None}
    tensor = {"pil": [], "tensor": [V2.PILToTensor()], "tv_tensor": [V2.ToImage()]}[backend]
    late = [V2.PILToTensor()] if backend == "pil" else []
    ending = [*late, *floats(V2, dtype), V2.ToPureTensor()]
    start = [*tensor, V2.RandomResize(20, 80), V2.RandomHorizontalFlip(0.5)]
    theirs = sp.from_torchvision(V2.Compose([*start, PadIfSmaller(), V2.RandomCrop(32), *ending]))
    padded = [V2.RandomCrop(32, pad_if_needed=True, fill=fill)]
    whole = sp.from_torchvision(V2.Compose([*start, *padded, *ending]))
    evaluation = sp.from_torchvision(V2.Compose([*tensor, V2.Resize((40, 40)), *ending]))
    if backend != "pil":
        assert not theirs.native
        assert not whole.native
        assert not evaluation.native
        assert evaluation.report[1].startswith(
            "Resize: Python (tensors have other pixels than Pillow images here"
        )
        return
    assert names(theirs) == ["RandomResize", "RandomHorizontalFlip"]
    assert theirs.report[2] == (
        "PadIfSmaller: Python (it isn't a class of torchvision or timm: leave it out, and give RandomCrop "
        "pad_if_needed=True, which pads all sides)"
    )
    assert whole.native == (
        sp.RandomResize(20, 80),
        sp.RandomHorizontalFlip(0.5),
        sp.RandomCrop((32, 32), pad_if_needed=True),
        sp.Normalize(MEAN, STD),
    )
    assert names(evaluation) == ["Resize", "Normalize"]


LENGTHS = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
LEVELS = (123.0, 117.0, 104.0)
DETECTION: dict[str, tuple[list[Any], list[Any]]] = {
    "hflip": ([], []),
    "lsj": (
        # FixedSizeCrop is a class of the references: standpipe's stands in its place.
        [V2.ScaleJitter((1024, 1024), antialias=True), sp.FixedSizeCrop((1024, 1024), (123, 117, 104))],
        [sp.ScaleJitter((1024, 1024)), sp.FixedSizeCrop((1024, 1024), (123, 117, 104))],
    ),
    "multiscale": ([V2.RandomShortestSize(LENGTHS, 1333)], [sp.RandomShortestSize(LENGTHS, 1333)]),
    "ssd": (
        [V2.RandomPhotometricDistort(), V2.RandomZoomOut(fill=list(LEVELS)), V2.RandomIoUCrop()],
        [sp.RandomPhotometricDistort(), sp.RandomZoomOut((123, 117, 104)), "crop"],
    ),
    "ssdlite": ([V2.RandomIoUCrop()], ["crop"]),
}


@pytest.mark.parametrize("backend", ["pil", "tv_tensor"])
@pytest.mark.parametrize("preset", DETECTION)
def test_the_references_detection(preset: str, backend: str) -> None:
    theirs, ours = DETECTION[preset]
    crop = sp.RandomIoUCrop(sampler_options=(0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
    tensor = [V2.ToImage()]
    composition = [
        *(tensor if backend == "tv_tensor" else []),
        *theirs,
        V2.RandomHorizontalFlip(p=0.5),
        *(tensor if backend == "pil" else []),
        V2.ToDtype(torch.float, scale=True),
        V2.ConvertBoundingBoxFormat(torchvision.tv_tensors.BoundingBoxFormat.XYXY),
        V2.SanitizeBoundingBoxes(),
        V2.ToPureTensor(),
    ]
    converted = sp.from_torchvision(composition, tensors="as_pillow")
    assert not converted.python, str(converted)
    *moved, values, sanitized = converted.native
    assert moved == [crop if each == "crop" else each for each in [*ours, sp.RandomHorizontalFlip(0.5)]]
    assert {values, sanitized} == {sp.ToDtype("float32", scale=True), sp.SanitizeBoundingBoxes()}


def test_another_class_for_a_fixed_size_says_what_to_write() -> None:
    class FixedSizeCrop:
        """The references' own class."""

    converted = sp.from_torchvision([V2.ScaleJitter((64, 64)), FixedSizeCrop()])
    assert converted.native == (sp.ScaleJitter((64, 64)),)
    assert "write FixedSizeCrop(size, fill) in its place" in converted.report[1]


def test_the_default_of_a_defaultdict_is_no_fill() -> None:
    """The references write it so, and torchvision makes the canvas black."""
    mask = torchvision.tv_tensors.Mask
    zoom = V2.RandomZoomOut(fill=defaultdict(lambda: LEVELS, {mask: 0}), p=1.0)
    white = Image.new("RGB", (8, 8), "white")
    assert {0, 255} >= set(np.unique(zoom(white)))
    assert sp.from_torchvision([zoom]).native == (sp.RandomZoomOut(0, p=1.0, mask_fill=0),)


WEIGHTS = [
    torchvision.models.ResNet50_Weights.IMAGENET1K_V2,
    torchvision.models.EfficientNet_V2_S_Weights.DEFAULT,
    torchvision.models.ViT_H_14_Weights.IMAGENET1K_SWAG_E2E_V1,
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_the_preset_of_weights_gives_torchvisions_numbers(weights: Any) -> None:
    preset = weights.transforms()
    converted = sp.from_torchvision(preset)
    assert str(converted) == "ImageClassification: native"
    for native in (converted, (preset,)):
        rows = delivered(
            sp.Pipeline(sp.Arrays(image=IMAGES[:2])).map(*native, **_auto(native, preset)).batch(2)
        )
        for image, row in zip(IMAGES, rows, strict=False):
            assert np.array_equal(preset(Image.fromarray(image)).numpy(), row)


def _auto(native: Any, preset: Any) -> dict[str, str]:
    return {"native": "auto"} if native == (preset,) else {}


def test_other_presets_of_weights() -> None:
    models = torchvision.models
    segmentation = models.segmentation.FCN_ResNet50_Weights.DEFAULT.transforms()
    assert sp.from_torchvision(segmentation).native == (sp.Resize(520), sp.Normalize(MEAN, STD))
    detection = models.detection.FasterRCNN_ResNet50_FPN_Weights.DEFAULT.transforms()
    assert sp.from_torchvision(detection).native == (sp.ToDtype("float32", True),)
    video = models.video.R3D_18_Weights.DEFAULT.transforms()
    assert str(sp.from_torchvision(video)) == "VideoClassification: Python (it has no native form)"
    size = [segmentation, V1.CenterCrop(8)]
    assert sp.from_torchvision(size).report == (
        "SemanticSegmentation: Python",
        "CenterCrop: Python (floats have other results than bytes here: put it before the part that makes floats)",
    )


@VERSIONS
def test_groups_keep_their_parts_and_weights(module: Any) -> None:
    parts = [module.RandomInvert(0.3), module.Compose([module.RandomSolarize(9), module.RandomEqualize()])]
    ours = [sp.RandomInvert(0.3), sp.RandomApply([sp.RandomSolarize(9), sp.RandomEqualize()], 1.0)]
    converted = sp.from_torchvision(
        [
            module.RandomChoice(parts),
            module.RandomChoice(parts, p=[0.25, 0.75]),
            module.RandomOrder(parts),
            module.RandomApply(torch.nn.ModuleList(parts[:1]), p=0.8),
            module.Grayscale(3),
        ]
    )
    choice, weighted, order, apply, grey = converted.native
    assert choice in (sp.RandomChoice(ours), sp.RandomChoice(ours, [0.5, 0.5]))
    assert (weighted, order) == (sp.RandomChoice(ours, [0.25, 0.75]), sp.RandomOrder(ours))
    assert (apply, grey) == (sp.RandomApply(ours[:1], 0.8), sp.Grayscale(3))
    delivered(sp.Pipeline(sp.Arrays(image=IMAGES)).map(*converted).batch(6))


@VERSIONS
def test_a_choice_of_parts_and_of_the_same_after_others_is_native(module: Any) -> None:
    """DETR's recipe has such a choice."""
    last, crop = module.Resize((30, 40)), module.CenterCrop(60)
    longer = module.Compose([module.RandomHorizontalFlip(), module.Compose([crop, last])])
    before: list[Any] = [sp.RandomHorizontalFlip(), sp.CenterCrop((60, 60))]
    for given, weights, p in (
        ((last, longer), None, 0.5),
        ((longer, last), [1, 3], 0.25),
        ((last, longer), [1, 3], 0.75),
    ):
        converted = sp.from_torchvision([module.RandomChoice(list(given), weights)])
        assert converted.native == (sp.RandomApply(before, p), sp.Resize((30, 40)))
        assert not converted.python
    other = module.Compose([module.RandomHorizontalFlip(), module.Resize((30, 41))])
    assert "only native outside a group" in str(sp.from_torchvision([module.RandomChoice([last, other])]))
    theirs = module.RandomApply([crop, module.Pad(3)], p=0.3)
    assert sp.from_torchvision([theirs, last]).native[0] == sp.RandomApply([before[1], sp.PadImage(3)], 0.3)


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        (
            V2.RandomHorizontalFlip(),
            "RandomHorizontalFlip in it is only native outside a group, "
            "or in a RandomApply of crops, resizes and flips",
        ),
        (V2.ElasticTransform(), "ElasticTransform in it: it has no native form"),
        (torch.nn.Identity(), "Identity in it: it isn't a class of torchvision or timm"),
    ],
)
@pytest.mark.parametrize("group", [V2.RandomApply, V2.RandomChoice, V1.RandomOrder])
def test_a_group_stays_python_for_a_part_without_native_form(group: Any, inside: Any, why: str) -> None:
    converted = sp.from_torchvision([group([V2.RandomInvert(), inside])])
    assert not converted.native
    assert converted.report == (f"{group.__name__}: Python ({why})",)


@VERSIONS
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CenterCrop", {"size": (70, 31)}),
        ("Pad", {"padding": (1, 2, 3, 4), "fill": 7}),
        ("Pad", {"padding": 5, "padding_mode": "reflect"}),
        ("Pad", {"padding": 5, "padding_mode": "symmetric"}),
        ("RandomCrop", {"size": (56, 67), "padding": 3, "padding_mode": "edge"}),
        ("RandomHorizontalFlip", {"p": 1}),
        ("RandomVerticalFlip", {"p": 1}),
        ("RandomInvert", {"p": 1}),
        ("RandomPosterize", {"bits": 3, "p": 1}),
        ("RandomSolarize", {"threshold": 100, "p": 1}),
        ("RandomEqualize", {"p": 1}),
    ],
    ids=str,
)
def test_parts_that_are_the_same_on_tensors_are_native(
    module: Any, name: str, arguments: dict[str, Any]
) -> None:
    part = getattr(module, name)(**arguments)
    converted = sp.from_torchvision([module.PILToTensor(), module.RandomApply([part], p=1), *floats(module)])
    assert not converted.python
    noise = np.stack([IMAGES[0], IMAGES[1] // 64 * 21, IMAGES[2] // 255])
    wanted = module.Compose([module.PILToTensor(), part, *floats(module)])
    for image, row in zip(
        noise, delivered(sp.Pipeline(sp.Arrays(image=noise)).map(*converted).batch(3)), strict=True
    ):
        assert np.abs(wanted(Image.fromarray(image)).numpy() - row).max() <= 1e-6


def test_flips_after_floats_are_native_and_padding_is_not() -> None:
    flip = V2.RandomHorizontalFlip(1)
    converted = sp.from_torchvision([V1.ToTensor(), flip, V1.Normalize(MEAN, STD), V2.RandomVerticalFlip(1)])
    assert names(converted) == ["RandomHorizontalFlip", "RandomVerticalFlip", "Normalize"]
    late = sp.from_torchvision([V1.ToTensor(), V1.Pad(2)])
    assert late.report == (
        "ToTensor: Python",
        "Pad: Python (floats have other results than bytes here: put it before the part that makes floats)",
    )


def test_parts_that_change_nothing_and_floats_from_0_to_255() -> None:
    converted = sp.from_torchvision(
        V2.Compose([V2.RGB(), V2.CenterCrop(9), V2.Identity(), V2.ToImage(), V2.ToDtype(torch.float32)])
    )
    assert converted.native[1:] == (sp.CenterCrop((9, 9)), sp.ToDtype("float32"))
    assert all(line.endswith(": native") for line in converted.report)


def test_dicts_by_kind_of_image_mean_what_they_mean_for_pillow_images() -> None:
    image, mask = torchvision.tv_tensors.Image, torchvision.tv_tensors.Mask
    for fill in ({image: 4, torch.Tensor: 4}, {image: 4, "others": 0}, {Image.Image: 4, "others": 7}):
        assert sp.from_torchvision([V2.Pad(3, fill=fill)]).report == (
            "Pad: Python (fill has several values for images)",
        )
    for fill, level in (({image: [1, 2, 3], "others": [1, 2, 3]}, (1, 2, 3)), ({mask: 255}, 0)):
        assert sp.from_torchvision([V2.Pad(3, fill=fill)]).native == (sp.PadImage(3, level),)
    for masks, level in (({mask: 7}, 7), ({"others": 3}, 3), ({mask: None}, 0)):
        for made in (V2.Pad(3, fill=masks), V2.RandomRotation(9, fill=masks), V2.RandAugment(fill=masks)):
            assert [each.mask_fill for each in sp.from_torchvision([made]).native] == [level]  # type: ignore[attr-defined]
    assert sp.from_torchvision([V2.Pad(3, fill={mask: (1, 2)})]).report == (
        "Pad: Python (fill=[1.0, 2.0] of masks has no native form)",
    )
    dtype = {image: torch.float32, "others": None}
    ending = [V2.ToPureTensor(), V2.ToDtype(dtype, scale=True)]
    assert sp.from_torchvision([V2.ToImage(), *ending]).native == (sp.ToLayout("NCHW"),)
    assert sp.from_torchvision([V2.ToImage(), ending[1]]).native == (sp.ToDtype("float32", True),)


def test_a_compose_of_a_module_list_is_its_parts() -> None:
    converted = sp.from_torchvision(V1.Compose(torch.nn.ModuleList([V1.RandomInvert(1.0)])))
    assert converted.native == (sp.RandomInvert(1.0),)
