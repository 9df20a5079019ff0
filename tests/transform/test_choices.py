"""What transforms choose, and how often: exact counts of 100,000 results against the laws of torchvision and timm.

A law lists every picture that can come out, made by torchvision or timm on a Pillow image, with its probability. A
small picture shows which one was chosen, or in which order. Seeds are fixed: no test can fail by chance.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from distributions import check_counts, pictures, transformed
from standpipe.spec import UInt8Array

pytest.importorskip("torch")
from torchvision_cpu import torchvision

timm = pytest.importorskip("timm.data.auto_augment")

v2 = torchvision.transforms.v2
F = v2.functional
Picture = Image.Image
Change = Callable[[Picture], Picture]
NEAREST, BILINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR


def noise(height: int, width: int, lowest: int = 0, end: int = 256) -> UInt8Array:
    return np.random.default_rng(5).integers(lowest, end, (height, width, 3), np.uint8)


def of(picture: UInt8Array, *changes: Change) -> bytes:
    image = Image.fromarray(picture)
    for change in changes:
        image = change(image)
    return image.tobytes()


def in_turn(picture: UInt8Array, *laws: Sequence[tuple[float, Change]]) -> Iterator[tuple[float, bytes]]:
    """The law of independent choices, one after another."""
    for chosen in itertools.product(*laws):
        probability = float(np.prod([p for p, _ in chosen]))
        yield probability, of(picture, *(change for _, change in chosen))


def same(image: Picture) -> Picture:
    return image


def grey(image: Picture) -> Picture:
    return F.rgb_to_grayscale(image, 3)


# Different probabilities, so that no two can be confused.
AT_RANDOM: list[tuple[Any, Change]] = [
    (sp.RandomHorizontalFlip(0.45), F.horizontal_flip),
    (sp.RandomVerticalFlip(0.3), F.vertical_flip),
    (sp.RandomInvert(0.2), F.invert),
    (sp.RandomPosterize(3, 0.35), lambda image: F.posterize(image, 3)),
    (sp.RandomSolarize(150, 0.4), lambda image: F.solarize(image, 150)),
    (sp.RandomAdjustSharpness(2, 0.55), lambda image: F.adjust_sharpness(image, 2)),
    (sp.RandomAutocontrast(0.6), F.autocontrast),
    (sp.RandomEqualize(0.7), F.equalize),
    (sp.RandomGrayscale(0.15), grey),
]


def test_probabilities_are_met_and_independent() -> None:
    """Nine transforms in turn: 512 pictures."""
    picture = noise(6, 5, 60, 200)
    law = in_turn(picture, *([(each.p, change), (1 - each.p, same)] for each, change in AT_RANDOM))
    check_counts(pictures(picture, *(each for each, _ in AT_RANDOM)), law)


def test_default_probabilities_are_torchvisions() -> None:
    for ours, theirs in (
        (sp.RandomHorizontalFlip(), v2.RandomHorizontalFlip()),
        (sp.RandomVerticalFlip(), v2.RandomVerticalFlip()),
        (sp.RandomInvert(), v2.RandomInvert()),
        (sp.RandomPosterize(3), v2.RandomPosterize(3)),
        (sp.RandomSolarize(3), v2.RandomSolarize(3)),
        (sp.RandomAdjustSharpness(2), v2.RandomAdjustSharpness(2)),
        (sp.RandomAutocontrast(), v2.RandomAutocontrast()),
        (sp.RandomEqualize(), v2.RandomEqualize()),
        (sp.RandomGrayscale(), v2.RandomGrayscale()),
        (sp.RandomPerspective(), v2.RandomPerspective()),
        (sp.RandomErasing(), v2.RandomErasing()),
        (sp.RandomApply([sp.RandomInvert()]), v2.RandomApply([same])),
    ):
        assert ours.p == theirs.p, ours


def test_groups_choose_by_weight_and_shuffle_evenly() -> None:
    picture = noise(4, 4, 30, 220)
    changes: list[Change] = [
        lambda image: F.solarize(image, 110),
        F.equalize,
        lambda image: F.posterize(image, 2),
    ]
    parts = [sp.RandomSolarize(110, 1), sp.RandomEqualize(1), sp.RandomPosterize(2, 1)]
    weights = v2.RandomChoice(changes, p=[3, 1, 2]).p  # which torchvision divides by their sum
    orders = [
        (1 / 6, lambda image, order=order: of_all(image, [changes[k] for k in order]))
        for order in itertools.permutations(range(3))
    ]
    law = in_turn(
        picture,
        [(0.3, lambda image: F.vertical_flip(F.invert(image))), (0.7, same)],
        [(float(weight), change) for weight, change in zip(weights, changes, strict=True)],
        orders,
    )
    both = sp.RandomApply([sp.RandomInvert(1), sp.RandomVerticalFlip(1)], p=0.3)
    check_counts(pictures(picture, both, sp.RandomChoice(parts, p=(3, 1, 2)), sp.RandomOrder(parts)), law)


def of_all(image: Picture, changes: Sequence[Change]) -> Picture:
    for change in changes:
        image = change(image)
    return image


def test_jitter_has_every_order_equally_often() -> None:
    """torchvision's order is a random permutation of the four changes."""
    changes: list[Change] = [
        lambda image: F.adjust_brightness(image, 1.4),
        lambda image: F.adjust_contrast(image, 0.6),
        lambda image: F.adjust_saturation(image, 1.8),
        lambda image: F.adjust_hue(image, 0.2),
    ]
    picture = noise(6, 6)
    law = [(1 / 24, of(picture, *order)) for order in itertools.permutations(changes)]
    assert len({outcome for _, outcome in law}) == 24
    check_counts(pictures(picture, sp.ColorJitter((1.4, 1.4), (0.6, 0.6), (1.8, 1.8), (0.2, 0.2))), law)


