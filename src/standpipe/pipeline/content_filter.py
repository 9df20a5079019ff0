"""A filter by a function of samples. The function is called once for all records, and its answers are stored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.errors import PlanError
from standpipe.identity.code import Unreadable, digest_of
from standpipe.spec import ArraySpec
from standpipe.transform.python.function import Function, InputFormat, callable_name, check_form, takes_rng
from standpipe.transform.python.values import as_array

KEPT_FIELD = "kept"  # the only field of a sample in a filter's scan


@dataclass(frozen=True, slots=True, eq=False)
class ByContent:
    """A selection of the records for whose sample a function returns True, in their order.

    fn  a function of a sample or, with ``field``, of that field's value, in the form ``input_format``; see
    ``Function``
    """

    fn: Callable[..., Any]
    field: str | None
    input_format: InputFormat | None

    @classmethod
    def of(cls, fn: Callable[..., Any], *, field: str | None, input_format: InputFormat | None) -> ByContent:
        """Make a filter of a function. Raises ``PlanError`` if the function takes ``rng``."""
        check_form("filter", field, input_format)
        if takes_rng(fn):
            raise PlanError(
                f"filter({callable_name(fn)}): the function takes rng, but a record's answer must be the "
                "same in every epoch. To choose records at random, write .split(share, seed=…)"
            )
        return cls(fn, field, input_format)

    @property
    def name(self) -> str:
        """The function's name and its input, for messages."""
        field = "" if self.field is None else f", field={self.field!r}"
        form = "" if self.input_format is None else f", input_format={self.input_format!r}"
        return f"filter({callable_name(self.fn)}{field}{form})"

    def describe(self) -> str:
        """Return one phrase, with a digest of the function's code."""
        try:
            code = digest_of(self.fn)
        except Unreadable as error:
            raise PlanError(
                f"{self.name}: standpipe can't identify the function's code, so it can't keep its "
                f"answers: {error}. Define it in a file, or give it an attribute _fingerprint, a text that changes "
                "with what it does"
            ) from error
        return f"{self.name[:-1]}, code {code})"

    def functions(self) -> tuple[Function, ...]:
        """Return the transforms that turn a sample into its only field ``KEPT_FIELD``, the function's answer."""
        spec = {KEPT_FIELD: ArraySpec((), np.dtype(np.bool_))}
        form: InputFormat = self.input_format or "numpy"
        if self.field is None:
            return (Function(_OnSample(self.fn), None, form, spec, "plain"),)
        answer = Function(self.fn, self.field, form, None, "plain")
        return answer, Function(_Only(self.field, callable_name(self.fn)), None, "numpy", spec, "plain")


class _OnSample:
    """A transform that turns a function's answer about a sample into the field ``KEPT_FIELD``."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._fn = fn

    def __call__(self, sample: dict[str, Any]) -> dict[str, bool]:
        return {KEPT_FIELD: _truth(self._fn(sample), callable_name(self._fn))}


class _Only:
    """A transform that keeps only one field, the answer of a filter function."""

    def __init__(self, field: str, name: str) -> None:
        self._field, self._name = field, name

    def __call__(self, sample: dict[str, Any]) -> dict[str, bool]:
        return {KEPT_FIELD: _truth(sample[self._field], self._name)}


def _truth(answer: Any, name: str) -> bool:
    array = as_array(answer)
    if array is None or array.shape != () or array.dtype != np.bool_:
        raise TypeError(f"{name} returned {answer!r:.60}. A filter must return True or False")
    return bool(array)
