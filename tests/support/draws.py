"""The random numbers of a sample, in plain Python: those of native/system/keys.h, and RandomResizedCrop's box.

Written from the rule and not from the kernel, so that a change of either shows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import standpipe as sp
from standpipe import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
KINDS = {  # the upper half of an op's number; the lower half is its place
    RandomResizedCrop: 1,
    RandomHorizontalFlip: 2,
    sp.RandomAdjustSharpness: 3,
    sp.RandomInvert: 4,
    sp.RandomPosterize: 5,
    sp.RandomSolarize: 6,
    sp.RandomAutocontrast: 7,
    sp.RandomEqualize: 8,
    sp.RandomGrayscale: 9,
    sp.ColorJitter: 10,
    sp.GaussianBlur: 11,
    sp.RandomVerticalFlip: 12,
    sp.RandomApply: 13,
    sp.RandomChoice: 14,
    sp.RandomOrder: 15,
    sp.RandomCrop: 20,
    sp.RandomErasing: 23,
    sp.RandomResize: 24,
    sp.RandomRotation: 25,
    sp.PillowGaussianBlur: 48,
    sp.RandomZoomOut: 49,
    sp.ScaleJitter: 50,
    sp.RandomShortestSize: 51,
    sp.FixedSizeCrop: 52,
    sp.RandomPhotometricDistort: 53,
    sp.RandomIoUCrop: 54,
    sp.RandomSizeCrop: 55,
    sp.RandomHSV: 56,
}
FILTER_KIND = 45  # of the random filter of RandomResizedCrop


def scramble(z: int) -> int:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def mix(key: int, word: int) -> int:
    return scramble(scramble(key + GOLDEN & WORD) ^ (word * 0xD1342543DE82EF95 + 1 & WORD))


class Draws:
    """The stream of one op of one sample."""

    def __init__(self, *words: int) -> None:
        self.state = 0
        for word in words:
            self.state = mix(self.state, word)

    def word(self) -> int:
        self.state = self.state + GOLDEN & WORD
        return scramble(self.state)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * ((self.word() >> 11) * 2.0**-53)

    def below(self, n: int) -> int:
        return (self.word() >> 32) * n >> 32


@dataclass(frozen=True)
class Sample:
    """The key of all random numbers of a sample.

    attempt  1 for the first sample that replaces a bad one
    salts    the number of one of several views, and of a group of geometric transforms
    """

    seed: int = 0
    epoch: int = 0
    position: int = 0
    attempt: int = 0
    salts: tuple[int, ...] = ()

    def draws(self, op: int) -> Draws:
        return Draws(self.seed, self.epoch, *self.salts, self.position, op, self.attempt)

    def view(self, name: str, number: int = 0) -> Sample:
        """The key of one view's random numbers."""
        digest = hashlib.blake2b(f"{name}/{number}".encode(), digest_size=8).digest()
        return replace(self, salts=(int.from_bytes(digest, "little"),))

    def group(self, op: int) -> Sample:
        """The key of the random numbers in a group of geometric transforms."""
        return replace(self, salts=(*self.salts, op))


def ops(transforms: Sequence[object]) -> list[int]:
    """The op number of each transform: its kind, and its place among those of its kind. 0 draws nothing."""
    kinds = [KINDS.get(type(transform), 0) for transform in transforms]
    return [kind and kind << 16 | kinds[:place].count(kind) for place, kind in enumerate(kinds)]


def crop_box(crop: RandomResizedCrop, size: tuple[int, int], draws: Draws) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) in an image of ``size`` = (width, height), as torchvision documents it."""
    width, height = size
    low, high = crop.ratio
    for _ in range(10):
        area = width * height * draws.uniform(*crop.scale)
        ratio = math.exp(draws.uniform(math.log(low), math.log(high)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            left = draws.below(width - w + 1)
            return left, top, left + w, top + h
    w, h = width, height
    if width / height < low:
        h = min(max(round(width / low), 1), height)
    elif width / height > high:
        w = min(max(round(height * high), 1), width)
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def crop_filter(crop: RandomResizedCrop, sample: Sample, place: int = 0) -> str:
    """The filter of a crop, which may be random. ``place``: the crop's, among the pipeline's crops."""
    if crop.interpolation != "random":
        return crop.interpolation
    return ("bilinear", "bicubic")[sample.draws(FILTER_KIND << 16 | place).below(2)]


def mirrors(flip: RandomHorizontalFlip, draws: Draws) -> bool:
    return draws.uniform() < flip.p


Geometric = RandomResizedCrop | Resize | CenterCrop | RandomHorizontalFlip


def affine_of(
    draws: Draws, height: int, width: int, scales: tuple[float, float] = (0.5, 2.0)
) -> dict[str, object]:
    """Return the parameters of RandomAffine(30, (0.2, 0.3), scales, (-20, 20, -5, 10)), in torchvision's order."""
    angle = draws.uniform(-30, 30)
    translate = tuple(
        round(draws.uniform(-part * side, part * side)) for part, side in ((0.2, width), (0.3, height))
    )
    scale, shear = draws.uniform(*scales), (draws.uniform(-20, 20), draws.uniform(-5, 10))
    return {"angle": angle, "translate": translate, "scale": scale, "shear": shear}


def corners(draws: Draws, height: int, width: int, scale: float) -> list[list[int]]:
    """Return the corners to which RandomPerspective(scale) moves those of an image."""
    across, down = int(scale * (width // 2)) + 1, int(scale * (height // 2)) + 1
    found = []
    for right, low in ((0, 0), (1, 0), (1, 1), (0, 1)):
        x = draws.below(across) + right * (width - across)
        found.append([x, draws.below(down) + low * (height - down)])
    return found
