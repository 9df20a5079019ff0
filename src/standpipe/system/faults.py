"""Inject faults for tests at named points, as the environment variable STANDPIPE_FAULTS says.

The variable is read once, when standpipe is first used, and worker processes inherit it. CONTRIBUTING.md has
its grammar and the points. Native code does the work at a point, of Python code too.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple, NoReturn

from standpipe import _native
from standpipe.errors import PlanError

# Those of native code come first, in the order of Point in native/system/faults.h.
_POINTS = (
    "read.open read.stat read.pread read.bytes decode.row index.read cache.read cache.disk cache.row cache.entry"
    " cache.entry.after worker.row worker.answer server.fork index.publish.before index.publish.after ledger.write"
    " cache.create cache.spill cache.link cache.extent cache.destroy cache.remove cache.fold"
    " pack.write pack.publish.before pack.publish.after"
)
POINTS = tuple(_POINTS.split())
# Actions that aren't possible everywhere, and where they are; errors are possible where the system may report one.
_PLACES = {
    "short": ("read.pread", "cache.row"),
    "corrupt": ("read.bytes", "cache.read", "cache.disk"),
    "raise": ("worker.row", "worker.answer", "cache.extent"),
}
_WITHOUT_ERRORS = ("read.bytes", "decode.row", "cache.entry.after", "worker.row", "worker.answer")
# In the order of FaultRule::Action, where errors follow.
ACTIONS = ("delay", "kill", "stop", "exit", *_PLACES)
_UNITS_S = {"ms": 1e-3, "us": 1e-6, "s": 1.0}
_LONGEST_S = 1e6
_ANY_TRIES = 2**31 - 1


class _Rule(NamedTuple):
    """The fault of a point, and when it happens, as native code takes it."""

    point: int
    action: int
    error: int
    delay_s: float
    share: float
    hit: int
    key: int | None
    tries: int
    salt: int
    name: str


def install_faults(text: str) -> None:
    """Install faults. Raises ``ValueError`` if ``text`` has an error."""
    rules: list[_Rule] = []
    seed, log = 0, ""
    for item in filter(None, (part.strip(" \t\n") for part in text.split(";"))):
        if item.startswith("log="):
            log = item[4:]
        elif item.startswith("seed="):
            seed = _integer(item, item[5:], 0, "a seed is an integer")
        else:
            # Of its own for each rule, whatever else the text holds before it.
            salt = _native.mix(_native.fault_key(os.fsencode(item)), len(rules) + 1)
            rules.append(_rule(item)._replace(salt=salt))
    salted = [rule._replace(salt=_native.mix(seed, rule.salt)) for rule in rules]
    _native.install_faults(salted, os.fsencode(log))


def _rule(item: str) -> _Rule:
    point, _, rest = (part.strip(" \t\n") for part in item.partition("="))
    if point not in POINTS:
        _refuse(item, f"no point '{point}'; there are {', '.join(POINTS)}")
    rest, tries = _cut(rest, "*")
    rest, when = _cut(rest, "@")
    action, timed, time = rest.partition(":")
    error = getattr(errno, action.upper(), 0) if action.islower() and action.startswith("e") else 0
    if not error and action not in ACTIONS:
        _refuse(item, f"no action '{action}'; there are {', '.join(ACTIONS)}, and errors, such as eio")
    if timed and action != "delay":
        _refuse(item, "only delay has a time")
    if point in _WITHOUT_ERRORS if error else point not in _PLACES.get(action, POINTS):
        _refuse(item, f"nothing at {point} can be '{action}'")
    delay_s = _seconds(item, time) if action == "delay" else 0.0
    share, hit, key = (1.0, 0, None) if when is None else _when(item, when)
    why = "behind * stands how many tries are struck, from 1"
    times = _ANY_TRIES if tries is None else min(_integer(item, tries, 1, why), _ANY_TRIES)
    number = len(ACTIONS) if error else ACTIONS.index(action)
    name = f"{point} {action}"
    return _Rule(POINTS.index(point), number, error, delay_s, share, hit, key, times, 0, name)


def _when(item: str, text: str) -> tuple[float, int, int | None]:
    """Return the share of keys, the number of the hit, and the key that a rule is for."""
    if text.startswith("#"):
        return 1.0, 0, _integer(item, text[1:], 0, "behind @# stands a key, an integer")
    if "." in text:
        share = _number(text)
        if not 0 <= share <= 1:
            _refuse(item, "a share lies between 0.0 and 1.0")
        return share, 0, None
    why = "behind @ stands a share such as 0.01, a hit such as 3, or #KEY"
    return 1.0, _integer(item, text, 1, why), None


def _seconds(item: str, text: str) -> float:
    unit = next((unit for unit in _UNITS_S if text.endswith(unit)), "")
    seconds = _number(text.removesuffix(unit)) * _UNITS_S.get(unit, -1)
    if not 0 <= seconds <= _LONGEST_S:
        _refuse(item, "a delay has a time, as delay:5s, delay:20ms or delay:50us")
    return seconds


def _cut(text: str, mark: str) -> tuple[str, str | None]:
    """Return the text before the last ``mark``, and that behind it, or None without one."""
    before, found, behind = text.rpartition(mark)
    return (before.strip(" \t\n"), behind.strip(" \t\n")) if found else (text, None)


def _integer(item: str, text: str, least: int, why: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1
    if not least <= value < 2**64:
        _refuse(item, why)
    return value


def _number(text: str) -> float:
    """Return a number; NaN for a text that isn't one."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _refuse(item: str, why: str) -> NoReturn:
    raise ValueError(f"'{item}': {why}")


def fault_hits() -> dict[str, int]:
    """Return how often this process has passed each point since faults were installed."""
    return dict(zip(POINTS, _native.fault_hits(), strict=False))


_TEXT = os.environ.get("STANDPIPE_FAULTS", "")
FAULTY = bool(_TEXT)  # True if faults may be injected; if False, hot loops don't call ``faultpoint``

if _TEXT:
    try:
        install_faults(_TEXT)
    except ValueError as error:
        raise PlanError(f"STANDPIPE_FAULTS: {error}") from None


def faultpoint(name: str, key: int = 0, attempt: int = 0) -> None:
    """Inject the fault that STANDPIPE_FAULTS sets for this point, such as an error or a delay, if it sets one.

    name     name of the point
    key      number of the record or task; a fault depends on it, and not on the worker
    attempt  number of earlier attempts at the same work

    Raises ``OSError`` or ``RuntimeError`` if the fault is an error.
    """
    if not _TEXT:
        return
    if name not in POINTS:
        raise ValueError(f"no fault point {name}")
    code = _native.faultpoint(POINTS.index(name), key, attempt)
    if code > 0:
        raise OSError(code, os.strerror(code))
    if code < 0:
        raise RuntimeError(f"STANDPIPE_FAULTS: raised at {name}")
