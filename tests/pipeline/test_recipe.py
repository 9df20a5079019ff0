"""A pipeline's settings as plain data: a round trip for everything native, and clear errors for the rest."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from programs import output
from standpipe.transform.image import ImageTransform  # to find every native transform

REQUIRED: dict[str, Any] = {
    "size": 32,
    "bits": 4,
    "threshold": 128.0,
    "kernel_size": 5,
    "sharpness_factor": 2.0,
    "dtype": "float16",
    "layout": "NHWC",
    "padding": (1, 2, 3, 4),
    "degrees": (-10.0, 20.0),
    "min_size": 32,
    "max_size": 48,
    "transforms": [sp.RandomApply([sp.ColorJitter(0.4, (0.5, 1.5))], p=0.3), sp.GaussianBlur(5, (0.1, 2.0))],
}


def every_transform() -> list[ImageTransform]:
    """Each public native transform, with its defaults where it has them."""
    found = []
    for name in sp.__all__:
        kind = getattr(sp, name)
        if isinstance(kind, type) and issubclass(kind, ImageTransform) and kind is not sp.Views:
            required = [each.name for each in fields(kind) if each.default is MISSING]
            if all(each in REQUIRED for each in required):
                found.append(kind(**{each: REQUIRED[each] for each in required}))
    return found


def test_a_process_that_has_used_no_transform_reads_every_transform(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(
        json.dumps(sp.Pipeline(sp.Arrays(x=np.arange(3))).map(*every_transform()).to_dict())
    )
    program = f"""
        import json, pathlib
        recipe = json.loads(pathlib.Path({str(tmp_path / "recipe.json")!r}).read_text())
        print(len(sp.Pipeline.from_dict(recipe).transforms))
    """
    assert output(program) == f"{len(every_transform())}\n"


def every_part() -> list[ImageTransform]:
    """Parts of groups."""
    return [sp.RandomInvert(), sp.ColorJitter(0.4)]


def round_trip(pipeline: sp.Pipeline) -> sp.Pipeline:
    recipe = json.loads(json.dumps(pipeline.to_dict(), allow_nan=False, sort_keys=True))
    again = sp.Pipeline.from_dict(recipe, source=pipeline.source)
    assert again.to_dict() == pipeline.to_dict()
    return again


def test_every_transform_makes_a_round_trip() -> None:
    transforms = every_transform()
    assert len(transforms) >= 32
    for each in transforms:
        again = round_trip(sp.Pipeline(sp.Arrays(x=np.arange(3))).map(each))
        assert repr(again.transforms[0]) == repr(each)  # which is part of a run's digest


@pytest.mark.parametrize(
    "transform",
    [
        sp.Views(
            name=[sp.CenterCrop(8), sp.Normalize()], a=[], small=sp.Repeat(3, [sp.RandomResizedCrop((8, 9))])
        ),
        sp.TimmRandAugment(operations=["Posterize", "Color"]),
        sp.RandomResizedCrop(size=sp.Schedule({10: 224, 0: 160}), scale=sp.Schedule({0: (0.5, 1.0)})),
        sp.RandomResizedCrop(size=sp.Schedule({0: sp.PerStep(range(320, 641, 32)), 9: 640})),
        sp.CenterCrop(sp.PerStep([(64, 32), (32, 64)], multiple_of=16)),
        sp.TimmRandAugment(magnitude_std=sp.Schedule({0: 0.5, 3: math.inf})),
        sp.RandomChoice(every_part(), p=sp.Schedule({0: [0.5, 0.5], 2: [0.25, 0.75]})),
        sp.RandomApply([sp.GaussianBlur(3, sigma=sp.Schedule({0: (0.1, 1.0), 1: (0.1, 2.0)}))]),
    ],
    ids=repr,
)
def test_views_schedules_and_mappings_make_a_round_trip(transform: ImageTransform) -> None:
    again = round_trip(sp.Pipeline(sp.Arrays(x=np.arange(3))).map(transform)).transforms[0]
    assert again == transform
    assert repr(again) == repr(transform)


@pytest.mark.parametrize(
    "written",
    [
        lambda p: p.shuffle(seed=2**70, block=8).batch(4, last_batch="pad"),
        lambda p: p.sample(seed=3, weights="w", num_samples=10).batch(2),
        lambda p: p.sample(seed=3, balance="label").repeat_each(2).batch(2),
        lambda p: p.batch(budget=64, length_column="n", packing=True, collate={"x": sp.Ragged(), "y": list}),
        lambda p: p.batch(2, collate={"x": sp.Pad(max_shape=(3, 4), value=1.5)}).map_batch(sp.MixUp(0.2, 10)),
        lambda p: p.decode("fast", limits=sp.DecodeLimits(10**6, 7), allow_truncated=True),
        lambda p: p.decode(orientation="apply"),
        lambda p: p.check_finite("x").check_labels(10, ignore=255).on_error(sp.Replace(at_most=0.05)),
        lambda p: p.check_finite().on_error(sp.Replace(at_most=7)),
    ],
)
def test_settings_make_a_round_trip(written: Any) -> None:
    pipeline = written(sp.Pipeline(sp.Arrays(x=np.arange(3)), seed=9))
    again = round_trip(pipeline)
    for each in fields(pipeline):
        if each.name not in ("sampling", "batch_functions"):
            assert getattr(again, each.name) == getattr(pipeline, each.name), each.name


def test_recipes_of_standpipe_0_1_are_read() -> None:
    recipe = sp.Pipeline(sp.Arrays(x=np.arange(3))).decode("fast").to_dict()
    recipe["decode"]["gpu"] = None
    assert sp.Pipeline.from_dict(recipe).decoding.mode.value == "fast"


def test_recipe_gives_the_same_digest() -> None:
    source = sp.Arrays(image=np.zeros((8, 9, 9, 3), np.uint8))
    pipeline = (
        sp.Pipeline(source)
        .shuffle(seed=3)
        .map(sp.RandomResizedCrop((8, 8)), *every_group(), sp.Normalize())
        .batch(4)
    )
    assert round_trip(pipeline).plan().digest == pipeline.plan().digest


def every_group() -> list[ImageTransform]:
    parts = every_part()
    return [
        sp.RandomApply(parts),
        sp.RandomChoice(parts, p=[0.25, 0.75]),
        sp.RandomOrder([sp.RandomOrder(parts)]),
    ]


def scheduled(items: Any) -> dict[str, Any]:
    """A recipe with a crop whose size changes by epoch."""
    size = {"name": "Schedule", "values": {"name": "dict", "items": items}}
    return {"transforms": [{"name": "CenterCrop", "size": size}]}


def test_python_functions_are_refused() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(3)))
    with pytest.raises(sp.PlanError, match=r"map\(.*<lambda>\): a recipe is plain data without code"):
        pipeline.map(lambda sample: sample).to_dict()
    with pytest.raises(sp.PlanError, match="without code"):
        pipeline.batch(2).map_batch(lambda batch: batch).to_dict()
    with pytest.raises(sp.PlanError, match="can't contain array"):
        pipeline.sample(seed=1, weights=[1.0, 2.0, 3.0]).to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has version 2, and this standpipe reads version 1"),
        ({"version": None}, "has version None"),
        ({"version": True}, "has version True"),
        ({"shuffel": {}}, "unknown parameter 'shuffel'. Did you mean shuffle"),
        ({"transforms": [{"name": "RandomResizeCrop"}]}, "Did you mean RandomResizedCrop or "),
        ({"zzz": {}}, "unknown parameter 'zzz'. Its parameters are version, seed"),
        ({"seed": "7"}, "seed must be an integer"),
        ({"transforms": [{"name": "Rotate"}]}, "name 'Rotate', which this standpipe doesn't know"),
        ({"transforms": [{"name": "CenterCrop", "size": 8, "sise": 9}]}, "unknown parameter 'sise'"),
        ({"transforms": [{"name": "CenterCrop"}]}, "CenterCrop of the recipe has no 'size'"),
        ({"transforms": [{"name": "CenterCrop", "size": -1}]}, "from 1 to"),
        ({"transforms": [{"name": "Raise"}]}, "isn't a native transform"),
        ({"transforms": {}}, "transforms must be a list"),
        ({"decode": {"gpu": {"name": "GpuDecode", "share": 1.0, "memory": 1 << 28}}}, "decoded on CPUs"),
        ({"transforms": [{"name": ["CenterCrop"]}]}, "which this standpipe doesn't know"),
        ({"transforms": [{"name": "TimmRandAugment", "magnitude": "inf"}]}, "magnitude must be a number"),
        ({"transforms": [{"name": "TimmRandAugment", "magnitude_std": "-inf"}]}, "magnitude_std must be a"),
        ({"transforms": [{"name": "Views", "views": [[]]}]}, "Views must have a dict of names"),
        ({"transforms": [{"name": "Views", "views": {"name": "dict", "items": [[1, []]]}}]}, "dict of names"),
        (
            {"transforms": [{"name": "Views", "views": {"name": "dict", "items": ["ab", 3]}}]},
            "has a dict with",
        ),
        (
            {"transforms": [{"name": "Views", "views": {"name": "dict", "items": [[[], 3]]}}]},
            "has a dict with",
        ),
        (scheduled([[0, 8], [2, -1]]), "from 1 to"),
        (scheduled([[1, 8]]), "no value for epoch 0"),
        (scheduled([["0", 8]]), "epochs must be integers"),
        (scheduled(3), "items must be a list"),
        ({"transforms": ["CenterCrop"]}, "isn't a native transform"),
        ({"transforms": [{"size": 3}]}, "name None"),
        ({"shuffle": {"blok": 3}}, "unknown parameter 'blok'"),
        ({"decode": {"mode": "quick"}}, "mode must be"),
        ({"decode": {"orientation": "up"}}, "orientation must be"),
        ({"decode": {"limits": {"name": "Raise"}}}, "must have DecodeLimits"),
        ({"batch": {"batch_size": 2, "size": 3}}, "unknown parameter 'size'"),
        ({"batch": 3}, "must be a dict"),
        ({"batch": {"batch_size": 2, "collate": ["list"]}}, "collate must be a dict"),
        ({"check_finite": True}, "check_finite must be a list"),
        ({"map_batch": [{"name": "Raise"}]}, "must have MixUp or CutMix"),
        ({"on_error": {"name": "Pad"}}, "on_error takes"),
        ({"sample": {"name": "Raise"}}, "must be Balance or Weights"),
    ],
)
def test_invalid_recipes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(sp.PlanError, match=message):
        sp.Pipeline.from_dict({"version": 1, **change})


def test_recipe_must_be_a_dict() -> None:
    with pytest.raises(sp.PlanError, match="takes the dict that to_dict"):
        sp.Pipeline.from_dict([])  # type: ignore[arg-type]


def test_recipe_without_a_source_cannot_be_planned() -> None:
    with pytest.raises(sp.PlanError, match=r"has no source. Write Pipeline.from_dict\(recipe, source=…\)"):
        sp.Pipeline.from_dict({"version": 1, "batch": {"batch_size": 2}}).plan()
