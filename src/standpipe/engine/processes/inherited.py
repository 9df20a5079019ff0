"""Objects that a process can only inherit from its parent: multiprocessing's values, locks, queues and pipes.

Their memory, semaphores and descriptors have no name by which another process could find them. Only a fork of the
process that made them has them. They are pickled as their addresses, which are the same in the fork.
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

Objects = Mapping[int, object]  # objects by their addresses

_adopted: Objects = {}  # in a fork: the objects that its worker servers may use


def is_only_inherited(value: object) -> bool:
    """Return True if a process can get this object only by inheriting it in a fork, not by pickling."""
    kinds = [getattr(sys.modules.get(module), name, None) for module in KINDS for name in KINDS[module]]
    return isinstance(value, tuple(filter(None, kinds))) or _is_raw(value)


def _is_raw(value: object) -> bool:
    """Return True if an object is a ``RawValue`` or ``RawArray``: a ctypes object in shared memory."""
    memory = getattr(sys.modules.get("multiprocessing.heap"), "BufferWrapper", None)
    if memory is None or not isinstance(value, sys.modules["ctypes"].Structure.__base__):
        return False
    return isinstance(getattr(value, "_wrapper", None), memory)


def public_name(value: object) -> str:
    """Return the name of an object's type for messages, such as ``"multiprocessing.Value"``."""
    name = type(value).__name__
    if _is_raw(value):
        return "shared ctypes object of multiprocessing"
    return f"multiprocessing.{PUBLIC.get(name, name)}"


def keep_objects(objects: Objects) -> None:
    """Keep these objects, by address, for the worker servers that are forked from this process."""
    global _adopted
    _adopted = objects


def adopted(address: int) -> object:
    """Return the object that the trainer had at an address when this process was forked from it."""
    return _adopted[address]


def reduced_proxy(value: object) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
    """Return a function and arguments that rebuild a ``multiprocessing.Manager``'s proxy; None for other objects."""
    kind = getattr(sys.modules.get("multiprocessing.managers"), "BaseProxy", None)
    if kind is None or not isinstance(value, kind):
        return None
    rebuild, arguments = value.__reduce__()[:2]
    return connected, (bytes(value._authkey), rebuild, arguments)


def connected(key: bytes, rebuild: Callable[..., object], arguments: tuple[Any, ...]) -> object:
    """Set the trainer's key, which the manager requires, and rebuild a proxy."""
    import multiprocessing

    multiprocessing.current_process().authkey = key
    return rebuild(*arguments)
