"""Warnings that point to the line of the user's code that caused them."""

from __future__ import annotations

import sys
import warnings

BETWEEN = ("standpipe", "torch.utils.data")  # packages whose lines a warning doesn't point to


def warn(text: str) -> None:
    """Warn, with the line of the first caller outside of standpipe and torch's DataLoader.

    ``skip_file_prefixes`` of ``warnings.warn`` does that from Python 3.12 on.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_between(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _is_between(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in BETWEEN)
