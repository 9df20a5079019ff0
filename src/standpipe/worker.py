"""Worker processes: which one code runs in, and where they come from."""

from __future__ import annotations

import weakref
from typing import Any, Literal

_number: int | None = None


def worker_number() -> int | None:
    """The number of the worker process that this code runs in, from 0 to ``workers`` − 1; None anywhere else.

    One that takes the place of a worker that died has its number.
    """
    return _number


def be_worker(number: int) -> None:
    """This process is a worker from now on."""
    global _number
    _number = number


class ForkServer:
    """A process that keeps what worker processes have to import, for ``loader(executor="process", fork_from=server)``.

    Without it each loader's workers come from an interpreter of their own, which imports torch, say, for seconds. Those
    of all loaders that are given one come from it, and only the first one waits: each with a dataset as it is when the
    loader starts, and with this process's environment, folder and ``sys.path`` of then. When this process loads a
    module anew, as notebooks do, it is started anew.

    It starts with the first loader, takes the memory of an interpreter with those modules, and ends with ``close()``,
    when it is dropped, or with this process, however that ends. Copied or pickled it is another one, which hasn't
    started.
    """

    def __init__(self) -> None:
        self._process: Any = None  # standpipe.engine.forking.Preloaded
        self._ends: weakref.finalize[..., ForkServer] | None = None

    def close(self) -> None:
        """End it. Loaders that run go on; the next one starts it again."""
        ends, self._ends, self._process = self._ends, None, None
        if ends is not None:
            ends()

    def __reduce__(self) -> tuple[type[ForkServer], tuple[()]]:
        return ForkServer, ()


ForkFrom = ForkServer | Literal["trainer"] | None
