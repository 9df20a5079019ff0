"""Objects that a process can only inherit: multiprocessing's values, locks, queues and pipes.

Their memory, semaphores and descriptors have no name by which another process finds them. They travel to a fork of
the process that made them, as the addresses that they have in both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

KINDS = {
    "multiprocessing.sharedctypes": ("SynchronizedBase",),
    "multiprocessing.synchronize": ("SemLock", "Condition", "Event", "Barrier"),
    "multiprocessing.queues": ("Queue", "SimpleQueue"),
    "multiprocessing.connection": ("_ConnectionBase",),
}
PUBLIC = {"Synchronized": "Value", "SynchronizedArray": "Array", "SynchronizedString": "Array"}

Objects = Mapping[int, object]  # by their addresses

_adopted: Objects = {}  # what this process, a fork, can hand on to servers


def is_only_inherited(value: object) -> bool:
    """Say whether a process can have an object only from the process that it was forked from."""
    kinds = [getattr(sys.modules.get(module), name, None) for module in KINDS for name in KINDS[module]]
    return isinstance(value, tuple(filter(None, kinds))) or _is_raw(value)


def _is_raw(value: object) -> bool:
    """Say whether an object is a ``RawValue`` or ``RawArray``: one of ctypes that has its shared memory."""
    memory = getattr(sys.modules.get("multiprocessing.heap"), "BufferWrapper", None)
    if memory is None or not isinstance(value, sys.modules["ctypes"].Structure.__base__):
        return False
    return isinstance(getattr(value, "_wrapper", None), memory)


def public_name(value: object) -> str:
    """Return how the user made an object: ``"multiprocessing.Value"``."""
    name = type(value).__name__
    if _is_raw(value):
        return "shared ctypes object of multiprocessing"
    return f"multiprocessing.{PUBLIC.get(name, name)}"


def adopt(objects: Objects) -> None:
    """Let servers that are forked from this process, which is a fork itself, have these objects."""
    global _adopted
    _adopted = objects


def adopted(address: int) -> object:
    """Return the object that the trainer had at an address when this process was forked from it."""
    return _adopted[address]


def reduced_proxy(value: object) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
    """Return how the proxy of a ``multiprocessing.Manager`` is made again; None for everything else."""
    kind = getattr(sys.modules.get("multiprocessing.managers"), "BaseProxy", None)
    if kind is None or not isinstance(value, kind):
        return None
    rebuild, arguments = value.__reduce__()[:2]
    return connected, (bytes(value._authkey), rebuild, arguments)


def connected(key: bytes, rebuild: Callable[..., object], arguments: tuple[Any, ...]) -> object:
    """Rebuild a proxy. Its manager accepts processes that have the trainer's key, as children of
    multiprocessing do.
    """
    import multiprocessing

    multiprocessing.current_process().authkey = key
    return rebuild(*arguments)
