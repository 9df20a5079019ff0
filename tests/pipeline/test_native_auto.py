"""Objects of torchvision inside ``map(…, native="auto")``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from reference import delivered
from samples import Samples
from standpipe import PlanError

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

V1, V2 = torchvision.transforms, torchvision.transforms.v2
BILINEAR = V1.InterpolationMode.BILINEAR
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = np.random.default_rng(5).integers(0, 256, (6, 40, 52, 3), np.uint8)
ENDING = (V2.PILToTensor(), V2.ToDtype(torch.float, scale=True), V2.Normalize(MEAN, STD))
TRAINING = (
    V2.RandomResizedCrop(32, interpolation=BILINEAR),
    V2.RandomHorizontalFlip(),
    V2.ColorJitter(0.4, 0.4),
    *ENDING,
    V2.RandomErasing(0.5),
)


def photos() -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(image=IMAGES)).shuffle(seed=3)


def rows(pipeline: sp.Pipeline) -> list[np.ndarray]:
    return delivered(pipeline.batch(6))


def lines(pipeline: sp.Pipeline) -> list[str]:
    text = pipeline.batch(6).plan().explain()
    return [line.strip() for line in text.splitlines()]


def test_converted_transforms_leave_no_boxes_behind() -> None:
    samples = Samples(lambda index: {"image": IMAGES[index], "target": {"boxes": np.zeros((2, 4))}}, 6)
    pipeline = sp.Pipeline(sp.MapSource(samples)).map(V2.CenterCrop(8), native="auto")
    with pytest.raises(PlanError, match=r'CenterCrop\(.* but not the field target\["boxes"\]'):
        rows(pipeline)
    assert pipeline.map(V2.RandomHorizontalFlip(), native="auto", unmoved=("target",)).unmoved == ("target",)


@pytest.mark.parametrize("given", [(V2.Compose(TRAINING),), TRAINING], ids=["composed", "one by one"])
def test_a_whole_composition_becomes_that_of_from_torchvision(given: tuple[Any, ...]) -> None:
    auto = photos().map(*given, native="auto")
    wanted = photos().map(*sp.from_torchvision(V2.Compose(TRAINING)))
    assert auto.transforms == wanted.transforms
    np.testing.assert_array_equal(rows(auto), rows(wanted))
    assert auto.batch(6).plan().digest == wanted.batch(6).plan().digest
    assert sp.Pipeline.from_dict(json.loads(json.dumps(auto.to_dict()))).transforms == wanted.transforms
    said = lines(auto)
    begin = said.index('map(native="auto") converted:')
    names = [type(each).__name__ for each in TRAINING]
    assert said[begin + 1 : begin + 1 + len(names)] == [f"{name}: native" for name in names]


def test_nothing_changes_without_the_option() -> None:
    pipeline = photos().map(V2.Compose(TRAINING))
    assert [type(each).__name__ for each in pipeline.transforms] == ["Function"]
    assert "converted" not in pipeline.batch(6).plan().explain()


def test_what_has_no_native_form_stays_python_and_explain_says_why() -> None:
    given = V2.Compose([V2.CenterCrop(32), V2.ElasticTransform(), V2.RandomHorizontalFlip(1.0)])
    pipeline = photos().map(given, native="auto")
    assert pipeline.transforms[0] == sp.CenterCrop((32, 32))
    assert len(pipeline.transforms) == 2
    said = lines(pipeline)
    for line in (
        "native: CenterCrop + write NHWC uint8",
        "CenterCrop: native",
        "ElasticTransform: Python (it has no native form)",
        "RandomHorizontalFlip: Python",
    ):
        assert line in said
    with pytest.raises(PlanError, match="can't contain Python"):
        pipeline.to_dict()


def brighter(image: np.ndarray) -> np.ndarray:
    return np.minimum(image, 200) + np.uint8(20)


def test_after_a_function_of_the_image_nothing_is_converted() -> None:
    pipeline = photos().map(brighter, field="image").map(V2.CenterCrop(32), native="auto")
    assert len(pipeline.transforms) == 2
    assert any(
        line.startswith("CenterCrop: Python (it follows the Python function") for line in lines(pipeline)
    )
    apart = photos().map(np.negative, field="label").map(V2.CenterCrop(32), native="auto")
    assert apart.transforms[1] == sp.CenterCrop((32, 32))


def test_calls_one_after_another_are_one_composition() -> None:
    together = photos().map(V2.Compose([V2.CenterCrop(32), *ENDING]), native="auto")
    apart = photos()
    for each in (V2.CenterCrop(32), *ENDING):
        apart = apart.map(each, native="auto")
    np.testing.assert_array_equal(rows(apart), rows(together))
    assert "Function" not in [type(each).__name__ for each in apart.transforms]


def test_python_after_native_floats_takes_a_tensor() -> None:
    crops = photos().map(sp.CenterCrop(32))
    python = crops.map(V1.ToTensor()).map(V2.RandomInvert(1.0))
    auto = crops.map(V1.ToTensor(), native="auto").map(V2.RandomInvert(1.0), native="auto")
    assert [type(each).__name__ for each in auto.transforms][1:] == ["ToDtype", "Function"]
    found, wanted = (delivered(each.batch(6), executor="inline") for each in (auto, python))
    np.testing.assert_array_equal(found, wanted)


def test_python_after_native_bytes_of_a_tensor_is_refused() -> None:
    native = photos().map(V2.CenterCrop(32), V2.PILToTensor(), native="auto")
    with pytest.raises(
        PlanError, match=r"RandomAutocontrast: Python \(tensors have other pixels.* in one call of map"
    ):
        native.map(V2.RandomAutocontrast(1.0), native="auto")
    together = photos().map(V2.CenterCrop(32), V2.PILToTensor(), V2.RandomAutocontrast(1.0), native="auto")
    assert np.shape(delivered(together.batch(6), executor="inline")) == (6, 3, 32, 32)
    with pytest.raises(PlanError, match=r"RandomInvert: Python \(an earlier map\(\) made the image a tensor"):
        native.map(V2.RandomInvert(1.0), native="auto")


def test_nested_compositions_are_flat() -> None:
    nested = V1.Compose([V1.Compose([V1.CenterCrop(32)]), V1.Compose([V1.PILToTensor()])])
    assert sp.from_torchvision(nested).native == (sp.CenterCrop((32, 32)), sp.ToLayout("NCHW"))


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ([V2.Normalize(MEAN, STD)], "only one Normalize"),
        ([V2.RandomErasing(), V2.RandomErasing()], "only one RandomErasing"),
    ],
)
def test_what_native_code_does_once_stays_python_when_it_comes_twice(ending: list[Any], why: str) -> None:
    converted = sp.from_torchvision(V2.Compose([V2.CenterCrop(32), *ENDING, *ending]))
    assert why in str(converted)
    assert len(converted.native) == 1
    assert len(converted.python) == 1


@pytest.mark.parametrize(
    ("before", "options", "why"),
    [
        ((), {"field": "other"}, "it takes the field 'other'"),
        ((), {"input_format": "tensor"}, "input_format='tensor'"),
        ((sp.ToLayout("NHWC"),), {}, "it follows ToDtype or ToLayout"),
        ((sp.ToDtype("float16"),), {}, "it follows ToDtype or ToLayout"),
        ((sp.Views(a=[sp.CenterCrop(8)]),), {}, "it follows Views"),
        (
            (sp.Normalize(sp.Schedule({0: MEAN, 2: STD})),),
            {},
            "it follows Normalize with a Schedule or PerStep",
        ),
    ],
)
def test_where_pixels_would_differ_it_stays_python(before: Any, options: dict[str, Any], why: str) -> None:
    pipeline = photos().map(*before) if before else photos()
    made = pipeline.map(V2.CenterCrop(8), native="auto", **options)
    assert type(made.transforms[-1]).__name__ == "Function"
    (line,) = made.conversions
    assert line.startswith("CenterCrop: Python (")
    assert why in line


def test_wrong_arguments() -> None:
    with pytest.raises(PlanError, match="native must be 'auto' or None, got True"):
        photos().map(V2.CenterCrop(8), native=True)
    with pytest.raises(PlanError, match="native= apply to Python callables only"):
        photos().map(sp.CenterCrop(8), native="auto")
