"""The reference for AugMix: torchvision's own code, with standpipe's random numbers, on a Pillow image.

Its operations are done on Pillow images, as standpipe does them, or on tensors. The rest is torchvision's code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import standpipe as sp
from draws import Draws
from standpipe.spec import UInt8Array
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2


def mixed(transform: sp.AugMix, image: Image.Image, draws: Draws, *, tensors: bool = False) -> UInt8Array:
    """The picture that AugMix makes with the random numbers of ``draws``, which begin with those of the stage.

    tensors  operations are done on tensors, as torchvision does them
    """
    draws.uniform()  # whether it takes place
    with pytest.MonkeyPatch.context() as patch:
        peer = Peer(transform, draws, tensors)
        patch.setattr(torch, "randint", peer.randint)
        patch.setattr(torch, "rand", peer.rand)
        return np.asarray(peer(image))


def chosen(draws: Draws, count: int) -> int:
    draws.uniform()  # whether it takes place
    drawn = draws.uniform()
    return next(number for number in range(count) if drawn < (number + 1) / count)


class Peer(v2.AugMix):
    def __init__(self, like: sp.AugMix, draws: Draws, tensors: bool) -> None:
        how = {"interpolation": v2.InterpolationMode(like.interpolation), "fill": like.fill}
        super().__init__(like.severity, like.mixture_width, like.chain_depth, like.alpha, like.all_ops, **how)
        self.draws, self.tensors = draws, tensors
        self.names: list[str] = []
        self.depths: list[int] = []

    def randint(self, *bounds: Any, low: int = 0, high: int = 0, size: Any = None) -> Any:
        if size is None:  # of magnitudes
            return torch.tensor(chosen(self.draws, bounds[0]))
        self.depths.append(low + self.draws.below(high - low))
        return torch.tensor(self.depths[-1:])

    def rand(self, size: Any) -> Any:
        return torch.tensor(float(chosen(self.draws, 2)))  # 0 for a negative magnitude

    def _sample_dirichlet(self, params: Any) -> Any:
        parts = [log_gamma(float(alpha), self.draws) for alpha in params[0]]
        parts = [math.exp(each - max(parts)) for each in parts]
        return torch.tensor([[each / sum(parts) for each in parts]], dtype=torch.float32)

    def _get_random_item(self, dct: dict[str, Any]) -> tuple[str, Any]:
        name = list(dct)[chosen(self.draws, len(dct))]
        self.names.append(name)
        return name, dct[name]

    def _apply_image_or_video_transform(self, image: Any, transform_id: str, *args: Any, **how: Any) -> Any:
        if transform_id in ("AutoContrast", "Equalize"):
            chosen(self.draws, 1)  # of one magnitude
        if transform_id in ("AutoContrast", "Equalize", "Posterize", "Solarize"):
            chosen(self.draws, 1)  # of one sign
        self.draws.uniform()  # whether the operation takes place
        if transform_id in ("Brightness", "Color", "Contrast"):
            self.draws.uniform()  # the factor, of a range of one
        if self.tensors or transform_id == "Posterize":  # Pillow refuses 0 bits, which leave black
            return super()._apply_image_or_video_transform(image, transform_id, *args, **how)
        picture = v2.functional.to_pil_image(image[0])
        changed = super()._apply_image_or_video_transform(picture, transform_id, *args, **how)
        return v2.functional.pil_to_tensor(changed)[None]


def log_gamma(shape: float, draws: Draws) -> float:
    """Marsaglia and Tsang's method."""
    third = shape + 1 - 1 / 3
    while True:
        number = normal(draws.word())
        cube, limit = (1 + number / math.sqrt(9 * third)) ** 3, math.log(1 - draws.uniform())
        if cube > 0 and limit < number**2 / 2 + third * (1 - cube + math.log(cube)):
            return math.log(third * cube) + math.log(1 - draws.uniform()) / shape


CENTRE = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1.0),
)
NEAR = (
    (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777),
    (0.12021132975, 0.73700164250, 1.0),
)
FAR = (
    (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150),
    (0.012258202635, 0.24197894225, 1.0),
)


def normal(word: int) -> float:
    """A normal number by algorithm AS 241, PPND7 (Wichura, 1988), which is 1e-7 away from a more exact one."""
    p = ((word >> 11) + 0.5) * 2.0**-53
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * ratio(CENTRE, 0.180625 - q * q)
    tail = p if q < 0 else ((word ^ (2**64 - 1)) >> 11) * 2.0**-53 + 2.0**-54
    r = math.sqrt(-math.log(tail))
    value = ratio(NEAR, r - 1.6) if r <= 5 else ratio(FAR, r - 5)
    return -value if q < 0 else value


def ratio(polynomials: Any, x: float) -> float:
    above, below = (np.polyval(each, x) for each in polynomials)
    return float(above / below)
