"""``tensors="as_pillow"``, and parts of a composition that change nothing or that stand for the user's own classes."""

from __future__ import annotations

from pathlib import Path
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
MODES = V1.InterpolationMode
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = np.random.default_rng(5).integers(0, 256, (4, 50, 61, 3), np.uint8)
FLOATS = [V2.ToDtype(torch.float32, scale=True), V2.Normalize(MEAN, STD)]
FLOATS_APART = "floats have other results than bytes here: put it before the part that makes floats)"
RECOMMENDED = [V2.ToImage(), V2.ToDtype(torch.uint8, scale=True), V2.RandomResizedCrop(32), *FLOATS]
CROPS = {
    "resize": [V2.Resize(40), V2.CenterCrop(32)],
    "bicubic": [V2.Resize((32, 32), MODES.BICUBIC)],
    "crop": [V2.RandomResizedCrop(24, scale=(1, 1), ratio=(61 / 50, 61 / 50))],
    "colours": [V2.ColorJitter(contrast=(1.2, 1.2)), V2.CenterCrop(32)],
    "warp": [V2.CenterCrop(32), V2.RandomRotation((20, 20), MODES.BILINEAR, fill=(9, 50, 100))],
    "policy": [V2.CenterCrop(32), V2.RandomAutocontrast(1)],
}


def rows(*transforms: Any, **options: Any) -> np.ndarray:
    return delivered(sp.Pipeline(sp.Arrays(image=IMAGES)).map(*transforms, **options).batch(len(IMAGES)))


@pytest.mark.parametrize("name", CROPS)
def test_parts_on_tensors_have_the_pixels_of_pillow_images(name: str) -> None:
    parts = CROPS[name]
    given = V2.Compose([V2.ToImage(), *parts, *FLOATS])
    converted = sp.from_torchvision(given, tensors="as_pillow")
    assert not converted.python
    wanted = V2.Compose([*parts, V2.ToImage(), *FLOATS])
    auto = rows(given, native="auto", tensors="as_pillow")
    for image, row, other in zip(IMAGES, rows(*converted), auto, strict=True):
        theirs = wanted(Image.fromarray(image)).numpy()
        assert np.abs(theirs - row).max() <= 1e-6
        np.testing.assert_array_equal(row, other)


def test_the_recommended_composition_says_what_each_part_does() -> None:
    assert sp.from_torchvision(V2.Compose(RECOMMENDED), tensors="as_pillow").report == (
        "ToImage: native",
        "ToDtype: native (it changes nothing: bytes stay bytes)",
        "RandomResizedCrop: native (with Pillow's pixels)",
        "ToDtype: native",
        "Normalize: native",
    )
    refused = sp.from_torchvision(V2.Compose(RECOMMENDED))
    assert not refused.native
    assert refused.report[1:3] == (
        "ToDtype: Python",
        "RandomResizedCrop: Python (tensors have other pixels than Pillow images here: on photos, 2 levels of 255 "
        'apart at most with bilinear and 23 with bicubic. tensors="as_pillow" takes Pillow\'s)',
    )


def test_a_nearest_resize_of_tensors_says_how_far_it_is_from_pillows() -> None:
    given = [V2.ToImage(), V2.Resize((32, 32), MODES.NEAREST)]
    assert sp.from_torchvision(given).report[1] == (
        "Resize: Python (tensors have other pixels than Pillow images here: torch's nearest pixel is up to half a "
        "pixel from Pillow's. tensors=\"as_pillow\" takes Pillow's)"
    )
    assert sp.from_torchvision(given, tensors="as_pillow").native[0] == sp.Resize(
        (32, 32), interpolation="nearest"
    )


def test_a_composition_that_begins_with_tensors() -> None:
    given = V2.Compose([V2.Resize((32, 32)), *FLOATS])
    assert str(sp.from_torchvision(given)).splitlines()[1] == (
        'ToDtype: Python (it changes no Pillow image: put ToImage() before it. tensors="as_pillow" takes Pillow\'s)'
    )
    found = sp.from_torchvision(given, tensors="as_pillow")
    assert found.native == (sp.Resize((32, 32)), sp.Normalize(MEAN, STD))
    bytes_stay = sp.from_torchvision([V2.ToDtype(torch.uint8, scale=True), V2.CenterCrop(8)])
    assert bytes_stay.report[0] == "ToDtype: native (it changes nothing: bytes stay bytes)"


