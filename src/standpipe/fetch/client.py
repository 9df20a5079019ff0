"""The trainer's side of the fetch process: start it, ask it, and start it again when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from standpipe.errors import StandpipeError, WorkerDiedError
from standpipe.fetch.messages import (
    COUNTS,
    DONE,
    DROP,
    FAILED,
    FAILED_ROW,
    OBJECT,
    ROW,
    SETTINGS,
    WANT,
    Message,
    next_message,
    packed,
)

# Of processes that end without a finished ticket between: those that weren't killed, and seconds in which they end.
MOST_DEATHS, MOST_KILLED_S = 3, 60.0
END_S = 1.0  # that a process has to end after the hang-up

Start = Callable[[Sequence[int]], "subprocess.Popen[bytes]"]


@dataclass(slots=True, eq=False)
class Ticket:
    """Records that the process gets together.

    rows      of ``messages.ROW``, one record after another
    first     True if they go before what was asked for earlier
    failures  why a record can't be got, by its number in ``rows``
    done      True if nothing is written to their places any more
    on_done   called then, in another thread
    overdue   True if they took too long, and were dropped for it
    """

    number: int
    rows: bytes
    first: bool
    on_done: Callable[[], object]
    failures: dict[int, str] = field(default_factory=dict)
    done: bool = False
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class FetchCounts:
    """Counters of all fetch processes of a run.

    retries  tries that failed and were made again, by what went wrong
    latency  as in ``Latency.counts``: how long requests took
    deaths   processes that ended and were started again
    """

    requests: int = 0
    bytes: int = 0
    retries: Mapping[str, int] = field(default_factory=dict)
    latency: tuple[int, ...] = ()
    deaths: int = 0

    def __add__(self, other: FetchCounts) -> FetchCounts:
        names = {*self.retries, *other.retries}
        retries = {name: self.retries.get(name, 0) + other.retries.get(name, 0) for name in sorted(names)}
        longer, shorter = sorted((self.latency, other.latency), key=len, reverse=True)
        shorter = shorter or (0,) * len(longer)
        latency = tuple(a + b for a, b in zip(longer, shorter, strict=True))
        return FetchCounts(
            self.requests + other.requests,
            self.bytes + other.bytes,
            retries,
            latency,
            self.deaths + other.deaths,
        )


class FetchClient:
    """The fetch process of a run, from ``start`` to ``close``.

    start     starts the program with descriptors
    ring      descriptor of the memory for fetched bytes
    settings  the first message, as JSON and a pickle of the credentials
    ends      called with the error if processes end again and again
    """

    def __init__(
        self, start: Start, ring: int, settings: bytes, ends: Callable[[StandpipeError], object]
    ) -> None:
        self._begin, self._ring, self._settings, self._ends = start, ring, settings, ends
        self._lock = threading.Lock()  # guards what follows
        self._open: dict[int, Ticket] = {}
        self._objects: dict[bytes, int] = {}
        self._number = self._deaths = 0
        self._closed = False
        self._first_s = 0.0  # when the first of these processes ended; 0: none did
        self._before, self._now = FetchCounts(), FetchCounts()
        self._channel: socket.socket
        self._process: subprocess.Popen[bytes]
        self._pipe, self._trainer_end = os.pipe()
        try:
            self._start()
        except BaseException:
            self._close_pipe()
            raise

    @property
    def counts(self) -> FetchCounts:
        """The counters when the last ticket was done."""
        return self._before + self._now

    @property
    def process(self) -> int:
        """The number of the present process."""
        return self._process.pid

    def number_of(self, url: bytes, etag: bytes) -> int:
        """Return the number of an object, under which records of it are asked for."""
        with self._lock:
            known = etag + b"\0" + url
            if known not in self._objects:
                self._objects[known] = number = len(self._objects)
                self._send(packed(OBJECT, number, known))
            return self._objects[known]

    def ask(self, rows: bytes, on_done: Callable[[], object], *, first: bool = False) -> Ticket:
        """Ask for records, and return their ticket; ``on_done`` is called when all are in place or have failed."""
        with self._lock:
            self._number += 1
            ticket = Ticket(self._number, rows, first, on_done)
            self._open[ticket.number] = ticket
            self._send(packed(WANT, ticket.number, rows, first=first))
        return ticket

    def drop(self, ticket: Ticket, *, overdue: bool = False) -> None:
        """Stop getting records: those that aren't in place fail. The ticket is done a little later."""
        with self._lock:
            ticket.overdue |= overdue
            if not ticket.done:
                self._send(packed(DROP, ticket.number))

    def kill(self) -> None:
        """Kill a process that doesn't answer. Another one takes its place."""
        self._process.kill()

    def listen(self) -> None:
        """Receive answers, and start processes again that have ended, until ``close``. A thread of the run calls it."""
        while True:
            message = next_message(self._channel)
            if message is not None:
                self._take(message)
                continue
            self._process.wait()  # so that nothing is on its way to a place
            with self._lock:
                if self._closed:
                    return
            if self._process.returncode != -signal.SIGKILL:
                self._deaths += 1
            self._first_s = self._first_s or time.monotonic()
            if self._deaths > MOST_DEATHS or time.monotonic() > self._first_s + MOST_KILLED_S:
                self._ends(WorkerDiedError(self._end_text()))
                return
            self._restart()

    def close(self) -> None:
        """End the process, and wait for that."""
        if not self._lock.acquire(timeout=END_S):  # it is held while a process that hangs is sent something
            self._process.kill()
            self._lock.acquire()
        self._closed = True
        self._lock.release()
        with contextlib.suppress(OSError):  # it has ended
            self._channel.shutdown(socket.SHUT_RDWR)  # a forked child may also hold our end
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close_files(self) -> None:
        """Close the descriptors, once ``listen`` has returned."""
        self._channel.close()
        self._close_pipe()

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair()
        try:
            self._process = self._begin((theirs.fileno(), self._ring, self._pipe))
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._send(packed(SETTINGS, 0, self._settings))

    def _restart(self) -> None:
        """Start another process, and ask it for what has no answer."""
        over: list[Ticket] = []
        with self._lock:
            if self._closed:
                return
            self._before += FetchCounts(deaths=1) + self._now
            self._now = FetchCounts()
            for ticket in [each for each in self._open.values() if each.overdue]:
                for row in range(len(ticket.rows) // ROW.size):
                    ticket.failures.setdefault(row, "the fetch process took too long, and was killed")
                over.append(ticket)
                self._end(ticket)
            self._channel.close()
            self._start()
            for known, number in self._objects.items():
                self._send(packed(OBJECT, number, known))
            for ticket in self._open.values():
                self._send(packed(WANT, ticket.number, ticket.rows, first=ticket.first))
        for ticket in over:
            ticket.on_done()

    def _take(self, message: Message) -> None:
        with self._lock:
            ticket = self._open.get(message.number)
            if message.kind == COUNTS:
                requests, size, retries, latency = json.loads(message.data)
                self._now = FetchCounts(requests, size, retries, tuple(latency))
            elif message.kind == FAILED and ticket is not None:
                (row,) = FAILED_ROW.unpack_from(message.data)
                ticket.failures[row] = message.data[FAILED_ROW.size :].decode()
            elif message.kind == DONE and ticket is not None:
                self._deaths, self._first_s = 0, 0.0
                self._end(ticket)
        if message.kind == DONE and ticket is not None:
            ticket.on_done()

    def _end(self, ticket: Ticket) -> None:
        del self._open[ticket.number]
        ticket.done = True

    def _send(self, data: bytes) -> None:
        """Send a message. If the process has ended, ``listen`` sends it to the next one."""
        with contextlib.suppress(OSError):
            self._channel.sendall(data)

    def _end_text(self) -> str:
        code = self._process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return (
            f"the fetch process has ended again and again without getting anything, last {how}. Its messages "
            "are in this program's standard error"
        )

    def _close_pipe(self) -> None:
        os.close(self._pipe)
        os.close(self._trainer_end)
