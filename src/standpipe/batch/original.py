"""Find the padding of a batch's images, and take boxes back to the stored images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError
from standpipe.spec import KINDS, AnyArray


def padding_mask(batch: Mapping[str, Any], field: str = "image") -> NDArray[np.bool_]:
    """Return where the images of a batch are padding, as DETR and other models with attention take it.

    Parameters
    ----------
    batch : mapping
        A batch with images in one array of any layout: NumPy's, JAX's, or a tensor on any device. ``sp.Pad`` adds
        ``image_length``; without it nothing is padding.
    field : str, default "image"
        Name of the field of images, masks or depths.

    Returns
    -------
    numpy.ndarray
        (rows, H, W) bool, True for padding.

    Raises
    ------
    PlanError
        If the field isn't one array of pictures.

    Examples
    --------
    >>> batch = {  # (rows, H, W, C): a picture of 1 × 5 pixels, and one of 2 × 4
    ...     "image": np.zeros((2, 2, 5, 3), np.uint8),
    ...     "image_length": np.array([[1, 5, 3], [2, 4, 3]]),
    ... }
    >>> sp.padding_mask(batch).astype(int).tolist()
    [[[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]]
    """
    shape = tuple(getattr(batch.get(field), "shape", ()))
    if len(shape) not in (3, 4):
        raise PlanError(
            f"padding_mask() needs a batch whose {field!r} is one array of pictures, as collate={{{field!r}: "
            "sp.Pad(…)} makes them"
        )
    first = 2 if len(shape) == 4 and shape[-1] not in KINDS else 1  # the axis of heights
    height, width = shape[first : first + 2]
    if f"{field}_length" not in batch:
        return np.zeros((shape[0], height, width), np.bool_)
    ends = _array(batch[f"{field}_length"])[:, first - 1 : first + 1, None, None]
    outside: NDArray[np.bool_] = (np.arange(height)[:, None] >= ends[:, 0]) | (np.arange(width) >= ends[:, 1])
    return outside


def ratio_pad(batch: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scale and the place of each stored image in its image of a batch, as the YOLO family has them.

    This leads back from pictures that were resized, cropped or padded. ``boxes_to_original`` also knows flips and
    warps.

    Parameters
    ----------
    batch : mapping or list of mappings
        As for ``boxes_to_original``.

    Returns
    -------
    ratios : numpy.ndarray
        (rows, 2) float64: by how much heights and widths were multiplied.
    before : numpy.ndarray
        (rows, 2) float64: pixels of the batch's image that are left of the stored image and above it; negative where
        it was cropped.

    Raises
    ------
    PlanError
        For a batch without ``to_original`` and ``orig_size``.

    Examples
    --------
    >>> batch = {  # of one image, doubled in size, with 10 pixels of padding on the left
    ...     "to_original": np.array([[[0.5, 0, -5], [0, 0.5, 0], [0, 0, 1]]]),
    ...     "orig_size": np.array([[40, 50]]),
    ... }
    >>> ratios, before = sp.ratio_pad(batch)
    >>> ratios.tolist(), before.tolist()
    ([[2.0, 2.0]], [[10.0, 0.0]])
    """
    moves = np.asarray(np.linalg.inv(_way_back("ratio_pad", batch)[0]), np.float64)
    return moves[:, [1, 0], [1, 0]], moves[:, :2, 2]


def boxes_to_original(boxes: Any, batch: Any, batch_index: Any = None) -> Any:
    """Return boxes of a batch's images, such as predictions, in the pixels of the stored images.

    A box goes back through all that moved its image: crops, resizes, flips. If its image was turned, it becomes
    the box around its moved corners. Boxes are clipped to the stored image.

    Parameters
    ----------
    boxes : array or list of arrays
        xyxy in pixels of the batch's images: (rows, K, 4); (total, 4), one after another for all images; or a list
        with (M, 4) for each image. NumPy's or JAX's arrays, or tensors on any device.
    batch : mapping or list of mappings
        The batch as a mapping with ``to_original`` (rows, 3, 3) and ``orig_size`` (rows, 2); or the list of
        dicts that ``targets="torchvision"`` and ``"detr"`` give.
    batch_index : array, optional
        The image of each box, (total,) integers, for boxes (total, 4). Default: the batch's own ``batch_index``.

    Returns
    -------
    numpy.ndarray or list of numpy.ndarray
        float32, in the form of ``boxes``.

    Raises
    ------
    PlanError
        For boxes of another shape, and a batch without ``to_original`` and ``orig_size``.

    Examples
    --------
    >>> batch = {  # of one image, doubled in size
    ...     "to_original": np.diag([0.5, 0.5, 1.0])[None],
    ...     "orig_size": np.array([[40, 50]]),
    ... }
    >>> sp.boxes_to_original(np.array([[[10, 20, 30, 200]]]), batch).tolist()
    [[[5.0, 10.0, 15.0, 40.0]]]
    """
    matrices, sizes = _way_back("boxes_to_original", batch)
    found = [_checked(each, 2) for each in boxes] if isinstance(boxes, Sequence) else _checked(boxes, 2, 3)
    if isinstance(found, list) or found.ndim == 3:
        if len(found) != len(matrices):
            raise PlanError(
                f"boxes_to_original() got boxes of {len(found)} images, and a batch of {len(matrices)}"
            )
        counts = [len(each) for each in found]
        rows, flat = np.repeat(np.arange(len(found)), counts), np.concatenate(found)
        parts = np.split(_moved(flat, matrices[rows], sizes[rows]), np.cumsum(counts)[:-1])
        return parts if isinstance(found, list) else np.stack(parts)
    if batch_index is None and (isinstance(batch, Sequence) or "batch_index" not in batch):
        raise PlanError("boxes_to_original() needs batch_index=, the image of each of the boxes (total, 4)")
    images = _array(batch["batch_index"] if batch_index is None else batch_index)
    return _moved(found, matrices[images], sizes[images])


def _array(value: Any) -> AnyArray:
    """Return an array or a tensor as a NumPy array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _way_back(call: str, batch: Any) -> tuple[NDArray[np.float64], AnyArray]:
    """Return ``to_original`` and ``orig_size`` of a batch or a list of targets. Raises ``PlanError`` without them."""
    targets = batch if isinstance(batch, Sequence) else [batch]
    names = ("to_original", "orig_size")
    if not all(isinstance(each, Mapping) and {*names} <= {*each} for each in targets):
        raise PlanError(
            f"{call}() needs a batch with 'to_original' and 'orig_size', which sources with boxes give, or the list of "
            "targets of such a batch"
        )
    matrices, sizes = (np.array([_array(each[name]) for each in targets]) for name in names)
    return matrices.astype(np.float64).reshape(-1, 3, 3), sizes.reshape(-1, 2)


def _checked(value: Any, *axes: int) -> NDArray[np.float64]:
    boxes: NDArray[np.float64] = _array(value).astype(np.float64)
    if boxes.ndim not in axes or boxes.shape[-1] != 4:
        raise PlanError(
            "boxes_to_original() takes boxes of the shape (rows, K, 4), (total, 4), or a list of (M, 4), got "
            f"{boxes.shape}"
        )
    return boxes


def _moved(boxes: NDArray[np.float64], matrices: AnyArray, sizes: AnyArray) -> AnyArray:
    """Return boxes (total, 4) float32, each moved by its matrix and clipped to its image's height and width."""
    corners = boxes[:, [[0, 1], [2, 1], [0, 3], [2, 3]]]
    points = np.concatenate([corners, np.ones((*corners.shape[:2], 1))], 2) @ matrices.swapaxes(1, 2)
    places = points[..., :2] / points[..., 2:]
    hull = np.concatenate([places.min(1), places.max(1)], 1)
    clipped: AnyArray = np.clip(hull, 0, sizes[:, [1, 0, 1, 0]]).astype(np.float32)
    return clipped
