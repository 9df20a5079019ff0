"""MixUp and CutMix on a device, in place, with the same bits as on the host and little extra memory.

Each image is mixed with the image before it in the batch, and the first image with the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

PIECE_BYTES = 16 << 20  # of float32 that are mixed at once
SHARES = 1 << 16  # for bytes, weights are rounded to multiples of 1 / SHARES

Box = tuple[int, int, int, int]


def mix_up(images: torch.Tensor, share: float) -> None:
    """Replace each image by share · image + (1 − share) · the image before it; the first uses the last.

    images  (rows, …)
    share   weight of an image itself, 0 ≤ share ≤ 1
    """
    mix = _mean_of_bytes if images.dtype == torch.uint8 else _mean_of_numbers
    _with_the_one_before(images, lambda own, other: own.copy_(mix(own, other, share)))


def cut_mix(images: torch.Tensor, box: Box, *, planar: bool) -> None:
    """Replace a box of each image by the same box of the image before it; the first image uses the last.

    images  (rows, C, H, W) if planar, else (rows, H, W, C)
    box     (top, left, bottom, right) in pixels; bottom and right are excluded
    """
    top, left, bottom, right = box
    cut = images[:, :, top:bottom, left:right] if planar else images[:, top:bottom, left:right]
    if cut.numel():
        _with_the_one_before(cut, lambda own, other: own.copy_(other.clone()))


def mix_images(images: torch.Tensor, mixes: Iterable[Any]) -> None:
    """Apply MixUp and CutMix, in the order of ``mixes``, to a batch's images (rows, …) in place."""
    for mix in mixes:
        if mix.box is None:
            mix_up(images, mix.share)
        else:
            cut_mix(images, mix.box, planar=mix.planar)


def mix_labels(labels: torch.Tensor, mixes: Iterable[Any], out: torch.Tensor) -> None:
    """Write mixed labels into ``out`` (rows, classes), from the labels (rows,) integers and a batch's mixes.

    Each row of ``out`` has the weights of the classes; they sum to 1.
    """
    shares = torch.zeros(out.shape, device=labels.device).scatter_(1, labels.long()[:, None], 1.0)
    for mix in mixes:
        shares = shares.roll(1, 0).mul_(1 - mix.share).add_(shares * mix.share)
    out.copy_(shares)


def _with_the_one_before(images: torch.Tensor, mix: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Call ``mix(images, images before them)`` for some images at a time, from the last to the first.

    ``mix`` changes images in place; this sequence ensures that the images before them are still unchanged.
    """
    last = images[-1:].clone()
    rows = max(PIECE_BYTES // (images[0].numel() * 4), 1)
    for stop in range(len(images), 0, -rows):
        begin = max(stop - rows, 0)
        before = images[begin - 1 : stop - 1] if begin else torch.cat((last, images[: stop - 1]))
        mix(images[begin:stop], before)


def _mean_of_numbers(own: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    """Return share · own + (1 − share) · other in float32, rounded after each operation, as on the host."""
    return torch.mul(other.float(), 1 - share).add_(torch.mul(own.float(), share))


def _mean_of_bytes(own: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    """Return share · own + (1 − share) · other for uint8 images, rounded to the nearest integer."""
    whole = round(share * SHARES)
    return (own.int() * whole + other.int() * (SHARES - whole) + SHARES // 2) >> 16