def test_bilinear_resizes_of_floats_are_converted() -> None:
    given = [V1.ToTensor(), V1.Resize((32, 32)), V1.Normalize(MEAN, STD)]
    converted = sp.from_torchvision(given, tensors="as_pillow")
    assert converted.native == (sp.Resize((32, 32)), sp.Normalize(MEAN, STD))
    for image, row in zip(IMAGES, rows(*converted), strict=True):
        theirs = V1.Compose(given)(Image.fromarray(image)).numpy()
        assert np.abs(theirs - row).max() * min(STD) * 255 <= 1.01


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([V2.ToImage(), V2.Resize(32, antialias=False)], "antialias=False has no native form"),
        ([V1.ToTensor(), V1.Resize(32, MODES.BICUBIC)], FLOATS_APART),
        ([V1.ToTensor(), V1.Pad(2, fill=1)], FLOATS_APART),
        ([V2.ToImage(), V2.ElasticTransform()], "it has no native form"),
        ([V2.ToImage(), *FLOATS, V2.Resize(32)], FLOATS_APART),
    ],
)
def test_what_has_no_native_form_on_tensors_stays_python(parts: list[Any], why: str) -> None:
    converted = sp.from_torchvision(parts, tensors="as_pillow")
    assert converted.python
    assert why in converted.report[len(parts) - 1]


def test_a_mask_of_v2_is_named_where_it_is_resized() -> None:
    kinds = {
        torchvision.tv_tensors.Image: torch.float32,
        torchvision.tv_tensors.Mask: torch.int64,
        "others": None,
    }
    ending = [V2.ToDtype(kinds, scale=True), V2.Normalize(MEAN, STD)]
    tensors = sp.from_torchvision([V2.ToImage(), V2.Resize((32, 32)), *ending], tensors="as_pillow")
    assert tensors.report[1] == (
        "Resize: native (with Pillow's pixels; a mask's pixels are up to half a pixel from v2's)"
    )
    pillow = sp.from_torchvision([V2.Resize((32, 32)), V2.CenterCrop(24), V2.ToImage(), *ending])
    assert pillow.report[:2] == (
        "Resize: native (a mask's pixels are up to half a pixel from v2's)",
        "CenterCrop: native",
    )


def to_rgb(picture: Any) -> Any:
    """A function of the user's."""
    return picture.convert("RGB")


@pytest.mark.parametrize(
    "part",
    [V1.Lambda(lambda image: image.convert("RGB")), V2.Lambda(lambda x: x.convert("RGB")), to_rgb],
    ids=["v1", "v2", "function"],
)
def test_a_function_that_converts_to_rgb_changes_nothing(part: Any) -> None:
    converted = sp.from_torchvision(V1.Compose([part, V1.Resize((16, 16)), V1.ToTensor()]))
    assert converted.native[1:] == (sp.Resize((16, 16)), sp.ToDtype("float32", True))
    assert converted.report[0].endswith(": native (images are RGB)")
    assert np.array_equal(rows(*converted), rows(*converted.native[1:]))


@pytest.mark.parametrize("channels", ["L", "RGBA"])
@pytest.mark.parametrize(
    "parts",
    [
        [V1.Lambda(lambda image: image.convert("RGB")), V1.CenterCrop(8), V1.ToTensor()],
        [V2.CenterCrop(8), V2.RGB(), V2.ToImage()],
        [V2.ToImage(), V2.RGB(), V2.CenterCrop(8)],
    ],
    ids=["function", "v2", "v2 of a tensor"],
)
def test_a_conversion_to_rgb_refuses_other_images_in_plan(
    parts: list[Any], channels: Any, tmp_path: Path
) -> None:
    converted = sp.from_torchvision(V1.Compose(parts))
    assert not converted.python
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "0.png")
    (tmp_path / "list.txt").write_text("0.png\n")
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt")).map(*converted).batch(1)
    with pytest.raises(
        sp.PlanError, match=r"RGB\(\) takes images of 3 channels, .*use decode\(channels=\"RGB\"\)"
    ):
        pipeline.decode(channels=channels).plan(memory="64MiB")
    pipeline.plan(memory="64MiB")


