"""Augmentation policies have torchvision's operations and magnitudes, with its pixels for Pillow images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Draws, Sample
from reference import delivered, explain_difference, in_order
from standpipe import _native
from standpipe.spec import UInt8Array
from standpipe.transform.image import Size
from standpipe.transform.pixels import auto_augment

pytest.importorskip("torch")
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2
OPERATIONS = auto_augment.OPERATIONS


def noise(*shape: int) -> UInt8Array:
    return np.random.default_rng(7).integers(0, 256, shape, np.uint8)


@dataclass(frozen=True, slots=True)
class Operation(auto_augment.AutoAugmentBase):
    """One operation of a policy."""

    name: str
    magnitude: float
    fill: auto_augment.Fill = None
    interpolation: auto_augment.AugmentInterpolation = "nearest"
    mask_fill: int = 255

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        operation = self._operation(self.name, self.magnitude, self.known(size))
        return _native.PixelStage.choice(op, 1.0, [1.0], [operation])


def by_torchvision(
    image: UInt8Array, name: str, magnitude: float, fill: Any = None, interpolation: str = "nearest"
) -> UInt8Array:
    """The operation as torchvision does it on a Pillow image."""
    picture = v2.RandAugment()._apply_image_or_video_transform(
        Image.fromarray(image), name, magnitude, v2.InterpolationMode(interpolation), {Image.Image: fill}
    )
    return np.asarray(picture)


def test_policies_and_magnitudes_are_torchvisions() -> None:
    for name, theirs in zip(auto_augment.POLICIES, v2.AutoAugmentPolicy, strict=True):
        assert name == theirs.value
        assert list(auto_augment.POLICIES[name]) == v2.AutoAugment(theirs)._policies
    for peer, most in (
        (v2.RandAugment, auto_augment.MODERATE),
        (v2.AutoAugment, auto_augment.MODERATE),
        (v2.TrivialAugmentWide, auto_augment.WIDE),
    ):
        space = peer._AUGMENTATION_SPACE
        assert {*space} - {"Invert"} <= {*OPERATIONS} <= {*space, "Identity"}
        for bins in (7, 10, 31):
            for size in ((224, 224), (33, 48)):
                part_of = size if peer is not v2.TrivialAugmentWide else None
                ours = auto_augment.magnitudes_of(most, bins, part_of)
                for name, (magnitudes, signed) in space.items():
                    numbers = magnitudes(bins, *size)
                    if numbers is None:
                        assert name in auto_augment.PLAIN
                        continue
                    assert signed == (name not in auto_augment.UNSIGNED)
                    # torch rounds once or twice, as the processor has it
                    assert np.allclose(ours[name], np.asarray(numbers, float), rtol=2e-7, atol=0)


@pytest.mark.parametrize("size", [(16, 16), (33, 48)])
@pytest.mark.parametrize("name", [*auto_augment.WIDE, "Invert", *OPERATIONS[-2:]])
def test_operations_have_torchvisions_pixels(name: str, size: Size) -> None:
    image = noise(1, *size, 3)
    moderate, wide = (
        auto_augment.magnitudes_of(most, 7, None).get(name, [0.0] * 7)
        for most in (auto_augment.MODERATE, auto_augment.WIDE)
    )
    found = {moderate[4], wide[1], wide[4], wide[6]}  # wide[4] of a rotation is a right angle
    signs = {1: None} if name in auto_augment.UNSIGNED else {1: None, -1: (7, 100, 200)}
    for magnitude in found:
        for sign, fill in signs.items():
            operation = Operation(name, sign * magnitude, fill)
            (row,) = delivered(in_order(sp.Arrays(image=image), operation))
            wanted = by_torchvision(image[0], name, sign * magnitude, fill)
            assert explain_difference(row, wanted) == "", operation


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"])
def test_interpolated_warps_have_torchvisions_pixels(
    name: str, interpolation: auto_augment.AugmentInterpolation
) -> None:
    image = noise(1, 33, 48, 3)
    for magnitude in auto_augment.magnitudes_of(auto_augment.WIDE, 7, None)[name]:
        operation = Operation(name, magnitude, (7, 100, 200), interpolation)
        (row,) = delivered(in_order(sp.Arrays(image=image), operation))
        wanted = by_torchvision(image[0], name, magnitude, (7, 100, 200), interpolation)
        assert explain_difference(row, wanted) == "", operation


def chosen(draws: Draws, count: int) -> int:
    draws.uniform()  # whether it takes place
    drawn = draws.uniform()
    return next(number for number in range(count) if drawn < (number + 1) / count)


def signed(draws: Draws, name: str, magnitude: float | None) -> float:
    """The magnitude with the sign that is drawn for it."""
    if magnitude is None or name in auto_augment.UNSIGNED:
        chosen(draws, 1)
        return magnitude or 0.0
    return magnitude * (-1, 1)[chosen(draws, 2)]


def operated(image: UInt8Array, draws: Draws, name: str, magnitude: float, fill: Any = None) -> UInt8Array:
    """An operation, with the numbers that its native pass takes."""
    if name != "Identity":
        draws.uniform()  # whether it takes place
    if name in ("Brightness", "Color", "Contrast"):
        draws.uniform()  # the factor, of a range of one
    return by_torchvision(image, name, magnitude, fill)


def test_rand_augment_draws_operations_and_signs() -> None:
    images = noise(60, 20, 20, 3)
    rows = delivered(in_order(sp.Arrays(image=images), sp.RandAugment(3, 11), seed=3), epoch=1)
    magnitudes = auto_augment.magnitudes_of(auto_augment.MODERATE, 31, (20, 20))
    names = set()
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws = Sample(3, 1, position).draws(16 << 16)
        chosen(draws, 1)
        for _ in range(3):
            name = OPERATIONS[chosen(draws, len(OPERATIONS))]
            names.add(name)
            found = magnitudes.get(name)
            image = operated(image, draws, name, signed(draws, name, found[11] if found else None))
        assert explain_difference(row, image) == ""
    assert names == {*OPERATIONS}


def test_trivial_augment_draws_a_magnitude_too() -> None:
    images = noise(60, 40, 40, 3)
    rows = delivered(in_order(sp.Arrays(image=images), sp.TrivialAugmentWide(5, fill=9), seed=3))
    magnitudes = auto_augment.magnitudes_of(auto_augment.WIDE, 5, None)
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws = Sample(3, 0, position).draws(17 << 16)
        chosen(draws, 1)
        name = OPERATIONS[chosen(draws, len(OPERATIONS))]
        found = magnitudes.get(name)
        number = chosen(draws, len(found or [0]))
        magnitude = signed(draws, name, found[number] if found else None)
        wanted = operated(image, draws, name, magnitude, (9, 9, 9))
        assert explain_difference(row, wanted) == ""


def test_auto_augment_draws_a_pair() -> None:
    images = noise(60, 20, 20, 3)
    rows = delivered(in_order(sp.Arrays(image=images), sp.AutoAugment("cifar10"), seed=3))
    magnitudes = auto_augment.magnitudes_of(auto_augment.MODERATE, 10, (20, 20))
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws = Sample(3, 0, position).draws(18 << 16)
        chosen(draws, 1)
        for name, p, number in auto_augment.POLICIES["cifar10"][chosen(draws, 25)]:
            unmade = Draws(0, 0, 0, 0)
            unmade.state = draws.state
            if unmade.uniform() < p:
                magnitude = signed(draws, name, None if number is None else magnitudes[name][number])
                image = operated(image, draws, name, magnitude)
            else:
                draws.uniform()
        assert explain_difference(row, image) == ""


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandAugment(-1), "num_ops=-1"),
        (sp.RandAugment(magnitude=31), "an integer from 0 to 30"),
        (sp.RandAugment(num_magnitude_bins=1), "from 2 to 1000"),
        (sp.RandAugment(interpolation="box"), "one of 'nearest', 'bilinear', 'bicubic'"),  # type: ignore[arg-type]
        (sp.RandAugment(fill=256), "a level from 0 to 255"),
        (sp.TrivialAugmentWide(fill=(1, 2)), "must have 3 numbers"),  # type: ignore[arg-type]
        (sp.AutoAugment("imagenet21k"), "policy must be one of 'imagenet', 'cifar10', 'svhn'"),  # type: ignore[arg-type]
    ],
)
def test_parameters_that_cannot_work_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=noise(1, 8, 8, 3)), transform).plan()


def test_images_of_one_size_are_needed() -> None:
    with pytest.raises(sp.PlanError, match="RandAugment needs images of one size"):
        sp.RandAugment().size_after(None)
