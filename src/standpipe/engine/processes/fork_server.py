"""A process from which worker processes are forked, with their imports already done."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from standpipe.system.workers import WorkerOrigin


class ForkServer(WorkerOrigin):
    """A process that imports the modules of datasets and functions, for workers to be forked from.

    Use it as ``loader(executor="process", mp_context=server)``. All loaders with ``mp_context="forkserver"``
    share one server; you can start a server of your own in advance, and close it. Workers of all loaders with
    the same server are forked from it, so only the first loader waits for imports.

    Each worker has the dataset as it is when its loader starts, and this process's environment, working
    directory and ``sys.path`` of that time. If this process reloads a module, as notebooks do, the server is
    started again.

    The server starts with the first loader or ``preload``. It takes the memory of an interpreter with those
    modules. It ends with ``close()``, when it is garbage collected, or with this process, however that ends.
    A copy of this object, also by pickling, is a new server that hasn't started.

    Parameters
    ----------
    idle_s : float, optional
        Seconds without a loader after which the server ends, until the next loader starts it again. None
        (default): never.

    Examples
    --------
    >>> server = sp.ForkServer(idle_s=60)
    >>> pipeline = sp.Pipeline(sp.MapSource([{"x": 1}, {"x": 2}])).batch(2)
    >>> with pipeline.loader(executor="process", mp_context=server, num_workers=1) as loader:
    ...     print(loader.peek()["x"])
    [1 2]
    >>> server.close()
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self.idle_s = idle_s
        self._inherits: Mapping[
            int, object
        ] = {}  # for a fork of this process: objects that it inherits, by address
        self._forks: weakref.WeakSet[ForkServer] = (
            weakref.WeakSet()
        )  # forks of this process that preload() made
        self._process: Any = None  # standpipe.engine.processes.forking.Preloaded
        self._waiting: set[object] = set()  # a token for each holder that lives; see ``_held_by``
        self._ends: weakref.finalize[..., ForkServer] | None = None

    def preload(self, *values: object) -> ForkServer:
        """Begin to import the modules of these values in the background, so that a loader waits less.

        The server is started again if modules were edited since it imported them, or if the environment, the
        working directory or ``sys.path`` has changed.

        Parameters
        ----------
        *values : object
            Datasets and functions. None of their code runs in this process.

        Returns
        -------
        ForkServer
            The server for loaders of these values: this one, or a fork of this process if the values hold
            objects of multiprocessing that a process can only inherit. Such a fork lives as long as you hold
            the server.
        """
        from standpipe.engine.processes.forking import preload  # importing it takes long

        return preload(self, values)

    def _held_by(self, holder: object) -> None:
        """Let the server end when its last holder is garbage collected, if no worker server was ever forked from it.

        holder  an object that calls ``preload`` and may never start a loader, such as a ``DataLoader`` of torch's
        """
        token = object()
        self._waiting.add(token)
        weakref.finalize(holder, self._released, token).atexit = False  # then the server ends anyway

    def _released(self, token: object) -> None:
        self._waiting.discard(token)
        if not self._waiting and self._process is not None and not self._process.has_forked:
            self.close()

    @classmethod
    def shared(cls) -> ForkServer:
        """Return the server of ``mp_context="forkserver"``, to preload or close.

        It ends after five minutes without a loader.
        """
        return SHARED

    def close(self) -> None:
        """End the server. Running loaders continue; the next loader starts it again."""
        ends, self._ends, self._process = self._ends, None, None
        if ends is not None:
            ends()

    def __reduce__(self) -> tuple[type[ForkServer], tuple[float | None]]:
        return ForkServer, (self.idle_s,)


SHARED = ForkServer(idle_s=300.0)  # for all loaders with mp_context="forkserver", and torch's drop-in
