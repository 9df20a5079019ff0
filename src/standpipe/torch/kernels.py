"""A Triton kernel that converts image bytes to numbers. Triton compiles it at its first use."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

PIXELS = 1024  # of one program


@triton.jit  # type: ignore[untyped-decorator]
def _finish(  # type: ignore[no-untyped-def]  # Triton reads annotations
    images,
    table,
    out,
    pixels,
    image_pixels,
    width,
    row_stride,
    y_stride,
    x_stride,
    channel_stride,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute out[n, y, x, c] = table[c, images[n, y, x, c]] for BLOCK pixels; one program of the kernel."""
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = pixel < pixels
    row, place = pixel // image_pixels, pixel % image_pixels
    target = row * row_stride + (place // width) * y_stride + (place % width) * x_stride
    for channel in tl.static_range(CHANNELS):
        byte = tl.load(images + pixel * CHANNELS + channel, mask=there, other=0)
        value = tl.load(table + channel * 256 + byte.to(tl.int32), mask=there)
        tl.store(out + target + channel * channel_stride, value, mask=there)


def finish(images: torch.Tensor, table: torch.Tensor, out: torch.Tensor) -> None:
    """Convert image bytes to numbers by a table, on the current device's current stream.

    images  (n, H, W, C) uint8, in C order
    table   (256 · C,): the number for byte b of channel c is at 256 · c + b
    out     (n, H, W, C) of the table's dtype, with any strides; every number is written
    """
    rows, height, width, channels = images.shape
    pixels = rows * height * width
    _finish[(triton.cdiv(pixels, PIXELS),)](
        images,
        table,
        out,
        pixels,
        height * width,
        width,
        *out.stride(),
        CHANNELS=channels,
        BLOCK=PIXELS,
    )
