"""timm's RandAugment and ThreeAugment: timm's pixels, operations, magnitudes and distributions."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

import standpipe as sp
from draws import Draws, Sample
from reference import delivered, explain_difference, in_order
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths
from standpipe.transform.pixels import timm_augment

pytest.importorskip("torch")
import torchvision_cpu

assert torchvision_cpu
timm = pytest.importorskip("timm.data.auto_augment")

KIND, THREE = 21 << 16, 22 << 16
FILL = (124, 116, 104)
BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
SAMPLINGS = {"nearest": Image.Resampling.NEAREST, "bilinear": BILINEAR, "bicubic": BICUBIC}
UNSIGNED = ("AutoContrast", "Equalize", "Invert", "Posterize", "Solarize", "Desaturate", "Gaussian")
WARPS = ("Rotate", "Shear", "Translate")


def smooth(seed: int, count: int, height: int, width: int) -> UInt8Array:
    """Pictures with edges, noise and flat parts."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, height, width, 3), np.uint8)
    images[:, : height // 2] //= 3
    images[:, :, : width // 3] = draw.integers(0, 256, (count, 1, 1, 3), np.uint8)
    return images


def by_timm(
    image: UInt8Array,
    name: str,
    magnitude: float,
    draws: Draws,
    sampling: str,
    monkeypatch: pytest.MonkeyPatch,
) -> UInt8Array:
    """One operation by timm's own functions, with the signs that ``draws`` give."""
    with monkeypatch.context() as patch:
        patch.setattr(timm, "_randomly_negate", lambda value: -value if draws.uniform() < 0.5 else value)
        level = timm.LEVEL_TO_ARG[name]
        arguments = () if level is None else level(max(0.0, min(magnitude, 10.0)), {})
        if timm.NAME_TO_OP[name] is timm.posterize and arguments[0] < 1:
            return np.zeros_like(image)  # Pillow 13 refuses what earlier ones made black
        resample = SAMPLINGS.get(sampling)
        if name.startswith(WARPS) and resample is None:
            resample = (BILINEAR, BICUBIC)[draws.below(2)]
        if name == "GaussianBlurRand":
            patch.setattr(timm.random, "uniform", draws.uniform)
        picture = timm.NAME_TO_OP[name](Image.fromarray(image), *arguments, fillcolor=FILL, resample=resample)
    return np.asarray(picture)


def begun(sample: Sample) -> Draws:
    """The random numbers behind those that lead to the only operation of a policy."""
    draws = sample.draws(KIND)
    for _ in range(5):
        draws.uniform()
    return draws


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 1), (33, 48)])
@pytest.mark.parametrize("sampling", ["nearest", "bilinear", "bicubic", "random"])
@pytest.mark.parametrize("name", timm_augment.OPERATIONS)
def test_operations_have_timms_pixels(
    name: str, sampling: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if sampling != "random" and not name.startswith(WARPS):
        return
    for magnitude in (0, 3.3, 9, 10):
        images = smooth(int(magnitude), 6, *size)
        augment = sp.TimmRandAugment(
            1, magnitude, 0.0, p=1.0, interpolation=sampling, operations=[name], fill=FILL
        )
        rows = delivered(in_order(sp.Arrays(image=images), augment, seed=3))
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            draws = begun(Sample(3, 0, position))
            wanted = by_timm(image, name, magnitude, draws, sampling, monkeypatch)
            assert explain_difference(row, wanted) == "", (magnitude, position)


@pytest.mark.parametrize("name", [each for each in timm_augment.OPERATIONS if "Gaussian" not in each])
def test_magnitudes_above_10_have_timms_pixels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's own object clips the magnitude at ``mmax``, and gets the signs from the draws."""
    images = smooth(2, 6, 33, 48)
    for magnitude, most in ((14, 20), (30, 20)):
        augment = sp.TimmRandAugment(
            1,
            magnitude,
            0.0,
            p=1.0,
            magnitude_max=most,
            interpolation="bilinear",
            operations=[name],
            fill=FILL,
        )
        rows = delivered(in_order(sp.Arrays(image=images), augment, seed=3))
        settings = {"magnitude_max": most, "interpolation": BILINEAR, "img_mean": FILL}
        peer = timm.AugmentOp(name, prob=1.0, magnitude=magnitude, hparams=settings)
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            draws = begun(Sample(3, 0, position))
            with monkeypatch.context() as patch:
                patch.setattr(
                    timm,
                    "_randomly_negate",
                    lambda value, draws=draws: -value if draws.uniform() < 0.5 else value,
                )
                if name == "PosterizeIncreasing":  # Pillow 13 refuses what earlier ones made black
                    wanted = np.zeros_like(image)
                else:
                    wanted = np.asarray(peer(Image.fromarray(image)))
            assert explain_difference(row, wanted) == "", (magnitude, position)


@pytest.mark.parametrize("simd", simd_paths())
def test_magnitudes_are_normal_random_numbers(simd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = smooth(1, 100, 24, 31)
    names = ["Rotate", "SolarizeIncreasing", "ColorIncreasing", "PosterizeIncreasing", "TranslateXRel"]
    augment = sp.TimmRandAugment(1, 6, 2.5, p=0.5, interpolation="bilinear", operations=names)
    rows = delivered(in_order(sp.Arrays(image=images), augment, seed=8), epoch=1, simd=simd)
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws = Sample(8, 1, position).draws(KIND)
        for _ in range(3):
            draws.uniform()
        name = names[int(draws.uniform() * len(names))]
        wanted = image
        if draws.uniform() < 0.5:
            normal = NormalDist().inv_cdf(((draws.word() >> 11) + 0.5) * 2.0**-53)
            wanted = by_timm(image, name, 6 + 2.5 * normal, draws, "bilinear", monkeypatch)
        # The normal numbers have an error of 1e-7, which can move a value across a level's border.
        away = np.abs(row.astype(int) - wanted)
        assert away.max() <= 1, (name, position)
        assert (away > 0).mean() < 0.001, (name, position)


def test_choices_probabilities_and_magnitudes_are_those_of_timm() -> None:
    """1e5 draws: exact counts of operations, and Kolmogorov-Smirnov for magnitudes, as values of a grey level."""
    count = 100_000
    images = np.full((count, 1, 1, 3), 100, np.uint8)
    augment = sp.TimmRandAugment(1, 5, 1.0, operations=["SolarizeAdd", "Invert"])
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(augment).batch(1000)
    with pipeline.loader() as loader:
        values = np.concatenate([batch["image"][:, 0, 0, 0] for batch in loader]).astype(int)
    unchanged, inverted = (values == 100).mean(), (values == 155).mean()
    assert abs(unchanged - 0.5) < 0.007
    assert 0.25 < inverted < 0.268  # a sum of 155 is among the others
    added = values[(values != 100) & (values != 155)] - 100
    draw = np.random.default_rng(1)
    theirs = np.minimum((np.clip(draw.normal(5, 1, count), 0, 10) / 10 * 110).astype(int), 128)
    theirs = np.minimum(theirs, 155)
    theirs = theirs[theirs != 55]
    steps = np.arange(256)
    ours_below = np.searchsorted(np.sort(added), steps, "right") / len(added)
    theirs_below = np.searchsorted(np.sort(theirs), steps, "right") / len(theirs)
    assert np.abs(ours_below - theirs_below).max() < 2.0 * math.sqrt(1 / len(added) + 1 / len(theirs))


def test_infinite_deviation_is_uniform() -> None:
    images = np.full((20_000, 1, 1, 3), 10, np.uint8)
    augment = sp.TimmRandAugment(1, 10, math.inf, p=1.0, operations=["SolarizeAdd"])
    with sp.Pipeline(sp.Arrays(image=images)).map(augment).batch(1000).loader() as loader:
        values = np.concatenate([batch["image"][:, 0, 0, 0] for batch in loader]).astype(int) - 10
    counts = np.bincount(values, minlength=110)
    assert counts.sum() == 20_000
    assert ((counts - 20_000 / 110) ** 2 / (20_000 / 110)).sum() < 180


def test_default_operations_are_timms_for_both_kinds() -> None:
    for increasing, theirs in ((True, timm._RAND_INCREASING_TRANSFORMS), (False, timm._RAND_TRANSFORMS)):
        ours = [
            f"{name}Increasing" if increasing and name in timm_augment.CHANGED else name
            for name in timm_augment.CHOSEN
        ]
        assert ours == theirs
    assert {*timm_augment.OPERATIONS} == {*timm.NAME_TO_OP} - {"TranslateX", "TranslateY"}


def test_three_augment_is_one_of_three() -> None:
    images = smooth(5, 60, 20, 17)
    rows = delivered(in_order(sp.Arrays(image=images), sp.ThreeAugment(), seed=2))
    seen = set()
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws, picture = Sample(2, 0, position).draws(THREE), Image.fromarray(image)
        draws.uniform()
        chosen = min(int(draws.uniform() * 3), 2)
        draws.uniform()
        if chosen == 0:
            wanted = picture.convert("L").convert("RGB")
        elif chosen == 1:
            wanted = ImageOps.solarize(picture, 128)
        else:
            wanted = picture.filter(ImageFilter.GaussianBlur(draws.uniform(0.1, 2.0)))
        assert explain_difference(row, np.asarray(wanted)) == "", position
        seen.add(chosen)
    assert seen == {0, 1, 2}


@pytest.mark.parametrize(
    ("augment", "says"),
    [
        (sp.TimmRandAugment(17), r"num_ops=17.*0 to 16"),
        (sp.TimmRandAugment(magnitude=-1), r"magnitude=-1"),
        (sp.TimmRandAugment(magnitude_std=-0.5), r"or infinity"),
        (sp.TimmRandAugment(p=1.5), r"probability"),
        (sp.TimmRandAugment(interpolation="cubic"), r"'bilinear', 'bicubic', 'random'"),  # type: ignore[arg-type]
        (sp.TimmRandAugment(fill=(1, 2)), r"must have 3 numbers"),  # type: ignore[arg-type]
        (sp.TimmRandAugment(operations=["Cutout"]), r"not 'Cutout'"),
        (sp.TimmRandAugment(operations=[]), r"a list of names"),
        (sp.TimmRandAugment(operations={"Invert": 1.0}), r"a list of names"),
    ],
)
def test_invalid_parameters_are_refused(augment: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=smooth(0, 2, 9, 9))).map(augment).batch(1).plan()
