"""Send tensors in shared memory, such as those of ``share_memory_()``, as that memory, not as a copy of it.

torch pickles such a tensor for a process that multiprocessing starts. The descriptor of the memory then travels beside
the pickle: ``multiprocessing.reduction.DupFd`` asks the object that stands for the new process to bring it there. With
torch's sharing strategy ``"file_system"``, the pickle has the memory's name, and no descriptor travels.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen, set_spawning_popen
from typing import Any

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class NoDescriptor(Exception):
    """Raised for memory that maps a file whose descriptor is closed, such as that of ``torch.from_file``."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor in a pickle: its place among those that travel beside it, and in the other process its number."""

    number: int

    def detach(self) -> int:
        """Return the descriptor's number, for the caller to close. torch calls it, as multiprocessing defines it."""
        return self.number


class Descriptors:
    """The descriptors that travel beside one pickle, in the sending process.

    It stands for the new process, as multiprocessing defines that: ``DupFd`` and ``duplicate_for_child``.

    files  the descriptors, which ``close`` closes
    """

    DupFd = Descriptor

    def __init__(self) -> None:
        self.files: list[int] = []
        self._storages: dict[int, tuple[Any, Reduced | None]] = {}  # by their addresses, and kept alive

    def duplicate_for_child(self, descriptor: int) -> int:
        """Keep a duplicate of a descriptor for the new process; return its place in ``files``."""
        if descriptor < 0:
            raise NoDescriptor
        self.files.append(os.dup(descriptor))
        return len(self.files) - 1

    def reduced(self, value: Any) -> Reduced | None:
        """Return a function and arguments that find the shared memory of a torch storage; None for other values."""
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return None
        if type(value) is torch.storage.TypedStorage:
            typed: Reduced = torch.multiprocessing.reductions.reduce_typed_storage(value)
            return typed if self.reduced(typed[1][0]) else None
        # ``is_shared()`` is also True for memory of a GPU, and for a file's.
        if type(value) is not torch.UntypedStorage or value.device.type != "cpu" or not value.is_shared():
            return None
        if value.filename is not None:
            return None
        address = value.data_ptr()
        if address not in self._storages:
            self._storages[address] = value, self._reduced_storage(value, torch.multiprocessing)
        return self._storages[address][1]

    def _reduced_storage(self, storage: Any, multiprocessing: Any) -> Reduced | None:
        before = get_spawning_popen()
        set_spawning_popen(self)  # type: ignore[arg-type]  # its types don't know others' processes
        try:
            reduced: Reduced = multiprocessing.reductions.reduce_storage(storage)
        except NoDescriptor:
            return None
        finally:
            set_spawning_popen(before)
        return rebuilt, (multiprocessing.get_sharing_strategy(), *reduced)

    def close(self) -> None:
        """Close the descriptors."""
        while self.files:
            os.close(self.files.pop())


def rebuilt(strategy: str, rebuild: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return the storage, and use the trainer's sharing strategy in this process.

    With another strategy, a later ``share_memory_()`` would replace the memory.
    """
    torch: Any = sys.modules["torch"]  # imported with ``rebuild``
    torch.multiprocessing.set_sharing_strategy(strategy)
    return rebuild(*arguments)
