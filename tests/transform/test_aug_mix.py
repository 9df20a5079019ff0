"""AugMix has torchvision's arithmetic bit for bit, with its operations on Pillow images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from jpegs import photo
from photos import encoded
from reference import delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths
from standpipe.transform.pixels import aug_mix

pytest.importorskip("torch")
from mixed import Peer, mixed
from torchvision_cpu import torchvision

v1, v2 = torchvision.transforms, torchvision.transforms.v2
KIND = 47 << 16
MIXES = [
    sp.AugMix(),
    sp.AugMix(10, 1, 2, 0.3, all_ops=False, fill=(7, 100, 200)),
    sp.AugMix(6, 16, 1, 40, interpolation="nearest"),
    sp.AugMix(1, 2, 0, 0.001, interpolation="bicubic", fill=9),
]


def photos(count: int, height: int, width: int) -> UInt8Array:
    return np.stack([photo(height, width, seed=seed) for seed in range(count)])


@pytest.mark.parametrize("transform", MIXES, ids=repr)
def test_pixels_are_torchvisions(transform: sp.AugMix) -> None:
    levels = np.arange(256).repeat(3).reshape(1, 16, 16, 3).astype(np.uint8)
    flat = np.stack([np.full((5, 7, 3), level, np.uint8) for level in (0, 1, 128, 200, 254, 255)])
    odd = [photos(3, *size) for size in ((1, 1), (1, 9), (11, 1), (2, 2), (7, 5), (23, 37), (64, 48))]
    for images in (*odd, levels, flat):
        wanted = [
            mixed(transform, Image.fromarray(image), Sample(3, 2, position).draws(KIND))
            for position, image in enumerate(images)
        ]
        for simd in simd_paths():
            rows = delivered(in_order(sp.Arrays(image=images), transform, seed=3), epoch=2, simd=simd)
            for row, peer in zip(rows, wanted, strict=True):
                assert explain_difference(row, peer) == "", (simd, row.shape)


def test_chains_are_as_deep_and_choose_as_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every depth and operation is among those that the test before compares."""
    peers: list[Any] = []
    monkeypatch.setattr(Peer, "__call__", lambda peer, image: peers.append(peer) or Peer.forward(peer, image))
    for position in range(40):
        mixed(sp.AugMix(), Image.fromarray(photo(8, 8)), Sample(3, 2, position).draws(KIND))
    assert {name for peer in peers for name in peer.names} == set(v2.AugMix._AUGMENTATION_SPACE)
    assert {depth for peer in peers for depth in peer.depths} == {1, 2, 3}


def test_names_and_magnitudes_are_torchvisions() -> None:
    space = v2.AugMix._AUGMENTATION_SPACE
    assert list(space) == list(aug_mix.NAMES)
    assert set(space) - set(v2.AugMix._PARTIAL_AUGMENTATION_SPACE) == set(aug_mix.ONLY_OF_ALL)
    for height in (1, 2, 9, 27, 224, 1000):
        ours = aug_mix._magnitudes((height, height + 1))
        for name, (magnitudes, _) in space.items():
            theirs = magnitudes(aug_mix.BINS, height, height + 1)
            # torch rounds once or twice, as the processor has it
            assert np.allclose(
                ours.get(name, []), [] if theirs is None else theirs.tolist(), rtol=2e-7, atol=0
            )
            if name.startswith(("Translate", "Posterize")):
                assert list(map(int, ours[name])) == list(map(int, theirs.tolist()))


def test_torchvisions_operations_on_tensors_are_near() -> None:
    """0.1 levels away on average on photos of 224 × 224 pixels; borders of warps count for more on small ones."""
    away = []
    for position in range(12):
        image = Image.fromarray(photo(96, 96, seed=position))
        with_pillow, with_tensors = (
            mixed(sp.AugMix(), image, Sample(0, 0, position).draws(KIND), tensors=tensors)
            for tensors in (False, True)
        )
        away.append(np.abs(with_pillow.astype(int) - with_tensors).mean())
    assert 0 < np.mean(away) < 0.3, np.mean(away)


