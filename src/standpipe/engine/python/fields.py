"""Measure the fields of samples, and write their values into the row of a slot."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standpipe.batch.collate import Collate, Pad, Ragged
from standpipe.engine.python.instances import without_instances
from standpipe.engine.python.worker_setup import WorkerSetup
from standpipe.engine.rows import BatchRows, RowFailed, Sample
from standpipe.plan.parts import MeasuredSample
from standpipe.spec import AnyArray, ArraySpec, Listed
from standpipe.transform import Move, left_behind
from standpipe.transform.python.values import MOST_DEPTH, MOST_PARTS, as_array

_EXACT: Mapping[type, type] = {int: np.int64, float: np.float64, bool: np.bool_}


def measured(sample: Sample, setup: WorkerSetup, moved: Sequence[Move]) -> MeasuredSample:
    """Return the facts about a sample, without its instances. Raises ``RowFailed`` for one without fields.

    moved  the transforms that moved its image
    """
    sample = with_arrays(without_instances(sample, setup.instances), setup.collate)
    if not sample:
        raise RowFailed("batch", "the sample has no fields")
    for name in sample:
        if not isinstance(name, str):
            raise RowFailed("batch", f"the sample has a field {name!r}; fields have names, such as 'image'")
    specs: dict[str, ArraySpec | Listed] = {}
    for name, value in sample.items():
        array = as_array(value)
        specs[name] = (
            Listed(type(value).__name__, estimated_bytes(value))
            if array is None
            else ArraySpec(array.shape, array.dtype.newbyteorder("="))
        )
    return MeasuredSample(specs, left_behind(moved, sample))


def with_arrays(sample: Mapping[str, Any], collate: Collate) -> dict[str, Any]:
    """Return a sample in which lists of numbers are arrays, if their field is padded or joined."""
    joined = {name for name, how in collate.items() if isinstance(how, Pad | Ragged)}
    return {name: as_numbers(value) if name in joined else value for name, value in sample.items()}


def as_numbers(value: Any) -> Any:
    """Return a list or tuple of numbers as an array; any other value unchanged."""
    if not isinstance(value, list | tuple):
        return value
    try:
        array = np.array(value) if value else np.empty(0, np.int64)
    except ValueError:  # lists of different lengths
        return value
    return value if as_array(array) is None else array


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """Return an estimate of a value's memory in bytes, with the values inside it; ``depth`` counts the levels."""
    if isinstance(value, dict | list | tuple | set) and value and depth < MOST_DEPTH:
        parts = [*value, *(value.values() if isinstance(value, dict) else ())]
        some = parts[:MOST_PARTS]
        return sys.getsizeof(value) + sum(estimated_bytes(part, depth + 1) for part in some) * len(
            parts
        ) // len(some)
    array = as_array(value)
    return max(sys.getsizeof(value), 0 if array is None else array.nbytes)


def write_row(sample: Sample, row: int, rows: BatchRows, out: Mapping[str, AnyArray]) -> None:
    """Write a sample's values into row number ``row``. Raises ``RowFailed`` for a value that doesn't fit.

    out  the rows of ``rows.views`` that ``SampleMaker.make`` may have written already
    """
    arrays, lists = rows.views, rows.lists
    for name, value in sample.items():
        if value is not None and out.get(name) is value:
            continue  # it was made there
        array = arrays.get(name)
        if array is None:
            if name not in lists:
                raise RowFailed("batch", f"a field {name!r}, and none {rows.known_from}")
            lists[name][row] = value
            continue
        if array.ndim == 1 and _EXACT.get(type(value)) is array.dtype.type:
            try:
                array[row] = value
            except OverflowError as error:
                raise RowFailed("batch", f"{name!r} is {value}, beyond 64 bits") from error
            continue
        if type(value) is not np.ndarray:
            value = as_array(value)
        target = array[row]
        if (
            value is None
            or value.shape != target.shape
            or (value.dtype != target.dtype and not np.can_cast(value.dtype, target.dtype, "safe"))
        ):
            raise RowFailed("batch", _misfit(name, sample[name], target, rows.known_from))
        array[row] = value
    if len(sample) != len(arrays) + len(lists):
        missing = ", ".join(name for name in (*arrays, *lists) if name not in sample)
        raise RowFailed("batch", f"no field {missing}, and there is one {rows.known_from}")


def instead_of_none(name: str) -> str:
    """Return what to do about a field that is None in a sample, for messages."""
    return (
        "give it a value in the dataset or in a function of map(), such as -1 for a missing label, or keep the values "
        f"in a list: .batch(…, collate={{{name!r}: list}})"
    )


def _misfit(name: str, value: Any, target: AnyArray, known_from: str) -> str:
    wanted = f"{ArraySpec(target.shape, target.dtype)} {known_from}"
    if value is None:
        return f"{name!r} is None, and {wanted}; {instead_of_none(name)}"
    array = as_array(value)
    got = type(value).__name__ if array is None else str(ArraySpec(array.shape, array.dtype))
    what = f"{name!r} is {got}, and {wanted}; "
    if array is not None and array.shape == target.shape:
        return what + "give it the same dtype in every sample"
    return what + (
        f"where samples differ in shape, say .batch(…, collate={{{name!r}: …}}) with Pad(max_shape=…), "
        "Ragged(max_values=…) or list"
    )
