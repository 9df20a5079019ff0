"""Take the instances out of a dataset's sample, as torchvision's targets have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standpipe.engine.rows import RowFailed, Sample
from standpipe.spec import SIZE, RaggedSpec
from standpipe.transform.python.values import as_array


def with_instances(sample: Sample, columns: Mapping[str, RaggedSpec]) -> Sample:
    """Return a sample with its instances as arrays (M, …), which may be in a dict inside it.

    columns  shape and dtype of one instance's value, by field

    Raises ``RowFailed`` for a sample without them, and for values of another form.
    """
    for name, value in sample.items():
        if isinstance(value, Mapping) and "boxes" in value:
            sample = {**{other: sample[other] for other in sample if other != name}, **value}
            break
    for name, spec in columns.items():
        if name not in sample:
            raise RowFailed(
                "source",
                f"the sample has no {name!r}, which instances= names; its fields are {', '.join(map(str, sample))}",
            )
        value = sample[name]
        if getattr(getattr(value, "format", None), "value", "XYXY") != "XYXY":
            raise RowFailed("source", f"{name!r} is {value.format.value}: convert it, boxes are XYXY")
        array = np.asarray(value) if isinstance(value, list) else as_array(value)
        if array is not None and array.size == 0:
            array = np.zeros((len(array), *spec.shape))
        if (
            array is None
            or array.ndim == 0
            or array.shape[1:] != spec.shape
            or array.dtype.kind not in "biuf"
        ):
            got = type(value).__name__ if array is None else f"{array.shape} {array.dtype}"
            raise RowFailed("source", f"{name!r} must be {spec} for M instances, but it is {got}")
        sample[name] = array.astype(spec.dtype)
    counts = {name: len(sample[name]) for name in columns}
    if len({*counts.values()}) > 1:
        raise RowFailed(
            "source", f"the sample has different numbers of {counts}: one instance is one value of each"
        )
    boxes = sample["boxes"]
    if not (boxes[:, 2:] >= boxes[:, :2]).all():
        raise RowFailed("source", "a box isn't finite, or ends before it begins; boxes are xyxy in pixels")
    return sample


def without_instances(sample: Sample, columns: Mapping[str, RaggedSpec]) -> Sample:
    """Return a finished sample without its instances."""
    return {name: value for name, value in sample.items() if name not in columns and name != SIZE}
