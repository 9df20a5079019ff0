"""Native transforms say what they are; nothing but a class itself knows it by name."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import standpipe as sp
from reference import delivered, in_order
from standpipe import _native
from standpipe.transform import what_draws
from standpipe.transform.image import GeometricStep, GeometricTransform, ImageTransform

IMAGES = np.random.default_rng(5).integers(0, 256, (40, 6, 9, 3), np.uint8)


# The kinds are private; transforms of standpipe's own are written as this one is.
@dataclass(frozen=True, slots=True)
class OftenMirrored(GeometricTransform):
    """A transform that no other code has heard of."""

    draw_kind: ClassVar[int] = 0x4F
    step: ClassVar[GeometricStep] = GeometricStep.FLIP

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        stage.mirror(op=op, p=0.75)


def test_a_geometric_transform_needs_its_own_class_alone() -> None:
    rows = delivered(in_order(sp.Arrays(image=IMAGES), OftenMirrored(), sp.CenterCrop((6, 9))))
    mirrored = [np.array_equal(row, image[:, ::-1]) for row, image in zip(rows, IMAGES, strict=True)]
    assert all(
        is_mirrored or np.array_equal(row, image)
        for row, image, is_mirrored in zip(rows, IMAGES, mirrored, strict=True)
    )
    assert 20 < sum(mirrored) < 40
    assert what_draws(OftenMirrored()) == "OftenMirrored()"
    assert (
        "OftenMirrored + CenterCrop"
        in in_order(sp.Arrays(image=IMAGES), OftenMirrored(), sp.CenterCrop(6)).plan().explain()
    )


def test_no_two_transforms_draw_by_the_same_number() -> None:
    public = (getattr(sp, name) for name in sp.__all__)
    transforms = [each for each in public if isinstance(each, type) and issubclass(each, ImageTransform)]
    numbers = [each.draw_kind for each in transforms if each.draw_kind]
    numbers.append(sp.RandomResizedCrop.filter_draw_kind)
    assert len(numbers) == len(set(numbers))
    assert (sp.RandomResizedCrop.draw_kind, sp.RandomHorizontalFlip.draw_kind) == (1, 2)  # for good
    assert sp.RandomResizedCrop.filter_draw_kind == 45
