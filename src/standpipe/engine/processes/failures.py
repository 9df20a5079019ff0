"""Failures in a form that a worker process or its server can send to the trainer."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cloudpickle

from standpipe.engine.processes.messages import encoded
from standpipe.engine.python.calls import said, unforeseen
from standpipe.engine.watchdog.where import users_part
from standpipe.engine.workers import Failure


def sendable(answer: Any) -> Any:
    """Return a failure with a cause that can be pickled; return any other answer unchanged."""
    if isinstance(answer, Failure) and answer.cause is not None:
        return replace(answer, cause=picklable(answer.cause))
    return answer


def unsendable(first: int, lists: Mapping[str, list[Any]], error: Exception) -> Failure:
    """Return the failure of the first row with a value that can't be sent.

    first  number of the first row
    lists  by field, a value per row
    error  used if each value alone can be sent
    """
    for name, values in lists.items():
        for row, value in enumerate(values):
            try:
                encoded(value)
            except Exception as reason:
                kind = type(value).__name__
                return Failure(
                    first + row,
                    "batch",
                    f"{name!r}, of the type {kind}, can't be sent from a worker process: {reason}. Return a value "
                    "that can be pickled, or use executor='thread'",
                )
    return unforeseen(first, error)


def picklable(error: BaseException) -> Exception:
    """Return a copy of an error that can be pickled, with the traceback as a note.

    If no copy can be pickled, it is a ``RuntimeError`` with the error's text.
    """
    note = "In the worker:\n" + _trace(error)
    try:
        copy = pickle.loads(cloudpickle.dumps(error))
    except Exception:
        copy = None
    told = copy if isinstance(copy, Exception) else RuntimeError(said(error))
    told.add_note(note)
    return told


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, users_part(error.__traceback__))).rstrip()
