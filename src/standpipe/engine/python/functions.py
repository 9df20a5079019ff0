"""Apply functions to a whole batch, in the worker that calls them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from standpipe.engine.python.calls import PythonCall
from standpipe.engine.python.columns import samples_of
from standpipe.engine.python.samples import SampleMaker
from standpipe.engine.rows import END, BatchRows, Inputs, RowFailed, RowKey
from standpipe.engine.watchdog.board import FUNCTIONS
from standpipe.engine.workers import BatchMade, Failure
from standpipe.spec import AnyArray
from standpipe.transform import BATCH_OP, BatchFunction
from standpipe.transform.python.values import as_array


def make_sample_list(maker: SampleMaker, rows: BatchRows) -> BatchMade | list[Failure]:
    """Make all samples of a batch, call its functions with the list of samples, and return the result.

    Return the failures instead, if samples can't be made or a function fails.
    """
    samples: list[Any] = []
    bad: list[Failure] = []

    def make() -> None:
        samples.clear()
        bad.clear()
        number = len(rows.indices)
        if maker.at_once(rows, 0, number, lambda columns: samples.extend(samples_of(columns, number))):
            return
        for row in range(len(rows.indices)):
            made = maker.sample(rows.key(row), partial(maker.given, rows, row))
            if not isinstance(made, RowFailed):
                samples.append(made)
                continue
            if made.place != END or not samples:
                bad.append(made.failure(row))
            if made.place == END:
                break

    def apply() -> BatchMade | list[Failure]:
        if bad:
            return bad
        if len(samples) == len(rows.indices):
            return _applied(maker, rows, samples)
        made = _applied(maker, rows.cut(len(samples)), samples)
        return replace(made, rows=len(samples)) if isinstance(made, BatchMade) else made

    return maker.batch(rows, lambda: maker.task(rows.epoch, rows.segment, make), apply)


def apply_batch_functions(maker: SampleMaker, rows: BatchRows) -> BatchMade | list[Failure]:
    """Call the functions of a batch whose rows are in the slot; return the result, or the failures."""
    changed = False
    bad: list[Failure] = []

    def prepare() -> None:
        nonlocal changed, bad
        if changed:  # functions may have written into the batch: its rows are made again
            set_back = maker.recount()
            bad = maker.fill(rows, 0, len(rows.indices))
            set_back()
        changed = True

    def make() -> BatchMade | list[Failure]:
        return bad or _applied(maker, rows, {**rows.given, **rows.views, **rows.lists})

    return maker.batch(rows, prepare, make)


def _applied(maker: SampleMaker, rows: BatchRows, batch: Any) -> BatchMade | list[Failure]:
    key = rows.batch_key
    try:
        for number, step in enumerate(_calls(maker)):
            maker.at(0, FUNCTIONS + number)
            begin = time.perf_counter_ns()
            batch = maker.call(step, key, batch)
            maker.laps.whole(FUNCTIONS + number, begin)
        return _placed(rows, batch)
    except RowFailed as failed:
        return [replace(failed.failure(0), whole=True)]


def probed(maker: SampleMaker, key: RowKey, inputs: Inputs) -> Mapping[str, Sequence[str]]:
    """Make a sample and a batch of it alone; return the names of global generators that each function used."""

    def make() -> None:
        sample = maker.make(key, inputs.row(0), {})
        batch: Any = [maker.as_given(sample)]
        if not (maker.setup.functions and maker.setup.functions[0].collates):
            arrays = {name: as_array(value) for name, value in sample.items()}
            batch = {name: [sample[name]] if array is None else array[None] for name, array in arrays.items()}
        for step in _calls(maker):
            batch = maker.call(step, key, batch)

    return maker.drawing(make)


def _calls(maker: SampleMaker) -> list[PythonCall]:
    """Return the calls of the functions of a batch, in order."""
    return [
        PythonCall(
            _bound(function, maker),
            function.takes_rng is not None,
            BATCH_OP + number,
            "batch",
            function.describe(),
        )
        for number, function in enumerate(maker.setup.functions)
    ]


def _bound(function: BatchFunction, maker: SampleMaker) -> Callable[[Any, int], dict[str, Any]]:
    names, kind = maker.setup.names, function.takes_rng

    def call(batch: Any, key: int) -> dict[str, Any]:
        rng = {} if kind is None else {"rng": maker.own.generator(key, kind)}
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


def _placed(rows: BatchRows, batch: Mapping[str, Any]) -> BatchMade:
    """Copy fields of the functions' result into the slot if shape and dtype fit; return these and all other fields.

    Other fields are copied if they are views of the slot.
    """
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
    """Return True if two arrays of the same shape and dtype have the same memory."""
    return one.strides == other.strides and one.ctypes.data == other.ctypes.data


def _own(value: Any, slot: Sequence[AnyArray]) -> Any:
    """Return a value in which arrays that are views of the slot are copied; tensors become arrays."""
    if isinstance(value, dict):
        return {name: _own(part, slot) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_own(part, slot) for part in value)
    if isinstance(value, bool | int | float | str | bytes) or (array := as_array(value)) is None:
        return value
    return array.copy() if any(np.may_share_memory(array, view) for view in slot) else array
