"""The same recipe written with lists, arrays or NumPy numbers: the digest, and so the states, of the usual form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.transform.image import ImageTransform, ValueTransform  # to find every native transform
from standpipe.transform.pixels.compositions import ComposingTransform
from standpipe.transform.pixels.instances import InstanceTransform

IMAGES = sp.Arrays(image=np.zeros((8, 24, 24, 3), np.uint8), label=np.arange(8) % 3, n=np.arange(8))
PARTS = [sp.RandomInvert(), sp.ColorJitter(0.4, (0.5, 1.5))]
# Values of parameters, in the form in which people write them. Other parameters have their defaults.
WRITTEN: dict[str, Any] = {
    "size": (8, 9),
    "min_size": 16,
    "max_size": 20,
    "padding": (1, 2, 3, 4),
    "fill": (1, 2, 3),
    "degrees": (-10.0, 20.0),
    "translate": (0.1, 0.2),
    "shear": (1.0, 2.0, 3.0, 4.0),
    "threshold": 128.0,
    "brightness": (0.5, 1.5),
    "contrast": (0.5, 1.5),
    "saturation": (0.5, 1.5),
    "hue": (-0.1, 0.1),
    "bits": 4,
    "kernel_size": 5,
    "sharpness_factor": 2.0,
    "value": (0.1, 0.2, 0.3),
    "transforms": PARTS,
    "dtype": "float16",
    "layout": "NHWC",
    "operations": ["Posterize", "Color"],
    "target_size": (32, 40),
    "partners": sp.Recent(64),
}
OF_ONE = {
    sp.Resize: {"max_size": None},
    sp.RandomChoice: {"p": [0.25, 0.75]},
    sp.RandomAffine: {"scale": (0.5, 1.5), "pixels": "opencv", "perspective": 0.001},
    sp.RandomRotation: {"pixels": "opencv"},
    sp.RandomPerspective: {"pixels": "opencv"},
    sp.RandomHSV: {"hue": 0.1, "saturation": 0.5, "value": 0.2},
}
IN_REPR_UNLESS_DEFAULT = ("mask_fill", "pixels", "perspective")


def public_transforms() -> list[type[Any]]:
    public = (getattr(sp, name) for name in sp.__all__)
    return [each for each in public if isinstance(each, type) and issubclass(each, ImageTransform)]


def parameters_of(kind: type[Any]) -> dict[str, Any]:
    defaults = {each.name: each.default for each in fields(kind)}
    found = (
        defaults | {name: value for name, value in WRITTEN.items() if name in defaults} | OF_ONE.get(kind, {})
    )
    assert MISSING not in found.values()
    return found


def in_lists(value: Any) -> Any:
    """The value with the other kind of sequence, and with NumPy's numbers in it."""
    if isinstance(value, tuple | list):
        other = list if isinstance(value, tuple) else tuple
        return other(map(in_lists, value))
    return np.asarray(value)[()] if isinstance(value, bool | int | float | str) else value


def in_arrays(value: Any) -> Any:
    """The value with sequences of numbers as arrays, and NumPy's numbers."""
    if isinstance(value, tuple | list) and not isinstance(value[0], ImageTransform):
        return np.array(value)
    return in_lists(value)


def digest_of(transform: ImageTransform) -> str:
    if isinstance(transform, InstanceTransform | ComposingTransform):  # these images have no instances
        return transform.describe()
    before = [sp.CenterCrop(16), *([sp.Normalize()] if isinstance(transform, sp.RandomErasing) else [])]
    after = [] if isinstance(transform, ValueTransform) else [sp.CenterCrop(8)]
    return sp.Pipeline(IMAGES).map(*before, transform, *after).batch(4).plan(memory="1GiB").digest


def through_json(pipeline: sp.Pipeline) -> sp.Pipeline:
    return sp.Pipeline.from_dict(json.loads(json.dumps(pipeline.to_dict())), source=pipeline.source)


@pytest.mark.parametrize(
    "kind",
    [each for each in public_transforms() if each not in (sp.Views, sp.RandomIoUCrop)],
    ids=lambda kind: kind.__name__,
)
def test_every_transform_has_one_form(kind: type[Any]) -> None:
    parameters = parameters_of(kind)
    usual = kind(**parameters)
    assert all(
        f"{name}={value!r}" in repr(usual)
        for name, value in parameters.items()
        if name not in IN_REPR_UNLESS_DEFAULT
    )
    digest = digest_of(usual)
    for form in (in_lists, in_arrays):
        other = kind(**{name: form(value) for name, value in parameters.items()})
        assert other == usual
        assert digest_of(other) == digest
        assert other.describe() == usual.describe()
        (again,) = through_json(sp.Pipeline(IMAGES).map(other)).transforms
        assert again == usual
        assert again.describe() == usual.describe()


