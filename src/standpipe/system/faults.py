"""Inject faults for tests at named points, as the environment variable STANDPIPE_FAULTS says.

The variable is read once, when standpipe is first used, and worker processes inherit it. CONTRIBUTING.md has
its grammar and the points. Native code does the work at a point, so native and Python code share one list and
one parser.
"""

from __future__ import annotations

import os

from standpipe import _native
from standpipe.errors import PlanError

_TEXT = os.environ.get("STANDPIPE_FAULTS", "")
FAULTY = bool(_TEXT)  # True if faults may be injected; if False, hot loops don't call ``faultpoint``

if _TEXT:
    try:
        _native.install_faults(_TEXT)
    except ValueError as error:
        raise PlanError(f"STANDPIPE_FAULTS: {error}") from None


def faultpoint(name: str, key: int = 0, attempt: int = 0) -> None:
    """Inject the fault that STANDPIPE_FAULTS sets for this point, such as an error or a delay, if it sets one.

    name     name of the point, in the native list of points
    key      number of the record or task; a fault depends on it, and not on the worker
    attempt  number of earlier attempts at the same work

    Raises ``OSError`` or ``RuntimeError`` if the fault is an error.
    """
    if not _TEXT:
        return
    code = _native.faultpoint(name, key, attempt)
    if code > 0:
        raise OSError(code, os.strerror(code))
    if code < 0:
        raise RuntimeError(f"STANDPIPE_FAULTS: raised at {name}")
