"""Find what a dataset holds: Python objects, whose reference counts are written at every access, arrays, and
generators.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

SAMPLED = 512  # elements of a container that are looked at; the others are taken to be like them
DEPTH = 4
LEAST_OBJECTS = 1000  # of a holding that is reported
SMALL = range(-5, 257)  # integers of which Python has one each, never freed
GENERATORS = ("Generator", "RandomState", "Random")


def attributes(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield path and value of all attributes of a dataset, and of those that it is made of."""
    seen: set[int] = set()

    def of(owner: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        if id(owner) in seen or depth > DEPTH:
            return
        seen.add(id(owner))
        for name, value in _named(owner):
            yield f"{path}{name}", value
            if _is_made_of_parts(value):
                yield from of(value, f"{path}{name}", depth + 1)

    yield from of(dataset, "dataset", 0)


def _named(owner: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(owner, list | tuple):
        yield from ((f"[{number}]", value) for number, value in enumerate(owner[:16]))
        return
    names = dict(getattr(owner, "__dict__", {}))
    for kind in type(owner).__mro__:
        for name in _slots(kind):
            if hasattr(owner, name):
                names.setdefault(name, getattr(owner, name))
    yield from ((f".{name}", value) for name, value in names.items())


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_made_of_parts(value: Any) -> bool:
    """Return True if it may be a dataset or a transform, or a short list of some."""
    if isinstance(value, list | tuple):
        return 0 < len(value) <= 64 and all(_is_made_of_parts(part) for part in value[:16])
    if isinstance(value, type) or hasattr(value, "__code__"):
        return False
    root = type(value).__module__.partition(".")[0]
    return hasattr(value, "__dict__") and root not in ("builtins", "numpy", "pandas", "pyarrow", "logging")


def holdings(dataset: Any) -> list[dict[str, Any]]:
    """Attributes that hold many Python objects, or arrays: path, kind, objects and bytes of them, bytes of arrays."""
    found = []
    counted: set[int] = set()
    for path, value in attributes(dataset):
        if id(value) in counted or _is_made_of_parts(value):
            continue
        counted.add(id(value))
        objects, size, arrays = _measured(value, 0)
        if objects >= LEAST_OBJECTS or arrays >= 1 << 20:
            kind = _kind(value)
            found.append({"path": path, "kind": kind, "objects": objects, "bytes": size, "arrays": arrays})
    return found


def on_cuda(dataset: Any) -> str | None:
    """Return where a dataset holds a tensor on a GPU; None if it doesn't."""
    for path, value in attributes(dataset):
        if getattr(getattr(value, "device", None), "type", None) == "cuda":
            return path
    return None


def generators(dataset: Any) -> dict[str, Any]:
    """Random generators that a dataset, or a transform in it, holds, by their path."""
    return {path: value for path, value in attributes(dataset) if type(value).__name__ in GENERATORS}


def _measured(value: Any, depth: int) -> tuple[int, int, int]:
    """Objects, their bytes, and bytes of arrays."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value in SMALL):
        return 0, 0, 0
    parts = _parts(value)
    if parts is None:
        return _plain(value)
    number, some = parts
    own = sys.getsizeof(value) if not hasattr(value, "dtype") else 0
    arrays = int(getattr(value, "nbytes", 0))
    if depth >= DEPTH or not some:
        return 1, own, arrays
    # What is in there many times over counts once: names of classes, shared tuples.
    unique = {id(part): part for part in some}
    scale = number / len(some) if len(unique) > len(some) // 2 else 1.0
    inner = [_measured(part, depth + 1) for part in unique.values()]
    objects, size, more = (sum(column) * scale for column in zip(*inner, strict=True))
    return 1 + round(objects), own + round(size), arrays + round(more)


def _parts(value: Any) -> tuple[int, list[Any]] | None:
    """Return the length of a container and some of its elements, evenly spread; None for other values."""
    if isinstance(value, list | tuple | deque):
        step = max(1, len(value) // SAMPLED)
        return len(value), [value[place] for place in range(0, len(value), step)]
    if isinstance(value, dict):
        step = max(1, len(value) // SAMPLED)
        some = islice(value.items(), 0, None, step)
        return 2 * len(value), [part for pair in some for part in pair]
    if isinstance(value, set | frozenset):
        return len(value), list(islice(value, 0, None, max(1, len(value) // SAMPLED)))
    if type(value).__module__.startswith("pandas") and hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if str(getattr(value, "dtype", "")) == "object" and hasattr(value, "flat"):
        return value.size, list(value.flat[:: max(1, value.size // SAMPLED)])
    return None


def _plain(value: Any) -> tuple[int, int, int]:
    if type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "dtype"):
        shared = type(value).__module__.startswith("torch")  # shared by workers however they start
        return 1, 0, 0 if shared else int(getattr(value, "nbytes", 0))
    try:
        size = sys.getsizeof(value)
    except Exception:  # of a class that counts its own way
        size = 64
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and not isinstance(value, type):
        return 1 + len(own), size + sys.getsizeof(own) + sum(map(sys.getsizeof, own.values())), 0
    return 1, size, 0


def _kind(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, list | tuple) and value:
        return f"{name} of {type(value[0]).__name__}"
    if isinstance(value, dict) and value:
        key, part = next(iter(value.items()))
        return f"{name} of {type(key).__name__}: {type(part).__name__}"
    dtype = getattr(value, "dtype", None)
    return name if dtype is None else f"{name} of {dtype}"