def test_crops_are_anywhere_in_the_padded_picture() -> None:
    places = np.zeros((9, 7, 3), np.uint8)
    places[..., 0], places[..., 1] = np.mgrid[:9, :7]
    padded = np.pad(places, ((2, 2), (1, 1), (0, 0)), constant_values=255)
    law = [(1 / 117, pixel.tobytes()) for pixel in padded.reshape(-1, 3)]
    check_counts(pictures(places, sp.RandomCrop(1, padding=(1, 2), fill=255)), law)


def test_resizes_have_every_length_equally_often() -> None:
    """torchvision's ``RandomResize`` takes ``torch.randint(min_size, max_size)``."""
    white = np.full((12, 12, 3), 255, np.uint8)
    crop = sp.CenterCrop((1, 30))  # black where the resized picture is shorter
    seen: Counter[Any] = Counter()
    for batch in transformed(white, sp.RandomResize(7, 29), crop):
        seen.update((batch[:, 0, :, 0] > 0).sum(axis=1).tolist())
    check_counts(seen, [(1 / 22, length) for length in range(7, 29)])


def test_each_listed_length_comes_equally_often() -> None:
    """torchvision's ``RandomShortestSize`` takes ``torch.randint(len(min_size))``: a length twice, twice as often."""
    white = np.full((12, 12, 3), 255, np.uint8)
    seen: Counter[Any] = Counter()
    for batch in transformed(white, sp.RandomShortestSize((7, 9, 12, 9)), sp.FixedSizeCrop((1, 30))):
        seen.update((batch[:, 0, :, 0] > 0).sum(axis=1).tolist())
    check_counts(seen, [(1 / 4, 7), (1 / 2, 9), (1 / 4, 12)])


