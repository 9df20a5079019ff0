"""Finish images on a device: convert each byte to a number and reorder axes, in one step."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

CHUNK_BYTES = 32 << 20  # of places in the table, without Triton


class Finisher:
    """Turns (n, H, W, 3) uint8 into what the host's kernel would have written, bit for bit.

    table   (3, 256): what the bytes of each channel become
    dtype   that results may have too, beside the table's
    planar  whether the shape is (n, 3, H, W), whatever the strides
    place   brings tensors to where images are
    """

    def __init__(
        self,
        table: torch.Tensor,
        dtype: torch.dtype,
        *,
        planar: bool,
        place: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    ) -> None:
        self._planar, self.dtype = planar, table.dtype
        flat = table.reshape(-1).contiguous()
        self._tables = {each: place(flat.to(each)) for each in {table.dtype, dtype}}
        self._offsets = place(torch.arange(0, 768, 256, dtype=torch.int32, device=table.device))

    def shape(self, images: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result, for images (n, H, W, 3)."""
        rows, height, width, channels = images
        return (rows, channels, height, width) if self._planar else images

    def finish(self, images: torch.Tensor, out: torch.Tensor) -> None:
        """Fill ``out``: (n, 3, H, W) or (n, H, W, 3) in any order of memory, on the current stream."""
        pixels, table = out.permute(0, 2, 3, 1) if self._planar else out, self._tables[out.dtype]
        if not (images.is_cuda and _by_triton(images, table, pixels)):
            self._look_up(images, table, pixels)

    def _look_up(self, images: torch.Tensor, table: torch.Tensor, pixels: torch.Tensor) -> None:
        """Without Triton: places in the table, some rows at once, and what stands there."""
        rows = max(CHUNK_BYTES // (images[0].numel() * 4), 1)
        for begin in range(0, len(images), rows):
            part = pixels[begin : begin + rows]
            places = torch.empty_like(part, dtype=torch.int32)  # in the order of memory that the result has
            torch.add(images[begin : begin + rows], self._offsets, out=places)
            strides = part.stride()
            in_memory = sorted(range(part.ndim), key=lambda axis: -strides[axis])
            places, part = places.permute(in_memory), part.permute(in_memory)
            torch.index_select(table, 0, places.reshape(-1), out=part.reshape(-1))


_without_triton: list[str] = []  # why, once it is known


def _by_triton(images: torch.Tensor, table: torch.Tensor, pixels: torch.Tensor) -> bool:
    """Finish images by Triton; return False if it isn't usable. Its first use also needs a C compiler."""
    if not _without_triton:
        try:
            from standpipe.torch.kernels import finish

            finish(images, table, pixels)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            _without_triton.append(f"{type(error).__name__}: {error}")
            logging.getLogger("standpipe").info("images are finished without Triton: %s", _without_triton[0])
    return not _without_triton
