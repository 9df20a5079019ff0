"""The head of a field ``mask``: the transforms of its image that move pixels, with the nearest pixel everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standpipe.contracts import Encoded, Transform
from standpipe.spec import ArraySpec
from standpipe.transform.image import MASK, GeometricTransform, ImageTransform, PixelTransform, Size
from standpipe.transform.kernels.heads import MASKS, Head
from standpipe.transform.kernels.stages import Stage, followed_by, with_ops


def mask_head(
    transforms: Sequence[Transform], source_px: Size | None, *, earlier: Sequence[Transform] = ()
) -> Head:
    """Return the head that moves masks as the transforms move their images. Random numbers are the image's."""
    stages: tuple[Stage, ...] = ()
    size = source_px
    for transform, op in with_ops(transforms, earlier):
        assert isinstance(transform, ImageTransform)
        moving = transform.for_mask()
        if isinstance(moving, GeometricTransform | PixelTransform):
            stages = followed_by(stages, moving, op, size)
        size = transform.size_after(size)
    assert size is not None  # or the image's head couldn't be made
    return Head(MASKS, stages, ArraySpec(size, np.dtype(np.uint8)), field=MASK)


def mask_of(view: str) -> str:
    """Return the name of the field with the masks of a view, such as ``"a_mask"``; that of images is ``"mask"``."""
    return MASK if view == "image" else f"{view}_{MASK}"


def moves_mask(transforms: Sequence[Transform]) -> bool:
    """Return True if one of the transforms moves a mask."""
    return any(isinstance(each, ImageTransform) and MASK in each.moves for each in transforms)


def is_mask(spec: ArraySpec | Encoded | None) -> bool:
    """Return True if a field of this form can be a mask. None is a form that isn't known yet, and can be."""
    if isinstance(spec, ArraySpec):
        return len(spec.shape) == 2 and spec.dtype == np.uint8
    return True
