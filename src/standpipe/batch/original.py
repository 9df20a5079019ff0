"""Boxes in the pixels of the images that a batch was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError
from standpipe.spec import AnyArray


def boxes_to_original(boxes: Any, batch: Any, batch_index: Any = None) -> Any:
    """Return boxes of a batch's images, such as predictions, in the pixels of the stored images.

    A box goes back through all that moved its image: crops, resizes, flips. If its image was turned, it becomes
    the box around its moved corners. Boxes are clipped to the stored image.

    Parameters
    ----------
    boxes : array or list of arrays
        xyxy in pixels of the batch's images: (rows, K, 4); (total, 4), one after another for all images; or a list
        with (M, 4) for each image. NumPy arrays, or tensors on the CPU.
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
    listed = isinstance(batch, Sequence)
    targets = batch if listed else [batch]
    if not all(isinstance(each, Mapping) and {"to_original", "orig_size"} <= {*each} for each in targets):
        raise PlanError(
            "boxes_to_original() needs a batch with 'to_original' and 'orig_size', which sources with boxes give, or "
            "the list of targets of such a batch"
        )
    matrices, sizes = (
        np.stack([np.asarray(each[name]) for each in targets]) if listed else np.asarray(batch[name])
        for name in ("to_original", "orig_size")
    )
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
    if batch_index is None and (listed or "batch_index" not in batch):
        raise PlanError("boxes_to_original() needs batch_index=, the image of each of the boxes (total, 4)")
    rows = np.asarray(batch["batch_index"] if batch_index is None else batch_index)
    return _moved(found, matrices[rows], sizes[rows])


def _checked(value: Any, *axes: int) -> NDArray[np.float64]:
    boxes: NDArray[np.float64] = np.asarray(value, np.float64)
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
