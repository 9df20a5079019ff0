"""What functions make of a whole batch, in the worker that calls them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from standpipe.engine.board import FUNCTIONS
from standpipe.engine.calls import PythonCall
from standpipe.engine.rows import END, RowFailed, Rows
from standpipe.engine.samples import SampleMaker
from standpipe.engine.workers import BatchMade, Failure
from standpipe.spec import AnyArray
from standpipe.transform import BATCH_OP, BatchFunction
from standpipe.transform.values import as_array


def gather(maker: SampleMaker, rows: Rows) -> BatchMade | list[Failure]:
    """Make all samples and give them to the first function as a list, or say which can't be made."""

    def make(seeded: bool) -> BatchMade | list[Failure]:
        samples: list[Any] = []
        bad: list[Failure] = []
        for row in range(len(rows.indices)):
            maker.begins(row)
            try:
                sample = maker.make(rows.key(row), rows.inputs.row(row), {}, seeded)
                samples.append(maker.as_given(sample))
                maker.ends()
            except RowFailed as failed:
                if failed.place == END and samples:
                    made = _applied(maker, rows.cut(row), samples, seeded)
                    return replace(made, rows=row) if isinstance(made, BatchMade) else made
                bad.append(failed.failure(row))
                if failed.place == END:
                    break
        return bad or _applied(maker, rows, samples, seeded)

    return maker.run(make)


def apply(maker: SampleMaker, rows: Rows) -> BatchMade | list[Failure]:
    """Give the batch, whose rows are made, to the functions."""
    changed = False

    def make(seeded: bool) -> BatchMade | list[Failure]:
        nonlocal changed
        if changed and (bad := maker.filled(rows, 0, len(rows.indices), seeded)):
            return bad
        changed = True  # functions may write into the batch: another time its rows are made again
        return _applied(maker, rows, {**rows.given, **rows.views, **rows.lists}, seeded)

    return maker.run(make)


def _applied(maker: SampleMaker, rows: Rows, batch: Any, seeded: bool) -> BatchMade | list[Failure]:
    key = rows.batch_key
    try:
        for number, function in enumerate(maker.recipe.functions):
            step = PythonCall(
                _bound(function, maker), function.takes_rng, BATCH_OP + number, "batch", function.describe()
            )
            maker.at(0, FUNCTIONS + number)
            begin = time.perf_counter_ns()
            batch = maker.call(step, key, batch, seeded)
            maker.laps.whole(FUNCTIONS + number, begin)
        return _placed(rows, batch)
    except RowFailed as failed:
        return [replace(failed.failure(0), whole=True)]


def _bound(function: BatchFunction, maker: SampleMaker) -> Callable[[Any, int], dict[str, Any]]:
    names = maker.recipe.names

    def call(batch: Any, key: int) -> dict[str, Any]:
        rng = {"rng": maker.own.generator(key)} if function.takes_rng else {}
        made = function.fn(batch, **rng)
        if made is None:
            raise RowFailed("batch", f"{function.describe()} returned None; return the batch")
        if isinstance(made, Mapping):
            if odd := [name for name in made if not isinstance(name, str)]:
                raise RowFailed(
                    "batch",
                    f"{function.describe()} returned a field {odd[0]!r}; fields have names, such as 'image'",
                )
            return dict(made)
        values = made if isinstance(made, tuple | list) else (made,)
        if len(values) > len(names):
            raise RowFailed("batch", f"{function.describe()} returned {len(values)} values; return a dict")
        return dict(zip(names, values, strict=False))

    return call


def _placed(rows: Rows, batch: Mapping[str, Any]) -> BatchMade:
    """What fits the slot goes there, once nothing else refers to what is there; anything else is its own."""
    slot = list(rows.views.values())
    kept: list[str] = []
    moved: dict[str, AnyArray] = {}
    objects: dict[str, Any] = {}
    for name, value in batch.items():
        if name in rows.given:
            continue
        view, array = rows.views.get(name), as_array(value)
        if view is not None and array is not None and (array.shape, array.dtype) == (view.shape, view.dtype):
            kept.append(name)
            if not _is_same(array, view):
                moved[name] = _own(array, slot)
        else:
            objects[name] = _own(value, slot)
    for name, array in moved.items():
        rows.views[name][...] = array
    return BatchMade(tuple(kept), objects)


def _is_same(one: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays of one shape and dtype are the same memory."""
    return one.strides == other.strides and one.ctypes.data == other.ctypes.data


def _own(value: Any, slot: Sequence[AnyArray]) -> Any:
    """A value in which no array lies in the slot; tensors are arrays."""
    if isinstance(value, dict):
        return {name: _own(part, slot) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_own(part, slot) for part in value)
    if isinstance(value, bool | int | float | str | bytes) or (array := as_array(value)) is None:
        return value
    return array.copy() if any(np.may_share_memory(array, view) for view in slot) else array
