"""Pickle a dataset and its functions for other processes: long lists are packed, and arrays are mapped."""

from __future__ import annotations

import fcntl
import io
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from standpipe.engine.processes.inherited import (
    Objects,
    adopted,
    is_only_inherited,
    public_name,
    reduced_proxy,
)
from standpipe.engine.processes.mapped import Block, Blocks, BlocksThere
from standpipe.engine.processes.outline import attributes
from standpipe.engine.processes.shared import Descriptor, Descriptors
from standpipe.errors import PlanError
from standpipe.system.packed import LEAST_ITEMS, ListLocation, SharedFile, SharedList, packed_column

MOST_DEPTH = 6  # levels of attributes that are searched for the one that can't be pickled


class _Packing(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that writes long lists of similar items and large arrays to a file, and pickles their places there.

    out        the file for the pickle
    lists      the file for lists and arrays
    pack       True: pack long lists too, not only those in a ``SharedList``
    modules    names of modules that unpickling imports, as keys, in order
    inherited  filled with the objects that the receiver must have inherited, by address; None: refuse such objects
    shared     filled with the descriptors of tensors in shared memory; None: pickle a copy of such tensors
    """

    def __init__(
        self,
        out: Any,
        lists: SharedFile,
        *,
        pack: bool,
        inherited: dict[int, object] | None = None,
        shared: Descriptors | None = None,
    ) -> None:
        super().__init__(out, protocol=5)
        self._lists, self._pack, self._inherited, self._shared = lists, pack, inherited, shared
        self._columns: dict[int, ListLocation | None] = {}
        self._blocks = Blocks(lists)
        self.modules: dict[str, None] = {}

    def persistent_id(self, value: Any) -> ListLocation | Block | Descriptor | None:
        """Return the place of a list, buffer or descriptor beside the pickle; None: pickle the value as usual."""
        if isinstance(value, SharedList):
            return self._packed(value, list(value))
        if type(value) is pickle.PickleBuffer:
            return self._blocks.block(value)
        if type(value) is Descriptor:
            return value
        if not self._pack or type(value) is not list or len(value) < LEAST_ITEMS:
            return None
        return self._packed(value, value)

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a value, as the ``pickle`` module defines it, and record the modules that it needs.

        Classes and functions of the main module are pickled by value, those of other modules by name.
        """
        if is_only_inherited(value):
            if self._inherited is None:
                raise pickle.PicklingError("only a fork of the process that made it can have it")
            self._inherited[id(value)] = value
            return adopted, (id(value),)
        shared = None if self._shared is None else self._shared.reduced(value)
        if (made := shared or self._blocks.reduced(value) or reduced_proxy(value)) is not None:
            self.modules[made[0].__module__] = None
            return made
        reduced = super().reducer_override(value)
        if isinstance(value, ModuleType):
            self.modules[value.__name__] = None
        elif reduced is NotImplemented and isinstance(value, type | FunctionType | BuiltinFunctionType):
            self.modules[value.__module__ or "builtins"] = None
        return reduced

    def _packed(self, value: Any, items: list[Any]) -> ListLocation | None:
        if id(value) not in self._columns:
            self._columns[id(value)] = packed_column(self._lists, items)
        return self._columns[id(value)]


class _Unpacking(pickle.Unpickler):
    def __init__(self, source: Any, lists: SharedFile, shared: Sequence[int]) -> None:
        super().__init__(source)
        self._lists, self._blocks, self._shared = lists, BlocksThere(lists), shared

    def persistent_load(self, place: Any) -> SharedList | memoryview | Descriptor:
        """Return the list, memory or descriptor for which ``persistent_id`` pickled ``place``."""
        if isinstance(place, Descriptor):
            return Descriptor(self._shared[place.number])
        return self._blocks.view(place) if isinstance(place, Block) else SharedList(self._lists, place)


@dataclass(frozen=True, slots=True)
class Luggage:
    """A pickled setup for worker processes, in two anonymous files, and the descriptors that belong to it.

    descriptor  descriptor of the file with the pickle
    lists       the file with long lists and large arrays
    modules     names of modules that unpickling imports
    inherited   objects that only a fork of this process can unpickle, by their addresses
    shared      descriptors of tensors in shared memory
    """

    descriptor: int
    lists: SharedFile
    modules: Sequence[str]
    inherited: Objects
    shared: Descriptors

    def close(self) -> None:
        """Close the descriptors, except that of ``lists``, which closes itself."""
        os.close(self.descriptor)
        self.shared.close()


def pack(
    value: Any, *, parts: Mapping[str, Any], pack: bool, most_bytes: int | None = None, remedy: str = ""
) -> Luggage:
    """Pickle a value into an anonymous file, and its long lists and arrays into another.

    parts       the user's objects in ``value``, by their names in error messages
    pack        True: pack long lists too, not only those in a ``SharedList``
    most_bytes  limit of each file's size, with which objects that only a fork can have are refused, and tensors in
                shared memory are copied; None: no limit
    remedy      another way out for the error's message; empty: there is none

    Raises ``PlanError`` with the name of the part that can't be pickled.
    """
    lists = SharedFile(None if most_bytes is None else _bounded_file(most_bytes))
    inherited: dict[int, object] = {}
    shared = Descriptors()
    descriptor = os.memfd_create("standpipe-setup") if most_bytes is None else _bounded_file(most_bytes)
    try:
        with open(descriptor, "wb", closefd=False) as out:
            objects, files = (inherited, shared) if most_bytes is None else (None, None)
            packing = _Packing(out, lists, pack=pack, inherited=objects, shared=files)
            packing.dump(value)
        modules = [name for name in packing.modules if name != "__main__"]
        return Luggage(descriptor, lists, modules, inherited, shared)
    except BaseException as error:
        os.close(descriptor)
        shared.close()
        if not isinstance(error, Exception):
            raise
        if most_bytes is not None:  # the caller doesn't show the error, so the part isn't searched
            raise PlanError(f"the pipeline can't be sent to another process: {error}") from error
        part, reason = _first_culprit(parts.items()) or ("the pipeline", str(error))
        raise PlanError(
            f"{part} can't be sent to worker processes: {reason}. Create it in the worker, at its first use; or "
            f"leave it out in __getstate__; or use executor='thread'{remedy}"
        ) from error


def first_inherited(parts: Mapping[str, Any]) -> str:
    """Return the name of the innermost object in ``parts`` that can't be pickled without a fork, for a message.

    parts  the user's objects by their names
    """
    return (_first_culprit(parts.items()) or ("the dataset", ""))[0]


def _bounded_file(most_bytes: int) -> int:
    """Return the descriptor of an anonymous file of ``most_bytes`` that can't grow; only written pages take memory."""
    descriptor = os.memfd_create("standpipe-setup", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, most_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return descriptor


def unpack(descriptor: int, lists: int, shared: Sequence[int] = ()) -> Any:
    """Return the value that ``pack`` packed, and close all descriptors when they aren't needed any more.

    descriptor  of the file with the pickle
    lists       of the file with long lists and arrays
    shared      of tensors in shared memory
    """
    file = SharedFile(lists)
    # Opened again, as other workers that inherited the descriptor move the same position.
    with Path(f"/proc/self/fd/{descriptor}").open("rb") as source:
        os.close(descriptor)
        return _Unpacking(source, file, shared).load()


def _first_culprit(parts: Iterable[tuple[str, Any]], depth: int = 0) -> tuple[str, str] | None:
    """Return the name of the innermost object in ``parts`` that can't be pickled, and the reason.

    Return None if all can be pickled. ``depth`` is the number of levels that were searched before.
    """
    for name, part in parts:
        try:
            _Packing(io.BytesIO(), SharedFile(), pack=False).dump(part)
        except Exception as error:
            if is_only_inherited(part):
                return f"{name}, a {public_name(part)},", str(error)
            inner = _first_culprit(_parts(part, name), depth + 1) if depth < MOST_DEPTH else None
            return inner or (f"{name}, a {type(part).__name__},", str(error).partition("\n")[0])
    return None


def _parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{name}[{number}]", part) for number, part in enumerate(value[:100]))
    elif (code := getattr(value, "__code__", None)) is not None:
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f"{part_name}, which {name} uses", cell.cell_contents) for part_name, cell in cells)
        used = {
            part_name: value.__globals__[part_name]
            for part_name in code.co_names
            if part_name in value.__globals__
        }
        yield from ((f"{part_name}, which {name} uses", part) for part_name, part in used.items())
    else:
        # The names of standpipe's own objects around the dataset mean nothing to the user.
        owner = "the " if type(value).__module__.startswith("standpipe.") else f"{name}."
        yield from ((f"{owner}{part_name}", part) for part_name, part in attributes(value).items())
