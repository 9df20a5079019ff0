"""Warnings that point to the line of the user's code that caused them."""

from __future__ import annotations

import sys
import warnings

BETWEEN = ("standpipe", "torch.utils.data")  # packages whose lines a warning doesn't point to


def warn_user(text: str) -> None:
    """Issue a warning that shows the line of the innermost caller outside standpipe and torch's DataLoader.

    From Python 3.12 on, ``warnings.warn`` could do this with ``skip_file_prefixes``.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_between(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _is_between(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in BETWEEN)