def test_geometric_transforms_take_place_together() -> None:
    """All of a group or none, as torchvision's ``RandomApply``; a second group draws for itself."""
    white = np.full((12, 12, 3), 255, np.uint8)
    steps = [sp.Resize(9), sp.PadImage((4, 0, 0, 0)), sp.RandomHorizontalFlip(1)]
    seen: Counter[Any] = Counter()
    groups = sp.RandomApply(steps, p=0.3), sp.RandomApply([sp.Resize((20, 20))], p=0.6)
    for batch in transformed(white, *groups, sp.FixedSizeCrop((30, 30), fill=9)):
        down, across = (batch[:, :, 0, 0] != 9).sum(axis=1), (batch[:, 0, :, 0] != 9).sum(axis=1)
        black = (batch[:, 0, :, 0] == 0).argmax(axis=1)  # its first column
        seen.update(zip(down.tolist(), across.tolist(), black.tolist(), strict=True))
    assert {each for each in seen if each[:2] != (20, 20)} == {(9, 13, 9), (12, 12, 0)}
    counted: Counter[Any] = Counter()
    for (down, _, black), count in seen.items():
        counted[black > 0, down == 20] += count
    first, second = ((0.3, True), (0.7, False)), ((0.6, True), (0.4, False))
    check_counts(counted, [(p * q, (a, b)) for p, a in first for q, b in second])


def test_distortions_are_independent_and_in_one_of_two_orders() -> None:
    """Five changes are applied independently. Contrast comes second or last, and channels have all six orders."""
    picture = np.array([[(200, 90, 30), (20, 160, 240)]], np.uint8)
    change, p = sp.RandomPhotometricDistort((0.8, 0.8), (1.4, 1.4), (0.4, 0.4), (0.2, 0.2), 0.3), 0.3
    peer = v2.RandomPhotometricDistort()
    law = []
    for taken in itertools.product((False, True), repeat=4):
        names = [f"{name}_factor" for name in ("brightness", "contrast", "saturation", "hue")]
        factors = dict(zip(names, (0.8, 1.4, 0.4, 0.2), strict=True))
        drawn = {name: factors[name] if yes else None for name, yes in zip(names, taken, strict=True)}
        part = math.prod(p if yes else 1 - p for yes in taken)
        for first, order in itertools.product((False, True), [None, *itertools.permutations(range(3))]):
            of_order = 1 - p if order is None else p / 6
            more = {"contrast_before": first, "channel_permutation": order}
            pixels = np.asarray(peer.transform(Image.fromarray(picture), drawn | more))
            law.append((part / 2 * of_order, pixels.tobytes()))
    check_counts(pictures(picture, change), law)


def test_translations_are_rounded_as_torchvisions() -> None:
    """A uniform number from -3 to 3, rounded, is 3 half as often as 2."""
    places = np.ones((12, 15, 3), np.uint8)
    places[..., 0], places[..., 1] = np.mgrid[:12, :15]
    law = [
        (down / 7.2 * across / 6, places[6 - y, 7 - x].tobytes())
        for y, down in zip(range(-4, 5), (0.1, *(1,) * 7, 0.1), strict=True)
        for x, across in zip(range(-3, 4), (0.5, *(1,) * 5, 0.5), strict=True)
    ]
    moved = sp.RandomAffine(0, translate=(0.2, 0.3))  # up to 3 and 3.6 pixels
    check_counts(pictures(places, moved, sp.CenterCrop(1)), law)


def test_perspectives_move_corners_independently() -> None:
    """Corners move 0 to 2 pixels across and 0 or 1 down: 1,296 pictures, and as many without a change as ``p`` says."""
    picture = noise(7, 11)
    law = [(0.4 + 0.6 / 1296, picture.tobytes())]
    start = [[0, 0], [10, 0], [10, 6], [0, 6]]
    for xs in itertools.product(range(3), repeat=4):
        for ys in itertools.product(range(2), repeat=4):
            end = [[xs[0], ys[0]], [10 - xs[1], ys[1]], [10 - xs[2], 6 - ys[2]], [xs[3], 6 - ys[3]]]
            moved = F.perspective(Image.fromarray(picture), start, end, BILINEAR, [255] * 3)
            law += [(0.6 / 1296, moved.tobytes())] if end != start else []
    seen = pictures(picture, sp.RandomPerspective(0.4, 0.6, fill=255))
    check_counts(nearest(seen, [outcome for _, outcome in law]), law)


