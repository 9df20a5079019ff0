"""The programs of the worker server and of a worker process.

The worker server is a new interpreter by default: it never runs the trainer's main module, and has none of the
trainer's memory. It loads the setup once, so that workers share the setup's memory, and forks workers on demand. In
the server and in every worker, a native thread ends the process when the trainer ends.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import mmap
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from standpipe import _native
from standpipe.batch.layout import SlotLayout
from standpipe.carried import Held, Report
from standpipe.engine.cache import opened
from standpipe.engine.processes.answers import Answers
from standpipe.engine.processes.failures import picklable, sendable, unsendable
from standpipe.engine.processes.messages import (
    Ended,
    Parcel,
    channel_of,
    parcel,
    receive,
    receive_files,
    send,
    send_parcel,
)
from standpipe.engine.processes.packing import unpack
from standpipe.engine.python.cached_samples import SampleCache
from standpipe.engine.python.calls import initialize, unforeseen
from standpipe.engine.python.functions import apply_batch_functions, make_sample_list, probed
from standpipe.engine.python.samples import SampleMaker
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.rows import BatchRows, PartOfRows
from standpipe.engine.watchdog.board import (
    ANSWERING,
    IDLE,
    LOADING,
    PIECE,
    STEP,
    Heartbeat,
    heartbeat_of,
    shared_words,
)
from standpipe.engine.watchdog.where import show_stacks_on_signal
from standpipe.engine.workers import (
    BatchMade,
    CantRebuildError,
    CantWorkError,
    Failure,
)
from standpipe.errors import WorkerDiedError
from standpipe.spec import AnyArray
from standpipe.stats.counters import Counts, counts_since
from standpipe.system.faults import faultpoint
from standpipe.system.threads import ignore_interrupts, other_threads
from standpipe.system.workers import be_helper, be_worker

Load = Callable[[], tuple[WorkerSetup, Report]]  # returns a setup, and what loading it has set


def main() -> None:
    """Run a worker server until the trainer ends.

    The program's arguments are descriptors, and the trainer's process number.
    """
    *given, trainer = map(int, sys.argv[1:9])
    serve(given, trainer)
    os._exit(0)


def serve(given: Sequence[int], trainer: int, setup: WorkerSetup | None = None) -> None:
    """Run a worker server in this process until its channel or the trainer ends.

    given    descriptors, which this function closes: of the channel to the trainer, of the pipe that ends with the
             trainer, of the packed setup and its lists, of the heartbeats, of the side arena, of the file for stacks
    trainer  the trainer's process number
    setup   the setup, if this process is a fork of the trainer; None: unpack it from its descriptor
    """
    control, pipe, setup_file, lists_file, board, side, stacks = given
    ignore_interrupts()
    be_helper()
    _native.end_with(pipe, trainer)
    show_stacks_on_signal(stacks)  # workers inherit this handler
    with contextlib.suppress(Ended), channel_of(control) as channel:
        send(channel, ("begun", os.getpid()))
        try:
            if setup is None:
                load, report = _received(channel, setup_file, lists_file)
            else:
                load, report = _done((setup, Report()))
        except BaseException as error:
            send(channel, ("failed", CantRebuildError(picklable(error))))
            return
        if setup is None:
            gc.collect()  # not in a fork of the trainer, where it would copy the pages of all objects
            _native.give_back_free_memory()  # from now on freed memory is reused, and not returned each time
        gc.freeze()  # so that collections in workers don't copy the pages of the server's objects
        report.threads = other_threads()
        send(channel, ("ready", report))
        Server(channel, load, shared_words(board), _shared_side(side), pipe, trainer).run()


def _received(channel: socket.socket, setup_file: int, lists_file: int) -> tuple[Load, Report]:
    """Receive the setup, and load it, except in late mode. Return how a worker gets it, and what was set here."""
    files = receive_files(channel)
    carried, late = receive(channel)

    def load() -> tuple[WorkerSetup, Report]:
        held = Held(carried)
        setup = unpack(setup_file, lists_file, files)
        held.set_settings()
        return setup, held.report

    return (load, Report()) if late else _done(load())


def _done(loaded: tuple[WorkerSetup, Report]) -> tuple[Load, Report]:
    return (lambda: loaded), loaded[1]


def forked(run: Callable[[], object]) -> int:
    """Fork a child that calls ``run`` and then ends; return its process number."""
    _flush()
    with warnings.catch_warnings():
        # Python warns about a fork with threads. The only other threads are native, and just wait.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        _after_fork()
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _after_fork() -> None:
    """Reset multiprocessing's objects after a fork, as children of multiprocessing do.

    A queue drops its writing thread, and a manager's proxy drops its connection: both belong to the parent.
    """
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_after_forkers()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's code may have closed or replaced the stream
            stream.flush()


@dataclass(frozen=True, slots=True)
class Server:
    """A worker server: it forks workers, and reports how they ended.

    control     the channel to the trainer
    load        returns the setup that all workers share; in late mode, each worker loads its own
    heartbeats  shared memory with the heartbeats of all workers
    side        the side arena: memory for large images
    pipe        read end of a pipe that is closed when the trainer ends
    trainer     the trainer's process number
    """

    control: socket.socket
    load: Load
    heartbeats: Heartbeat
    side: _native.SharedSide
    pipe: int
    trainer: int

    def run(self) -> None:
        """Answer the trainer's messages in order, until ``Ended`` is raised."""
        while True:
            kind, number = receive(self.control)
            if kind == "fork":
                _, (descriptor,), _, _ = socket.recv_fds(self.control, 1, 1)
                send(self.control, self._fork(number, descriptor))
            else:
                send(self.control, status_of(number))

    def _fork(self, number: int, descriptor: int) -> int:
        """Fork worker ``number``, with ``descriptor`` as its channel to the trainer; return its process number."""
        faultpoint("server.fork")

        def work() -> None:
            self.control.close()
            be_worker(number)
            _native.end_with(self.pipe, self.trainer)
            side = _native.SideArena(self.side, number)
            channel, heartbeat = channel_of(descriptor), heartbeat_of(self.heartbeats, number)
            with contextlib.suppress(Ended):
                heartbeat[STEP] = LOADING
                begin_s = time.monotonic()
                try:
                    setup, report = self.load()
                except BaseException as error:
                    _refuse(channel, CantRebuildError(picklable(error)))
                loaded = report, time.monotonic() - begin_s
                Worker(channel, setup, side, heartbeat, loaded).run()
            channel.detach()  # the process's end closes it; user code may already have closed this number

        process = forked(work)
        os.close(descriptor)
        return process


