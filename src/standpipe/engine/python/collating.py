"""Collate samples that differ in shape into their slot, after workers have made them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe.batch.collate import Collate, Collation, Pad, Ragged, Shape, SlotOverflow
from standpipe.engine.python.fields import instead_of_none
from standpipe.engine.workers import Failure
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform.python.values import as_array

if TYPE_CHECKING:
    from standpipe.plan.plan import Plan

Lists = Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Collated:
    """The result of collating values that workers made one by one.

    lists     values of each field that stays a list, one per row
    shapes    shape of each field that is in the slot now
    failures  rows whose values didn't fit
    """

    lists: Lists
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


def collated(plan: Plan, slot: UInt8Array, lists: Lists) -> Collated:
    """Pad or join the fields in ``plan.batch.collated``, write them into the slot, and return the result.

    slot   memory of the slot
    lists  values of each field, one per row
    """
    shapes: dict[str, Shape] = {}
    failures: list[Failure] = []
    for name, collation in plan.batch.collated.items():
        arrays, bad = _arrays(name, collation, lists[name])
        failures += bad
        if bad:
            continue
        try:
            of_field = collation.shapes([array.shape for array in arrays])
        except SlotOverflow as error:
            failures.append(Failure(error.row, "batch", error.reason))
            continue
        collation.fill(arrays, plan.batch.layout.shaped(slot, of_field))
        shapes |= of_field
    return Collated({name: lists[name] for name in plan.batch.listed}, shapes, failures)


def with_arrays(sample: Mapping[str, Any], collate: Collate) -> dict[str, Any]:
    """Return a sample in which lists of numbers are arrays, if their field is padded or joined."""
    joined = {name for name, how in collate.items() if isinstance(how, Pad | Ragged)}
    return {name: _numbers(value) if name in joined else value for name, value in sample.items()}


def _numbers(value: Any) -> Any:
    """Return a list or tuple of numbers as an array; any other value unchanged."""
    if not isinstance(value, list | tuple):
        return value
    try:
        array = np.array(value) if value else np.empty(0, np.int64)
    except ValueError:  # lists of different lengths
        return value
    return value if as_array(array) is None else array


def _arrays(name: str, collation: Collation, values: list[Any]) -> tuple[list[AnyArray], list[Failure]]:
    arrays: list[AnyArray] = []
    bad: list[Failure] = []
    for row, value in enumerate(values):
        # An empty list says nothing of its axes.
        array = (
            collation.empty() if isinstance(value, list | tuple) and not value else as_array(_numbers(value))
        )
        if value is None:
            bad.append(Failure(row, "batch", f"{name!r} is None; {instead_of_none(name)}"))
        elif array is None:
            bad.append(Failure(row, "batch", f"{name!r} is {type(value).__name__}, and no array of numbers"))
        elif wrong := collation.misfit(array.shape, array.dtype):
            bad.append(Failure(row, "batch", wrong))
        else:
            arrays.append(array)
    return arrays, bad