def nearest(seen: Counter[Any], known: list[bytes]) -> Counter[Any]:
    """Count each picture as the nearest of ``known``: the last bit of a coefficient can change some pixels."""
    pixels = np.array([np.frombuffer(each, np.uint8) for each in known], int).reshape(len(known), -1, 3)
    counted: Counter[Any] = Counter()
    for outcome, count in seen.items():
        if outcome not in known:
            away = np.abs(pixels - np.frombuffer(outcome, np.uint8).reshape(-1, 3)).max(axis=2) > 1
            first, second = np.argsort(away.sum(axis=1))[:2]
            assert away[first].sum() * 2 < away[second].sum()
            outcome = known[first]
        counted[outcome] += count
    return counted


# Policies: an operation of torchvision by its name and magnitude.
PICTURE = noise(12, 12)


def operation(name: str, magnitude: float) -> Change:
    apply = v2.RandAugment()._apply_image_or_video_transform
    return lambda image: apply(image, name, magnitude, NEAREST, {Image.Image: [9, 80, 200]})


def signs(name: str, magnitude: float, signed: bool) -> list[tuple[float, Change]]:
    if not signed:
        return [(1.0, operation(name, magnitude))]
    return [(0.5, operation(name, sign * magnitude)) for sign in (-1, 1)]


def weighted(part: float, law: list[tuple[float, Change]]) -> list[tuple[float, Change]]:
    return [(part * p, change) for p, change in law]


def test_rand_augment_chooses_as_torchvision() -> None:
    peer = v2.RandAugment()
    space = peer._AUGMENTATION_SPACE
    one: list[tuple[float, Change]] = []
    for name, (magnitudes, signed) in space.items():
        found = magnitudes(peer.num_magnitude_bins, 12, 12)
        magnitude = 0.0 if found is None else float(found[peer.magnitude])
        one += weighted(1 / len(space), signs(name, magnitude, signed))
    check_counts(
        pictures(PICTURE, sp.RandAugment(fill=(9, 80, 200))), in_turn(PICTURE, *[one] * peer.num_ops)
    )


def test_trivial_augment_chooses_as_torchvision() -> None:
    peer = v2.TrivialAugmentWide()
    space = peer._AUGMENTATION_SPACE
    one: list[tuple[float, Change]] = []
    for name, (magnitudes, signed) in space.items():
        found = magnitudes(peer.num_magnitude_bins, 12, 12)
        levels = [0.0] if found is None or found.ndim == 0 else found.tolist()
        for magnitude in levels:
            one += weighted(1 / len(space) / len(levels), signs(name, magnitude, signed))
    check_counts(pictures(PICTURE, sp.TrivialAugmentWide(fill=(9, 80, 200))), in_turn(PICTURE, one))


@pytest.mark.parametrize("policy", v2.AutoAugmentPolicy, ids=lambda policy: policy.value)
def test_auto_augment_chooses_as_torchvision(policy: Any) -> None:
    peer = v2.AutoAugment(policy)
    law: list[tuple[float, bytes]] = []
    for pair in peer._policies:
        laws = []
        for name, p, number in pair:
            magnitudes, signed = peer._AUGMENTATION_SPACE[name]
            found = magnitudes(10, 12, 12)
            magnitude = 0.0 if found is None else float(found[number])
            laws.append([*weighted(p, signs(name, magnitude, signed)), (1 - p, same)])
        law += [(each / 25, outcome) for each, outcome in in_turn(PICTURE, *laws)]
    check_counts(pictures(PICTURE, sp.AutoAugment(policy.value, fill=(9, 80, 200))), law)


