"""Calls of the user's functions on one sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.engine.python.own_generators import OwnGenerators
from standpipe.engine.rows import Place, RowFailed, Sample
from standpipe.engine.workers import CantWorkError, Failure
from standpipe.errors import StandpipeError
from standpipe.transform import FunctionStep
from standpipe.transform.python.function import Function, callable_name
from standpipe.transform.python.values import in_form, is_picture, out_of_form

TARGETS = frozenset(("image", "images", "mask", "masks", "bboxes", "keypoints"))  # albumentations' names


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A user's function in the form in which a sample maker calls it.

    call       takes a value and the key of its random numbers, and returns the result
    takes_key  True if the function uses the key
    op         number of the operation, which makes its random numbers differ from those of others
    place      the place of its errors
    name       the function's name in errors
    """

    call: Callable[[Any, int], Sample]
    takes_key: bool
    op: int
    place: Place
    name: str


def python_call(step: FunctionStep, own: OwnGenerators) -> PythonCall:
    """Return the call of a step's function, for one thread; ``own`` has the thread's random generators."""
    function = step.function
    takes_key = function.kind == "albumentations" or function.takes_rng is not None
    return PythonCall(_bound(function, own), takes_key, step.op, "transform", step.describe())


def _bound(function: Function, own: OwnGenerators) -> Callable[[Sample, int], Sample]:
    """Return a function that takes a sample and the key of its random numbers, and calls the user's function."""
    if function.kind == "albumentations":
        return _albumentations(function, own)
    fn, name, form, kind = function.fn, function.field, function.input_format, function.takes_rng

    def on_field(sample: Sample, key: int) -> Sample:
        if name not in sample:
            raise RowFailed("transform", f"there is no field {name!r}; there are {', '.join(sample)}")
        value = in_form(sample[name], form)
        result = fn(value) if kind is None else fn(value, rng=own.generator(key, kind))
        if result is None:
            raise RowFailed("transform", f"{function.describe()} returned None; return the new value")
        return {**sample, name: out_of_form(result, form)}

    def on_sample(sample: Sample, key: int) -> Sample:
        given = {each: _image_in_form(value, form) for each, value in sample.items()}
        result = fn(given) if kind is None else fn(given, rng=own.generator(key, kind))
        if not isinstance(result, dict):
            raise RowFailed(
                "transform",
                f"{function.describe()} returned {type(result).__name__}; return the sample, a dict, or say "
                "which field it is for, as map(fn, field='image')",
            )
        return {each: out_of_form(value, form) for each, value in result.items()}

    return on_sample if name is None else on_field


def _image_in_form(value: Any, form: Any) -> Any:
    """Return a value of a sample in the form that the function takes, if it is an image; else unchanged."""
    image = is_picture(value) or (
        isinstance(value, np.ndarray) and value.ndim >= 2 and value.dtype == np.uint8
    )
    return in_form(value, form) if image else value


def _albumentations(function: Function, own: OwnGenerators) -> Callable[[Sample, int], Sample]:
    import copy

    transform: Any = copy.deepcopy(function.fn)  # it keeps generators of its own: one for each thread
    keyed = hasattr(transform, "set_random_state")
    if keyed:
        transform.set_random_state(own.rng, own.python)

    def call(sample: Sample, key: int) -> Sample:
        if keyed:
            own.generator(key)
            own.python.seed(key)
        if function.field is not None:
            image = transform(image=in_form(sample[function.field], "numpy"))["image"]
            return {**sample, function.field: image}
        given = {name: in_form(value, "numpy") for name, value in sample.items() if name in TARGETS}
        return {**sample, **transform(**given)}

    return call


def said(error: BaseException) -> str:
    """Return type and text of an error; only the type if its text can't be computed."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def row_failed(error: Exception) -> RowFailed:
    """Return the ``RowFailed`` of an error: itself, or that of a value, such as a picture that Pillow can't load."""
    if isinstance(error, StandpipeError):  # of the run, which ends
        raise error
    return error if isinstance(error, RowFailed) else RowFailed("batch", said(error), error)


def initialize(function: Callable[[], object] | None) -> None:
    """Call the function of ``initializer=``, if there is one. Raises ``CantWorkError`` if it fails."""
    if function is None:
        return
    try:
        function()
    except Exception as error:
        raise CantWorkError(f"initializer={callable_name(function)} failed: {said(error)}") from error


def unforeseen(row: int, error: BaseException) -> Failure:
    """Return the failure of a batch for an error outside the user's code, so that no thread waits for its rows.

    row  the first row of the task that ended, of which no other row may be written either
    """
    return Failure(row, "batch", said(error), error, whole=True)