@pytest.mark.parametrize(
    "function",
    [
        lambda image: image.convert("L"),
        lambda image: image.convert("RGB").rotate(3),
        lambda image: [image.convert("RGB")],
        lambda image, mode="RGB": image.convert(mode),
        str,
    ],
)
def test_other_functions_stay_python(function: Any) -> None:
    assert not sp.from_torchvision(V1.Compose([V1.Lambda(function), V1.CenterCrop(8)])).native


class GaussianBlur:
    """A class of the user's."""

    def __call__(self, image: Any) -> Any:
        return image


def test_a_native_transform_stands_in_a_composition_for_a_class_of_the_users() -> None:
    blur = sp.PillowGaussianBlur(1.5)
    crop, tensor = V1.CenterCrop(32), V1.ToTensor()
    asked = sp.from_torchvision([crop, GaussianBlur(), tensor])
    assert asked.report[1] == (
        "GaussianBlur: Python (it isn't a class of torchvision or timm: if it is Pillow's ImageFilter.GaussianBlur, "
        "write sp.PillowGaussianBlur(radius) in its place, inside RandomApply if it has a probability)"
    )
    for parts, wanted in (
        ([crop, blur, tensor], blur),
        ([crop, sp.RandomApply([blur], 0.3), tensor], sp.RandomApply([blur], 0.3)),
        ([crop, V1.RandomApply([blur], p=0.3), tensor], sp.RandomApply([blur], 0.3)),
        ([crop, V1.Compose([blur]), tensor], blur),
    ):
        converted = sp.from_torchvision(V1.Compose(parts))
        assert converted.native == (sp.CenterCrop((32, 32)), wanted, sp.ToDtype("float32", True))
    late = sp.from_torchvision(V1.Compose([V1.PILToTensor(), blur]))
    assert late.native == (blur, sp.ToLayout("NCHW"))


@pytest.mark.parametrize("late", [sp.PillowGaussianBlur(), V1.RandomApply([sp.PillowGaussianBlur()])])
def test_a_native_transform_after_python_is_refused(late: Any) -> None:
    with pytest.raises(
        sp.PlanError,
        match=r"ElasticTransform: Python \(it has no native form\)\. So \w+ after it would be Python",
    ):
        sp.from_torchvision([V1.ElasticTransform(), late])
    with pytest.raises(sp.PlanError, match=r"Normalize: Python \(.*write them into map"):
        sp.from_torchvision([V1.CenterCrop(8), sp.Normalize()])


def test_wrong_arguments() -> None:
    with pytest.raises(sp.PlanError, match="from_torchvision: tensors must be 'as_pillow' or None, got True"):
        sp.from_torchvision([V1.CenterCrop(8)], tensors=True)  # type: ignore[arg-type]
    pipeline = sp.Pipeline(sp.Arrays(image=IMAGES))
    with pytest.raises(sp.PlanError, match="map: tensors must be 'as_pillow' or None"):
        pipeline.map(V1.CenterCrop(8), native="auto", tensors="pil")  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match=r"map\(tensors='as_pillow'\) is for native='auto'"):
        pipeline.map(V1.CenterCrop(8), tensors="as_pillow")


def explained(*transforms: Any) -> str:
    text = sp.Pipeline(sp.Arrays(image=IMAGES)).map(*transforms).batch(2).plan().explain()
    return " ".join(text.split())


def test_explain_says_what_native_auto_would_bring() -> None:
    whole = V2.Compose([V2.Resize((32, 32)), V2.ToImage(), *FLOATS])
    assert 'map(…, native="auto") would make 4 of 4 parts native batch' in explained(whole)
    recommended = explained(V2.Compose(RECOMMENDED))
    assert (
        'map(…, native="auto") would make 0 of 5 parts native. RandomResizedCrop: Python (tensors have'
        in recommended
    )
    apart = explained(V2.Resize((32, 32)), V2.ElasticTransform())
    assert "would make 1 of 2 parts native. ElasticTransform: Python (it has no native form)" in apart
    assert "native=" not in explained(sp.CenterCrop(8))