@pytest.mark.parametrize(
    "mix", [sp.AugMix(1, all_ops=False), sp.AugMix(4, chain_depth=1)], ids=["depth", "operation"]
)
def test_aug_mix_chooses_as_torchvision(mix: sp.AugMix) -> None:
    """Weights are close to 1/2 with a large alpha: half of the picture, and half of the one copy."""
    mix = replace(mix, mixture_width=1, alpha=1e6, interpolation="nearest", fill=(9, 80, 200))
    picture = noise(6, 6)
    space = v2.AugMix._AUGMENTATION_SPACE if mix.all_ops else v2.AugMix._PARTIAL_AUGMENTATION_SPACE
    one: list[tuple[float, Change]] = []
    for name, (magnitudes, signed) in space.items():
        found = magnitudes(10, 6, 6)
        levels = [0.0] if found is None else found.tolist()[: mix.severity]
        for magnitude in levels:
            one += weighted(1 / len(space) / len(levels), signs(name, magnitude, signed and magnitude > 0))
    depths = (1, 2, 3) if mix.chain_depth < 0 else (mix.chain_depth,)
    law = [
        (p / len(depths), halves(picture, outcome))
        for depth in depths
        for p, outcome in in_turn(picture, *[one] * depth)
    ]
    known = list(dict.fromkeys(outcome for _, outcome in law))
    check_counts(nearest(pictures(picture, mix), known), law)


def halves(picture: UInt8Array, copy: bytes) -> bytes:
    mean = picture / 2 + np.frombuffer(copy, np.uint8).reshape(picture.shape) / 2
    return mean.astype(np.uint8).tobytes()


def timms(name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Change]]:
    """timm's operation at magnitude 9, for either sign and interpolation."""
    law = []
    for sign in (-1, 1):
        with monkeypatch.context() as patch:
            patch.setattr(timm, "_randomly_negate", lambda value, sign=sign: sign * value)
            level = timm.LEVEL_TO_ARG[name]
            arguments = () if level is None else level(9.0, {})
        for resample in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
            with_all = {"fillcolor": (9, 80, 200), "resample": resample}
            change = timm.NAME_TO_OP[name]
            law.append((0.25, lambda image, a=arguments, k=with_all, c=change: c(image, *a, **k)))
    return law


@pytest.mark.parametrize("increasing", [True, False])
def test_timms_rand_augment_chooses_as_timm(increasing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = timm._RAND_INCREASING_TRANSFORMS if increasing else timm._RAND_TRANSFORMS
    one: list[tuple[float, Change]] = [(0.3, same)]
    for name in names:
        one += weighted(0.7 / len(names), timms(name, monkeypatch))
    augment = sp.TimmRandAugment(1, 9, 0.0, increasing, p=0.7, fill=(9, 80, 200))
    check_counts(pictures(PICTURE, augment), in_turn(PICTURE, one))


def test_timms_rand_augment_chooses_each_operation_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of three operations at p=0.5: the same one may come several times."""
    names = ["Invert", "Solarize", "ColorIncreasing"]
    one: list[tuple[float, Change]] = [(0.5, same)]
    for name in names:
        one += weighted(0.5 / 3, timms(name, monkeypatch))
    augment = sp.TimmRandAugment(3, 9, 0.0, operations=names)
    check_counts(pictures(noise(4, 4), augment), in_turn(noise(4, 4), *[one] * 3))


def test_views_draw_apart() -> None:
    """Flips of four views of each image: 16 equally frequent outcomes."""
    picture = np.zeros((1, 2, 3), np.uint8)
    picture[0, 1] = 1
    flip = [sp.RandomHorizontalFlip()]
    same_record = sp.Pipeline(sp.Arrays(image=picture[None])).select(np.zeros(100_000, np.int64))
    pipeline = same_record.map(sp.Views(large=flip, small=sp.Repeat(3, flip))).batch(4000)
    seen: Counter[Any] = Counter()
    with pipeline.loader(num_workers=2) as loader:
        for batch in loader:
            assert set(batch) >= {"large", "small"}, list(batch)
            seen.update(bits(batch))
    check_counts(seen, [(1 / 16, number) for number in range(16)])


def bits(batch: dict[str, Any]) -> list[int]:
    flips = [batch["large"][:, 0, 0, 0], *np.moveaxis(batch["small"][:, :, 0, 0, 0], 1, 0)]
    return sum(each.astype(int) << number for number, each in enumerate(flips)).tolist()
