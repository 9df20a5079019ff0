"""MixUp and CutMix on a device, in place: the bits that the host gives, with little memory beside the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

PIECE_BYTES = 16 << 20  # of float32, that are mixed at once
SHARES = 1 << 16  # a weight is a multiple of one of these

Box = tuple[int, int, int, int]


def mix_up(images: torch.Tensor, share: float) -> None:
    """Replace each image by the weighted mean of itself and the one before, the first with the last; (rows,
    …).
    """
    mix = _mean_of_bytes if images.dtype == torch.uint8 else _mean_of_numbers
    _with_the_one_before(images, lambda own, other: own.copy_(mix(own, other, share)))


def cut_mix(images: torch.Tensor, box: Box, *, planar: bool) -> None:
    """The box of each image comes from the one before, of the first from the last.

    images  (rows, C, H, W), or (rows, H, W, C)
    """
    top, left, bottom, right = box
    cut = images[:, :, top:bottom, left:right] if planar else images[:, top:bottom, left:right]
    if cut.numel():
        _with_the_one_before(cut, lambda own, other: own.copy_(other.clone()))


def mix_images(images: torch.Tensor, mixes: Iterable[Any]) -> None:
    """Apply a batch's mixes to its images, in order and in place; (rows, …)."""
    for mix in mixes:
        if mix.box is None:
            mix_up(images, mix.share)
        else:
            cut_mix(images, mix.box, planar=mix.planar)


def mix_labels(labels: torch.Tensor, mixes: Iterable[Any], out: torch.Tensor) -> None:
    """Apply a batch's mixes to its labels, (rows,) integers, into ``out``, (rows, classes)."""
    shares = torch.zeros(out.shape, device=labels.device).scatter_(1, labels.long()[:, None], 1.0)
    for mix in mixes:
        shares = shares.roll(1, 0).mul_(1 - mix.share).add_(shares * mix.share)
    out.copy_(shares)


def _with_the_one_before(images: torch.Tensor, mix: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Call ``mix`` with images and those before them as they were, some at once, from the last to the first."""
    last = images[-1:].clone()
    rows = max(PIECE_BYTES // (images[0].numel() * 4), 1)
    for stop in range(len(images), 0, -rows):
        begin = max(stop - rows, 0)
        before = images[begin - 1 : stop - 1] if begin else torch.cat((last, images[: stop - 1]))
        mix(images[begin:stop], before)


def _mean_of_numbers(own: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    """Return the mean, in float32, rounded after each operation: no fused multiply-add."""
    return torch.mul(other.float(), 1 - share).add_(torch.mul(own.float(), share))


def _mean_of_bytes(own: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    """Return the mean, rounded to the nearest byte."""
    whole = round(share * SHARES)
    return (own.int() * whole + other.int() * (SHARES - whole) + SHARES // 2) >> 16
