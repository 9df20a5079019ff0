"""Convert images on a device from bytes to numbers by a table, and reorder their axes, in one step."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

CHUNK_BYTES = 32 << 20  # of table indices at once, without Triton


class Finisher:
    """Converts images (n, H, W, C) uint8 on a device, with the same bits as the host's kernels.

    table   (C, 256): the number for each byte value of each channel
    dtype   a second dtype that results may have, besides the table's
    planar  True: results have the shape (n, C, H, W), with any strides; False: (n, H, W, C)
    place   copies a tensor to the device of the images
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
        self._offsets = place(torch.arange(0, len(flat), 256, dtype=torch.int32, device=table.device))

    def shape(self, images: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for images of the shape (n, H, W, C)."""
        rows, height, width, channels = images
        return (rows, channels, height, width) if self._planar else images

    def finish(self, images: torch.Tensor, out: torch.Tensor) -> None:
        """Convert ``images`` (n, H, W, C) into ``out`` on the current stream.

        out  of the shape that ``shape()`` returns, with any strides; its dtype is the table's or ``dtype``
        """
        pixels, table = out.permute(0, 2, 3, 1) if self._planar else out, self._tables[out.dtype]
        if not (images.is_cuda and _by_triton(images, table, pixels)):
            self._look_up(images, table, pixels)

    def _look_up(self, images: torch.Tensor, table: torch.Tensor, pixels: torch.Tensor) -> None:
        """Convert some images at a time by torch operations: compute table indices, then select from the table."""
        rows = max(CHUNK_BYTES // (images[0].numel() * 4), 1)
        for begin in range(0, len(images), rows):
            part = pixels[begin : begin + rows]
            places = torch.empty_like(part, dtype=torch.int32)  # in the order of memory that the result has
            torch.add(images[begin : begin + rows], self._offsets, out=places)
            strides = part.stride()
            in_memory = sorted(range(part.ndim), key=lambda axis: -strides[axis])
            places, part = places.permute(in_memory), part.permute(in_memory)
            torch.index_select(table, 0, places.reshape(-1), out=part.reshape(-1))


_without_triton: list[str] = []  # the reason why Triton can't be used, once known; else empty


def _by_triton(images: torch.Tensor, table: torch.Tensor, pixels: torch.Tensor) -> bool:
    """Convert images with Triton. Return False if Triton can't be used; its first use needs a C compiler."""
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
