"""Find the user's functions that use global random generators, by one sample that is made in another process.

In threads and inline these functions use the trainer's own generators, which standpipe never reads. So
nothing else would show it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

import numpy as np

from standpipe.contracts import Records
from standpipe.engine.processes.server_handle import WorkerServer
from standpipe.engine.processes.travel import Luggage, pack
from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.start_common import first_record, recipe_of
from standpipe.errors import PlanError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan

MOST_BYTES = 4 << 20  # of a dataset on its way: packing it takes some 40 ms of the start
NICENESS = 10  # so that the first batches come first


class Probe:
    """A process that makes one sample, and its findings.

    drawing  functions that use global generators, each with the generators' names; None until it is known
    looked   True if the sample was made
    """

    def __init__(self, plan: Plan, at: Cursor) -> None:
        self._plan, self._at = plan, at
        self._lock = threading.Lock()  # of the server: it ends once
        self._server: WorkerServer | None = None
        self._closed = False
        # Packed now, before other threads use what is packed: a dataset may close its files for that.
        self._recipe = replace(recipe_of(plan), cache=None)
        self._luggage = self._packed()
        self._thread = threading.Thread(target=self.run, name="standpipe-probe", daemon=True)
        self.drawing: tuple[str, ...] | None = None
        self.looked = False

    def start(self) -> None:
        """Begin, in a thread of its own; not at all when nothing can travel, or the system allows no thread."""
        with contextlib.suppress(RuntimeError):
            if self._luggage is not None and self._thread.ident is None:
                self._thread.start()

    def run(self) -> None:
        """Make the sample. A dataset that can't travel, or is too large to, has nothing found of it."""
        found: tuple[str, ...] = ()
        with contextlib.suppress(Exception):  # whatever it is: the run meets it where it matters, and says so
            found = self._found()
            self.looked = True
        self._end()
        self.drawing = found

    def close(self, patience_s: float) -> bool:
        """End it, whatever it is at. False when its thread is still busy then."""
        self._closed = True
        self._end()
        with contextlib.suppress(RuntimeError):  # it wasn't started
            self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _packed(self) -> Luggage | None:
        """Return what travels; None where it can't, or is too large."""
        with contextlib.suppress(PlanError):
            return pack(self._recipe, parts={}, pack=False, most_bytes=MOST_BYTES)
        return None

    def _found(self) -> tuple[str, ...]:
        plan = self._plan
        with self._lock:
            if self._closed or self._luggage is None:
                raise PlanError("the dataset can't be sent to another process")
            luggage, self._luggage = self._luggage, None
            self._server = server = WorkerServer(  # of an interpreter of its own: it is ended at any time
                self._recipe, share_lists=False, workers=1, luggage=luggage
            )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, server.process, NICENESS)
        server.wait_until_ready()
        server.side.cap_bytes = plan.memory.forecast.side
        worker = WorkerProcess(server, 0)
        try:
            key, records = self._sample()
            drawn = worker.probe(key, Inputs(records))
        finally:
            worker.kill()
            worker.close()
        return tuple(f"{name} ({', '.join(generators)})" for name, generators in drawn.items())

    def _sample(self) -> tuple[RowKey, Records]:
        """Return the sample to make: the run's first, or the dataset's first for streams and given batches."""
        plan, epoch = self._plan, self._at.epoch
        if plan.pipeline.batch_sampler:
            return RowKey(0, epoch, 0), plan.source.locate(np.zeros(1, np.int64))
        return first_record(plan, self._at if plan.samples.stream is None else Cursor(epoch))

    def _end(self) -> None:
        with (
            self._lock
        ):  # kept in mind until it has ended: asked again, after an interrupt, this goes on with it
            if self._server is not None:
                self._server.end()
                self._server.close(0)  # with the worker, whatever it is at
                self._server = None
            if self._luggage is not None:
                os.close(self._luggage.descriptor)
                self._luggage = None


def drawing(plan: Plan) -> tuple[str, ...] | None:
    """Return the functions of a plan that use global generators of this process, found by its first sample.

    Return None if that sample couldn't be made in another process.
    """
    if not plan.runs_code_here:
        return ()
    probe = Probe(plan, Cursor())
    probe.run()
    return probe.drawing if probe.looked else None