def _refuse(channel: socket.socket, error: CantRebuildError) -> NoReturn:
    """Answer the trainer's messages with ``error``, until ``Ended`` is raised."""
    failure = Failure(0, "source", str(error), error, whole=True)
    while True:
        kind, *message = receive(channel)
        if kind == "slots":
            os.close(socket.recv_fds(channel, 1, 1)[1][0])
        elif kind in ("rows", "samples", "functions"):
            _, _, _, first, *_ = message
            send(channel, ([replace(failure, row=first)], {}, None, {}, (), None))
        else:
            send(channel, failure)


def _shared_side(descriptor: int) -> _native.SharedSide:
    """Map the trainer's side arena, close its descriptor, and return the arena."""
    try:
        return _native.SharedSide.of(descriptor)
    finally:
        os.close(descriptor)


def status_of(process: int) -> int | None:
    """Return the exit code of an ended child, or minus the number of the signal that killed it.

    Return None if the child still runs, or if the process is no child of this one.
    """
    with contextlib.suppress(ChildProcessError):
        ended, status = os.waitpid(process, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    return None


class Worker:
    """A worker process: it makes rows for one trainer until its channel is closed.

    loaded  the answer to ``"loaded"``: what loading the setup has set here, and its seconds
    """

    def __init__(
        self,
        channel: socket.socket,
        setup: WorkerSetup,
        side: _native.SideArena,
        heartbeat: Heartbeat,
        loaded: tuple[Report, float],
    ) -> None:
        self._channel, self._heartbeat, self._loaded = channel, heartbeat, loaded
        self._notes: list[str] = []
        self._ended: Failure | None = None
        self._supplies = Supplies.of(setup, side, kept=self._kept(setup))
        keyed = not setup.round_robin
        self._maker = SampleMaker(
            setup, self._supplies, keyed=keyed, catches=BaseException, heartbeat=heartbeat
        )
        self._told: Counts = {}
        self._arena: Any = None
        self._layouts: Sequence[SlotLayout] = ()
        self._stride = 0
        self._fields: tuple[str, ...] = ()
        self._listed: tuple[str, ...] = ()
        self._known_from = ""
        self._answers = Answers(side, heartbeat)
        heartbeat[STEP] = IDLE  # until now it held the last step of the worker before this one

    def run(self) -> None:
        """Call the user's initializer, and answer the trainer's messages in order, until ``Ended`` is raised."""
        refused = self._initialize()
        while True:
            kind, *message = receive(self._channel)
            match kind:
                case "loaded":
                    send(self._channel, self._loaded)
                case "measure":
                    send(self._channel, sendable(refused or self._maker.measure(*message)))
                case "probe":
                    send(self._channel, probed(self._maker, *message))
                case "slots":
                    self._map(*message)
                case "trim":
                    gc.collect()
                    _native.give_back_free_memory()
                    send(self._channel, None)
                case "let go":
                    if self._supplies.kept is not None:
                        self._supplies.kept.close(*message)
                    send(self._channel, ("let go", *self._met()))
                case _:
                    self._heartbeat[PIECE], *what = message
                    try:
                        send_parcel(self._channel, self._answer(kind, *what))
                    finally:
                        self._answers.given()
                    self._heartbeat[STEP] = IDLE

    def _initialize(self) -> Failure | None:
        """Call the user's initializer. Return its failure, with which every task is answered then."""
        try:
            initialize(self._maker.setup.initializer)
        except CantWorkError as error:
            self._ended = Failure(0, "source", str(error), error, whole=True)
            return self._ended
        return None

    def _kept(self, setup: WorkerSetup) -> SampleCache | None:
        """Open the setup's cache, and return it; None without a cache, or if it can't be opened."""
        cache, tell = setup.cache, self._notes.append
        if cache is None or (found := opened(cache, tell, strict=False)) is None:
            return None
        kept = SampleCache(cache, found, tell)
        kept.start(self._end)
        return kept

    def _end(self, error: WorkerDiedError) -> None:
        """Answer every later task with this error, as a thread of this worker has ended."""
        self._ended = Failure(0, "died", str(error), error, whole=True)

    def _map(
        self,
        layouts: Sequence[SlotLayout],
        stride: int,
        slots: int,
        fields: tuple[str, ...],
        listed: tuple[str, ...],
        known_from: str,
        row_bytes: int,
    ) -> None:
        _, (descriptor,), _, _ = socket.recv_fds(self._channel, 1, 1)
        self._arena = np.frombuffer(mmap.mmap(descriptor, stride * slots), np.uint8)
        os.close(descriptor)
        self._layouts, self._stride, self._fields, self._listed = layouts, stride, fields, listed
        self._known_from, self._answers.row_bytes = known_from, row_bytes

    def _answer(self, kind: str, slot: int, rows: int, first: int, *what: Any) -> Parcel:
        """Do a task, and return the answer to it. An unexpected error fails only the task's batch.

        kind   ``"rows"``, ``"samples"`` (make samples for a function of a batch) or ``"functions"`` (of a batch)
        slot   number of the slot
        rows   number of rows of the batch
        first  first row of the task
        what   the rows' records, and the batch's values outside the slot
        """
        if self._ended is not None:
            return parcel(([sendable(replace(self._ended, row=first))], {}, None, *self._met(), None))
        self._maker.laps.piece_begins()
        try:
            answer = self._made(kind, slot, rows, first, *what)
            faultpoint("worker.answer", what[0].indices[0])
        except Exception as error:
            return parcel(([sendable(unforeseen(first, error))], {}, None, *self._met(), None))
        rows = 0 if kind == "functions" else len(what[0].indices)
        met = *self._met(), self._maker.laps.took(rows)
        self._heartbeat[STEP] = ANSWERING
        try:
            return self._answers.parcel(answer, met, first, len(what[0].indices))
        except Exception as error:
            _, lists, made = answer
            objects = {name: [value] for name, value in made.objects.items()} if made is not None else {}
            return parcel(([unsendable(first, {**lists, **objects}, error)], {}, None, *met))

    def _met(self) -> tuple[Counts, tuple[str, ...]]:
        """Return the counters (of damaged files, say) and the notes of this worker since its last answer."""
        before, self._told = self._told, self._supplies.counters
        notes = tuple(self._notes)
        del self._notes[: len(notes)]
        return self._maker.new_counters() | counts_since(self._told, before), notes

    def _made(
        self, kind: str, slot: int, rows: int, first: int, part: PartOfRows, lists: dict[str, list[Any]]
    ) -> tuple[list[Failure], dict[str, list[Any]], BatchMade | None]:
        """Make rows of a slot from ``first`` on, or call the functions of the batch; see ``_answer``.

        Return the failures, the values of fields outside the slot, and the functions' result or None.
        """
        count = len(part.indices)
        every = self._views(slot, self._layouts[part.segment], rows, slice(first, first + count))
        content = BatchRows(
            part.epoch,
            part.segment,
            part.indices,
            part.positions,
            part.attempts,
            part.inputs,
            {name: every[name] for name in self._fields},
            lists or {name: [None] * count for name in self._listed},
            {name: every[name] for name in every if name not in self._fields},
            self._known_from,
        )
        match kind:
            case "rows":
                bad = self._maker.fill(content, 0, count)
                failures = [sendable(replace(failure, row=first + failure.row)) for failure in bad]
                return failures, dict(content.lists), None
            case "samples":
                made = make_sample_list(self._maker, content)
            case _:
                made = apply_batch_functions(self._maker, content)
        if isinstance(made, list):
            return [sendable(failure) for failure in made], {}, None
        return [], {}, made

    def _views(self, slot: int, layout: SlotLayout, rows: int, chosen: slice) -> dict[str, AnyArray]:
        begin = slot * self._stride
        every = layout.views(self._arena[begin : begin + layout.slot_bytes], rows)
        return {name: array[chosen] for name, array in every.items()}


def bootstrap(path: list[str], module: str) -> str:
    """Return a program for ``python -c`` that sets the trainer's ``sys.path`` and runs ``main()`` of a module."""
    return (
        f"import marshal, sys; sys.path[:] = marshal.loads({marshal.dumps(path)!r}); "
        f"from {module} import main; main()"
    )
