"""The kernel of a field ``mask``: the transforms of its image that move pixels, with the nearest pixel everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded, Transform
from standpipe.spec import ArraySpec, Decoding
from standpipe.transform.image import MASK, GeometricTransform, ImageTransform, PixelTransform, Size
from standpipe.transform.kernels.native import only_libjpeg
from standpipe.transform.kernels.stages import Stage, followed_by, with_ops


@dataclass(frozen=True, slots=True)
class MaskKernel:
    """The transforms that move a mask as they move its image. Random numbers are the image's.

    stages   passes over the mask, in order
    size_px  (height, width) of the slot's masks, in pixels
    """

    stages: tuple[Stage, ...]
    size_px: Size

    @property
    def output(self) -> ArraySpec:
        """The shape and dtype of the mask in one row of the slot."""
        return ArraySpec(self.size_px, np.dtype(np.uint8))

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """Return the kernel as a native program. ``ImageKernel.compile`` documents the arguments."""
        return _native.Program(
            stages=[stage.compile() for stage in self.stages],
            format=_native.RowFormat.mask(*self.size_px),
            fast=False,
            max_pixels=decoding.limits.max_pixels,
            max_scans=decoding.limits.max_scans,
            only_libjpeg=only_libjpeg(),
            simd=simd,
        )


def mask_kernel(
    transforms: Sequence[Transform], source_px: Size | None, *, earlier: Sequence[Transform] = ()
) -> MaskKernel:
    """Return the kernel of masks whose images go through ``fuse(transforms, source_px, earlier=earlier)``."""
    stages: tuple[Stage, ...] = ()
    size = source_px
    for transform, op in with_ops(transforms, earlier):
        assert isinstance(transform, ImageTransform)
        moving = transform.for_mask()
        if isinstance(moving, GeometricTransform | PixelTransform):
            stages = followed_by(stages, moving, op, size)
        size = transform.size_after(size)
    assert size is not None  # or the image's kernel couldn't be made
    return MaskKernel(stages, size)


def moves_mask(transforms: Sequence[Transform]) -> bool:
    """Return True if one of the transforms moves a mask."""
    return any(isinstance(each, ImageTransform) and MASK in each.moves for each in transforms)


def is_mask(spec: ArraySpec | Encoded | None) -> bool:
    """Return True if a field of this form can be a mask. None is a form that isn't known yet, and can be."""
    if isinstance(spec, ArraySpec):
        return len(spec.shape) == 2 and spec.dtype == np.uint8
    return True


def other_size(mask_px: Size, image_px: Size) -> str:
    """Return the text of the error that a mask doesn't have its image's size."""
    return (
        f"it has {mask_px[1]} × {mask_px[0]} pixels, but its image {image_px[1]} × {image_px[0]}; a mask has its "
        "image's size"
    )
