"""Collate samples that differ in shape into their slot, after workers have made them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standpipe.batch.collate import Collation, Shape, SlotOverflow
from standpipe.engine.python.fields import as_numbers, instead_of_none
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
    return Collated({name: lists[name] for name in plan.batch.sample_lists}, shapes, failures)


def _arrays(name: str, collation: Collation, values: list[Any]) -> tuple[list[AnyArray], list[Failure]]:
    arrays: list[AnyArray] = []
    bad: list[Failure] = []
    for row, value in enumerate(values):
        # An empty list says nothing of its axes.
        array = (
            collation.empty()
            if isinstance(value, list | tuple) and not value
            else as_array(as_numbers(value))
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
