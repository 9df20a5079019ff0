"""Send arrays and tensors of a dataset to other processes as mapped memory, instead of a copy for each.

The memory is written to an anonymous file once. A process gets its own copy of a page only when it writes to the page,
as after a fork. An array that maps a file already, such as that of ``numpy.load(…, mmap_mode="r")``, maps the same file
in the other processes.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe.spec import AnyArray

if TYPE_CHECKING:
    from standpipe.system.packed import SharedFile

LEAST_BYTES = 64 << 10  # smaller buffers are copied: a mapping takes whole pages

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Block:
    """A range of bytes in the anonymous file.

    begin     first byte
    size      number of bytes
    readonly  True if arrays over these bytes must not be written to
    """

    begin: int
    size: int
    readonly: bool


class Blocks:
    """Writes the large buffers of one pickle to an anonymous file, in the sending process."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._storages: dict[int, AnyArray] = {}  # bytes of tensors' storages, by their addresses

    def block(self, buffer: Any) -> Block | None:
        """Write a ``PickleBuffer`` to the file, and return its block; None if it has less than 64 KiB."""
        view = buffer.raw()
        if view.nbytes < LEAST_BYTES:
            return None
        return Block(self._file.append(view, mmap.PAGESIZE), view.nbytes, view.readonly)

    def reduced(self, value: Any) -> Reduced | None:
        """Return a function and arguments that rebuild a memory map or a tensor's storage; None for other values."""
        kind = type(value)
        if kind is np.memmap:
            return _reduced_memmap(value)
        if kind is _storage_class() and value._untyped_storage.device.type == "cpu":
            return _storage, (self._bytes_of(value), value.dtype)
        return None

    def _bytes_of(self, storage: Any) -> AnyArray:
        """Return the bytes of a torch storage as an array, always the same array for the same memory.

        So tensors that share memory in this process also share it in the other process.
        """
        untyped = storage._untyped_storage
        if untyped.data_ptr() not in self._storages:
            torch: Any = sys.modules["torch"]
            array: AnyArray = torch.empty(0, dtype=torch.uint8).set_(untyped).numpy()
            self._storages[untyped.data_ptr()] = array
        return self._storages[untyped.data_ptr()]


class BlocksThere:
    """Maps the large buffers of one pickle from its anonymous file, in the receiving process."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._memory: memoryview | None = None

    def view(self, block: Block) -> memoryview:
        """Return a view of a block's memory."""
        if self._memory is None:
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
            prot = mmap.PROT_READ | mmap.PROT_WRITE
            self._memory = memoryview(mmap.mmap(self._file.descriptor, 0, flags=flags, prot=prot))
        view = self._memory[block.begin : block.begin + block.size]
        return view.toreadonly() if block.readonly else view


def _storage_class() -> Any:
    """Return torch's class of typed storages; None if torch isn't imported."""
    return getattr(sys.modules.get("torch.storage"), "TypedStorage", None)


def _storage(content: AnyArray, dtype: Any) -> Any:
    """Return a torch storage over an array's memory."""
    import torch

    storage = torch.from_numpy(content).untyped_storage()
    typed: Any = torch.storage.TypedStorage
    return typed(wrap_storage=storage, dtype=dtype, _internal=True)


def _reduced_memmap(array: Any) -> Reduced | None:
    """Return a function and arguments that map the file of a ``numpy.memmap`` again.

    Return None if the file isn't known, the array isn't contiguous, or changes of it aren't written to the file.
    """
    mapped = getattr(array, "_mmap", None)
    has_gaps = not (array.flags.c_contiguous or array.flags.f_contiguous)
    if mapped is None or has_gaps or array.filename is None or not Path(array.filename).exists():
        return None
    if array.mode == "c":  # copy on write: changes aren't in the file
        return None
    order = "C" if array.flags.c_contiguous else "F"
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # of the mapping, in the file
    inside = _address(array) - _address(np.frombuffer(mapped, np.uint8))
    if not 0 <= inside <= len(mapped) - array.nbytes:
        return None
    mode = "r+" if array.mode == "w+" else array.mode
    return np.memmap, (array.filename, array.dtype, mode, begin + inside, array.shape, order)


def _address(array: AnyArray) -> int:
    return int(array.__array_interface__["data"][0])
