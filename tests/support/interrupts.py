"""Ctrl-C at any moment of a test's choice."""

from __future__ import annotations

import _thread
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

UNHEARD = {
    "<lambda>",
    "<genexpr>",
    "gc_callback",  # Hypothesis's
}  # callbacks of the collector, generators that are dropped: errors there reach nobody

# Every fifth moment is enough to see that a step is unprotected; scripts/test long takes each.
STEPS = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])


def names_from(frame: FrameType | None) -> Iterator[str]:
    """Names of a function that runs, and of those that wait for it, up to the test."""
    while frame is not None and not frame.f_code.co_name.startswith("test_"):
        yield frame.f_code.co_name
        frame = frame.f_back


@contextmanager
def interrupted(after: int) -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` where Python looks for signals, for the ``after``-th time: as a function begins, or
    a call into C has ended.
    """
    left = after

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event not in ("call", "c_return") or UNHEARD.intersection(names_from(frame)):
            return
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def hears_ctrl_c(native: Callable[[], Any]) -> bool:
    """Return True if a native function raises the ``KeyboardInterrupt`` of a Ctrl-C that came right before it.

    No Python code runs between the two. A function that looks for no signals returns, and Python raises afterwards.
    """
    returned: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        returned.extend(map(operator.call, (_thread.interrupt_main, native)))
    return len(returned) == 1
