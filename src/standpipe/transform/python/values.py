"""Convert a field's value: to the form that a Python function takes, from its result, and to an array."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe.spec import NUMBER_KINDS, AnyArray

if TYPE_CHECKING:
    from standpipe.transform.python.function import InputFormat

MOST_DEPTH, MOST_PARTS = 8, 100  # levels of values inside values, and values of a level, that are looked at
_PLAIN = frozenset((bool, int, float, str, bytes))
_SCALARS = (bool, int, float, complex, np.generic)


def as_array(value: Any) -> AnyArray | None:
    """Return ``value`` as an array of numbers, without a copy where possible; None if it can't be one.

    Accepts arrays, numbers, Pillow images ((H, W) or (H, W, channels), by their mode) and dense tensors of a
    dtype that NumPy has.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in NUMBER_KINDS else None
    if isinstance(value, _SCALARS):
        try:
            array = np.asarray(value)
        except OverflowError:
            return None
        return array if array.dtype.kind in NUMBER_KINDS else None
    if is_tensor(value):
        try:
            return np.asarray(value.detach().cpu().numpy())
        except TypeError:  # bfloat16, which NumPy lacks, or sparse
            return None
    if is_picture(value):
        return np.asarray(value)
    return None


def in_form(value: Any, form: InputFormat) -> Any:
    """Convert an image to the form that a function takes; return values that aren't images unchanged.

    An image is a Pillow image, or a (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) uint8 array. With the form
    ``"tensor"``, other arrays become tensors with the same axes.
    """
    if type(value) in _PLAIN:
        return value
    match form:
        case "numpy":
            if type(value) is np.ndarray:
                return value
            return as_array(value) if is_picture(value) or is_tensor(value) else value
        case "pil":
            return _as_picture(value)
        case "tensor":
            return _as_tensor(value)


def out_of_form(value: Any, form: InputFormat) -> Any:
    """Convert the result of a function back to the form that values have between transforms.

    form  the function's input format. With ``"tensor"``, tensors become arrays, and (C, H, W) uint8 tensors of 1, 3
          or 4 channels become (H, W, C) arrays. With other formats, the value stays as it is
    """
    if form == "tensor" and is_tensor(value):
        array = as_array(value)
        assert array is not None
        if array.dtype == np.uint8 and array.ndim == 3 and array.shape[0] in (1, 3, 4):
            return array.transpose(1, 2, 0)
        return array
    return value


def is_picture(value: object) -> bool:
    """Return True for a Pillow image; False while Pillow isn't imported."""
    return _is_a(value, "PIL.Image", "Image")


def is_tensor(value: Any) -> bool:
    """Return True for a torch tensor; False while torch isn't imported."""
    return _is_a(value, "torch", "Tensor")


def _is_a(value: object, module: str, name: str) -> bool:
    # While another thread imports the module, it is in sys.modules and may not have its classes yet.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _is_image_array(value: object) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.uint8
        and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4)))
    )


def _as_picture(value: Any) -> Any:
    if not _is_image_array(value):
        return value
    from PIL import Image  # imported here: it takes 0.05 s, which most pipelines never need

    return Image.fromarray(value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value)


def _as_tensor(value: Any) -> Any:
    array = as_array(value) if is_picture(value) or isinstance(value, np.ndarray) else None
    if array is None:
        return value
    import torch  # imported here: only callers that want tensors need it

    array = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
    if _is_image_array(array):
        array = (array[:, :, None] if array.ndim == 2 else array).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(array))