def test_it_can_be_in_groups_and_views_and_after_other_transforms() -> None:
    images = photos(40, 20, 24)
    part = sp.AugMix(chain_depth=2)
    group = sp.RandomApply([sp.RandomInvert(1), part, sp.RandomSolarize(90, 1)], p=1)
    for position, (image, row) in enumerate(
        zip(images, delivered(in_order(sp.Arrays(image=images), group)), strict=True)
    ):
        draws = Sample(0, 0, position).draws(13 << 16)
        for _ in range(3):
            draws.uniform()  # whether the group takes place, its only list, and whether the first part does
        picture = Image.fromarray(mixed(part, Image.fromarray(255 - image), draws))
        assert explain_difference(row, np.asarray(v2.functional.solarize(picture, 90))) == ""
    posterized = in_order(sp.Arrays(image=images), sp.RandomPosterize(2, 1), part)
    for position, (image, row) in enumerate(zip(images, delivered(posterized), strict=True)):
        assert (
            explain_difference(
                row, mixed(part, Image.fromarray(image & 192), Sample(0, 0, position).draws(KIND))
            )
            == ""
        )
    views = in_order(sp.Arrays(image=images), sp.Views(one=[part], two=[sp.RandomPosterize(2, 1), part]))
    with views.loader() as loader:
        batch = next(iter(loader))
        assert (batch["one"] != batch["two"]).any(axis=(1, 2, 3)).mean() > 0.9


def test_python_workers_give_the_same_rows() -> None:
    images = photos(20, 20, 24)
    natively = delivered(in_order(sp.Arrays(image=images), sp.AugMix()))
    beside = in_order(sp.Arrays(image=images), sp.AugMix(), lambda sample: sample)
    assert np.array_equal(natively, delivered(beside))


def test_memory_of_large_images_is_counted(tmp_path: Path) -> None:
    """15 bytes for each pixel, and 3 for a warp: 18 MB here."""
    files = listed(tmp_path, [encoded(photo(20, 20), "JPEG")])
    large = sp.Resize((1000, 1000))
    for transforms in (
        [large, sp.RandAugment(interpolation="bilinear")],
        [sp.Resize(300), sp.CenterCrop(300)],
    ):
        with in_order(files, *transforms).loader(large_image_memory="12MiB", num_workers=1) as loader:
            assert len(next(iter(loader))["image"]) == 1
    with (
        in_order(files, large, sp.AugMix()).loader(large_image_memory="12MiB", num_workers=1) as loader,
        pytest.raises(sp.DecodeError, match="more than large_image_memory="),
    ):
        next(iter(loader))


def test_masks_are_refused() -> None:
    images = photos(2, 8, 9)
    masked = sp.Arrays(image=images, mask=np.zeros((2, 8, 9), np.uint8))
    for transform in (sp.AugMix(), sp.RandomApply([sp.RandomRotation(5), sp.AugMix()])):
        with pytest.raises(sp.PlanError, match="but not the field 'mask', which would no longer fit"):
            in_order(masked, transform).plan()


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.AugMix(0), r"AugMix\(severity=0\): severity must be an integer from 1 to 10"),
        (sp.AugMix(11), "severity must be an integer from 1 to 10"),
        (sp.AugMix(mixture_width=17), "mixture_width must be an integer from 1 to 16"),
        (sp.AugMix(chain_depth=17), "chain_depth must be an integer of at most 16"),
        (sp.AugMix(chain_depth=1.5), "chain_depth must be an integer of at most 16"),  # type: ignore[arg-type]
        (sp.AugMix(alpha=0), "alpha must be a number from 0.001 to 1,000,000"),
        (sp.AugMix(all_ops=2), "all_ops must be True or False"),  # type: ignore[arg-type]
        (sp.AugMix(interpolation="box"), "one of 'nearest', 'bilinear', 'bicubic'"),  # type: ignore[arg-type]
        (sp.AugMix(fill=256), "a level from 0 to 255"),
    ],
)
def test_parameters_that_cannot_work_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=photos(1, 8, 8)), transform).plan()


def test_images_of_one_size_are_needed() -> None:
    with pytest.raises(sp.PlanError, match="AugMix needs images of one size"):
        sp.AugMix().size_after(None)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_torchvisions_objects_are_converted(module: Any) -> None:
    assert sp.from_torchvision([module.AugMix()]).native == (sp.AugMix(),)
    nearest = module.InterpolationMode.NEAREST
    given = module.AugMix(5, 2, 4, 0.5, all_ops=False, interpolation=nearest, fill=[1, 2, 3])
    wanted = sp.AugMix(5, 2, 4, 0.5, all_ops=False, interpolation="nearest", fill=(1, 2, 3))
    assert sp.from_torchvision([given]).native == (wanted,)
    box = module.AugMix(interpolation=module.InterpolationMode.BOX)
    assert not sp.from_torchvision([box]).native
