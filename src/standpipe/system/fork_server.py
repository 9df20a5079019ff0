"""A process that keeps what worker processes have to import."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from standpipe.system.workers import WorkerOrigin


class ForkServer(WorkerOrigin):
    """A process that keeps what worker processes have to import, for ``loader(executor="process", mp_context=server)``.

    ``mp_context="forkserver"`` is one that all loaders share; one of your own can be started ahead and closed. The
    workers of all loaders that are given one come from it, and only the first loader waits for imports. Each worker has
    the data set as it is when its loader starts, and this process's environment, folder and ``sys.path`` of then. When
    this process loads a module anew, as notebooks do, the server is started anew.

    It starts with the first loader or ``preload``, takes the memory of an interpreter with those modules, and ends with
    ``close()``, when it is dropped, or with this process, however that ends. Copied or pickled it is another one,
    which hasn't started.

    idle_s  seconds without a loader after which it ends by itself, until the next one starts it again. None: never
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self.idle_s = idle_s
        self._inherits: Mapping[
            int, object
        ] = {}  # where it is a fork of this process: objects, by their addresses
        self._forks: weakref.WeakSet[ForkServer] = weakref.WeakSet()  # of this process, that preload() made
        self._process: Any = None  # standpipe.engine.processes.forking.Preloaded
        self._ends: weakref.finalize[..., ForkServer] | None = None

    def preload(self, *values: object) -> ForkServer:
        """Begin to import what these values need, so that their loader waits less for it; doesn't wait itself.

        values  datasets and functions; none of their code runs in this process

        Where modules were edited since it imported them, or the environment, the folder or ``sys.path`` is another one,
        it is started anew. Returns the fork server for loaders of these values: this one, or, where they hold objects
        of multiprocessing that a process can only inherit, a fork of this process. That lives as long as it is held.
        """
        from standpipe.engine.processes.forking import preload  # worker processes take long to import

        return preload(self, values)

    @classmethod
    def shared(cls) -> ForkServer:
        """Return the one of ``mp_context="forkserver"``, to preload or to close. It ends after five idle minutes."""
        return SHARED

    def close(self) -> None:
        """End it. Loaders that run go on; the next one starts it again."""
        ends, self._ends, self._process = self._ends, None, None
        if ends is not None:
            ends()

    def __reduce__(self) -> tuple[type[ForkServer], tuple[float | None]]:
        return ForkServer, (self.idle_s,)


SHARED = ForkServer(idle_s=300.0)  # of all loaders with mp_context="forkserver", and of the drop-in's
