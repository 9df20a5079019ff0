"""Find user functions that use global random generators, by making one sample in another process.

With the executors ``thread`` and ``inline``, user functions use the trainer's own generators. standpipe never reads
the trainer's generators, so it can't detect there that a function uses them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

import numpy as np

from standpipe.contracts import Records
from standpipe.engine.processes.packing import Luggage, pack
from standpipe.engine.processes.server_handle import WorkerServer
from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.start_common import first_record, worker_setup_of
from standpipe.errors import PlanError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan

MOST_BYTES = 4 << 20  # size of a packed dataset; packing so much takes some 40 ms of the start
NICENESS = 10  # so that the process doesn't delay the first batches


class Probe:
    """Finds functions that use global generators, by making one sample in another process.

    at       the cursor whose first sample is made
    drawing  functions that use global generators, each with the generators' names; None until the probe has ended
    looked   True if the sample was made
    """

    def __init__(self, plan: Plan, at: Cursor) -> None:
        self._plan, self._at = plan, at
        self._lock = threading.Lock()  # guards the server, which must end only once
        self._server: WorkerServer | None = None
        self._closed = False
        # Packed now, before other threads use the dataset: it may close its files when it is pickled.
        self._setup = replace(worker_setup_of(plan), cache=None)
        self._luggage = self._packed()
        self._thread = threading.Thread(target=self.run, name="standpipe-probe", daemon=True)
        self.drawing: tuple[str, ...] | None = None
        self.looked = False

    def start(self) -> None:
        """Start the probe's thread, unless the dataset can't be sent or the system allows no more threads."""
        with contextlib.suppress(RuntimeError):
            if self._luggage is not None and self._thread.ident is None:
                self._thread.start()

    def run(self) -> None:
        """Make the sample in another process, and set ``drawing``.

        ``drawing`` is empty if no function uses global generators, or if the dataset can't be sent or is too large.
        """
        found: tuple[str, ...] = ()
        with contextlib.suppress(Exception):  # an error that matters also occurs in the run, which raises it
            found = self._found()
            self.looked = True
        self._end()
        self.drawing = found

    def close(self, patience_s: float) -> bool:
        """End the process at once; return True if the probe's thread has ended in ``patience_s``."""
        self._closed = True
        self._end()
        with contextlib.suppress(RuntimeError):  # it wasn't started
            self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _packed(self) -> Luggage | None:
        """Return the packed setup, or None if it can't be pickled or is too large."""
        with contextlib.suppress(PlanError):
            return pack(self._setup, parts={}, pack=False, most_bytes=MOST_BYTES)
        return None

    def _found(self) -> tuple[str, ...]:
        plan = self._plan
        with self._lock:
            if self._closed or self._luggage is None:
                raise PlanError("the dataset can't be sent to another process")
            luggage, self._luggage = self._luggage, None
            self._server = server = WorkerServer(  # a new interpreter, which can be ended at any time
                self._setup, share_lists=False, workers=1, luggage=luggage
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
        """Return the key and record of the sample to make: the one at the cursor where the run starts.

        With ``batch_sampler=True`` it is the dataset's first record, and for a stream the epoch's first sample.
        """
        plan, epoch = self._plan, self._at.epoch
        if plan.pipeline.batch_sampler:
            return RowKey(0, epoch, 0), plan.source.locate(np.zeros(1, np.int64))
        return first_record(plan, self._at if plan.samples.stream is None else Cursor(epoch))

    def _end(self) -> None:
        with self._lock:
            # The server is forgotten only once it has ended: after an interrupt, the next call ends it.
            if self._server is not None:
                self._server.end()
                self._server.close(0)  # this ends the worker too
                self._server = None
            if self._luggage is not None:
                self._luggage.close()
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