i64, f32, f64 = np.int64, np.float32, np.float64
crop = sp.CenterCrop(8)


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (
            lambda p: p.map(sp.RandomResizedCrop(sp.Schedule({0: (8, 8), 2: (9, 9)}))),
            lambda p: p.map(sp.RandomResizedCrop(sp.Schedule({i64(0): [8, 8], 2: np.array([9, 9])}))),
        ),
        (
            lambda p: p.map(crop, sp.RandomChoice(PARTS, sp.Schedule({0: [0.5, 0.5], 2: [0.25, 0.75]}))),
            lambda p: p.map(
                crop, sp.RandomChoice((*PARTS,), sp.Schedule({0: (0.5, 0.5), 2: (0.25, f32(0.75))}))
            ),
        ),
        (
            lambda p: p.map(sp.Views(a=[sp.CenterCrop((8, 8))], b=sp.Repeat(2, [crop]))),
            lambda p: p.map(sp.Views(a=(sp.CenterCrop([8, 8]),), b=sp.Repeat(i64(2), (crop,)))),
        ),
        (
            lambda p: p.map(crop).map_batch(sp.MixUp(0.2, 10), sp.CutMix(1.0, 10)),
            lambda p: p.map(crop).map_batch(sp.MixUp(f64(0.2), i64(10)), sp.CutMix(f32(1), i64(10))),
        ),
        (
            lambda p: p.shuffle(seed=3, block=2, window=2).repeat_each(2),
            lambda p: p.shuffle(seed=i64(3), block=i64(2), window=i64(2)).repeat_each(i64(2)),
        ),
        (
            lambda p: p.take(7).skip(1).split(0.5, seed=3)[0],
            lambda p: p.take(i64(7)).skip(i64(1)).split(f32(0.5), seed=i64(3))[0],
        ),
        (
            lambda p: p.split(0.5, seed=3, by="label")[1],
            lambda p: p.split(f32(0.5), seed=i64(3), by="label")[1],
        ),
        (
            lambda p: p.sample(seed=3, balance="label", num_samples=6),
            lambda p: p.sample(seed=i64(3), balance="label", num_samples=i64(6)),
        ),
        (
            lambda p: p.decode(limits=sp.DecodeLimits(10**6, 7)),
            lambda p: p.decode(limits=sp.DecodeLimits(i64(10**6), i64(7))),
        ),
        (
            lambda p: p.decode(orientation="apply").on_error(sp.Replace(0.5)),
            lambda p: p.decode(orientation="apply").on_error(sp.Replace(f64(0.5))),
        ),
        (
            lambda p: p.batch(budget=20, length_column="n", max_batch_size=4),
            lambda p: p.batch(budget=i64(20), length_column="n", max_batch_size=i64(4)),
        ),
        (
            lambda p: p.map(crop).batch(2, collate={"n": sp.Pad(2, max_shape=(4,)), "label": sp.Ragged(4)}),
            lambda p: p.map(crop).batch(
                i64(2), collate={"n": sp.Pad(i64(2), max_shape=[i64(4)]), "label": sp.Ragged(i64(4))}
            ),
        ),
    ],
)
def test_settings_have_one_form(
    usual: Callable[[sp.Pipeline], sp.Pipeline], other: Callable[[sp.Pipeline], sp.Pipeline]
) -> None:
    one, two = usual(sp.Pipeline(IMAGES)), other(sp.Pipeline(IMAGES))
    for each in (two, through_json(two)):
        assert each.to_dict() == one.to_dict()
        assert [part.describe() for part in each.transforms] == [part.describe() for part in one.transforms]
        assert each.transforms == one.transforms
    if not one.collate:  # those need another source
        plans = [(each if each.budget else each.batch(4)).plan(memory="1GiB") for each in (one, two)]
        assert plans[0].recipe == plans[1].recipe
        assert plans[0].digest == plans[1].digest


@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0], np.array([1, 2, 3]), (f32(1), i64(2), 3)], ids=str)
def test_weights_have_one_form(weights: Any) -> None:
    source = sp.Pipeline(sp.Arrays(x=np.arange(3)))
    one, two = (
        source.sample(seed=1, weights=each).batch(2).plan(memory="1GiB") for each in ((1, 2, 3), weights)
    )
    assert one.digest == two.digest


def test_weights_of_a_mixture_have_one_form() -> None:
    pipelines = [sp.Pipeline(IMAGES), sp.Pipeline(IMAGES).shuffle(seed=1)]
    one, two = (
        sp.Pipeline(sp.Mixture(zip(pipelines, weights, strict=True), stopping=stopping)).batch(2)
        for weights, stopping in (((0.75, 0.25), 10), ([f64(0.75), f32(0.25)], i64(10)))
    )
    assert one.plan(memory="1GiB").digest == two.plan(memory="1GiB").digest


def test_a_state_goes_on_with_a_recipe_that_was_written_in_another_form() -> None:
    one = sp.Pipeline(IMAGES, seed=3).map(crop, sp.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))).batch(4)
    two = sp.Pipeline(IMAGES, seed=i64(3)).map(crop, sp.Normalize([0.5] * 3, np.full(3, 0.25))).batch(4)
    with one.loader(memory="256MiB", num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        expected = next(iter(loader.steps(1)))["index"].tolist()
    for pipeline in (two, through_json(two)):
        with pipeline.loader(memory="256MiB", num_workers=1) as loader:
            loader.load_state_dict(state)
            assert next(iter(loader))["index"].tolist() == expected
