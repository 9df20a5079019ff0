"""The program of the fetch process: threads get ranges of objects, and write them to memory of the trainer.

It knows no order and no index. The trainer says which bytes go where, and only the trainer lends places. So a process
that ends loses nothing: the next one is asked for what has no answer.
"""

from __future__ import annotations

import heapq
import json
import mmap
import os
import pickle
import socket
import sys
import threading
import time
from dataclasses import dataclass, field

from standpipe import _native
from standpipe.fetch.get import Connection
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
from standpipe.fetch.stores import Addresses
from standpipe.fetch.tries import RENEWS, FetchFault
from standpipe.system.threads import ignore_interrupts

STACK_BYTES = 256 << 10
BUCKETS = _native.latency_bucket(1 << 60) + 1


@dataclass(slots=True)
class ByteRange:
    """Records that are read by one request: they follow one another in their object, and in the ring.

    rows  number, place and length of each, and CRC-32C or -1
    """

    ticket: int
    number: int
    offset: int
    place: int
    length: int
    rows: list[tuple[int, int, int, int]]


def pieces_of(ticket: int, data: bytes) -> list[ByteRange]:
    """Return the requests for the records of a WANT, which are sorted by object and offset.

    Records are read together if they are as far apart in the ring as in their object.
    """
    pieces: list[ByteRange] = []
    for row, (number, offset, length, place, crc) in enumerate(ROW.iter_unpack(data)):
        last = pieces[-1] if pieces else None
        if last is None or (last.number, last.place - last.offset) != (number, place - offset):
            last = ByteRange(ticket, number, offset, place, 0, [])
            pieces.append(last)
        last.length = offset + length - last.offset
        last.rows.append((row, place, length, crc))
    return pieces


@dataclass(slots=True)
class Counted:
    """Counters since the process started."""

    requests: int = 0
    bytes: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)


class Fetcher:
    """Reads messages of the trainer in its own thread, and gets ranges in others, which it starts when needed."""

    def __init__(self, channel: socket.socket, ring: int) -> None:
        self._channel = channel
        self._ring = memoryview(mmap.mmap(ring, os.fstat(ring).st_size))
        self._lock = threading.Condition()
        self._heap: list[tuple[bool, int, int, ByteRange]] = []  # what isn't begun, the most urgent first
        self._left: dict[int, int] = {}  # pieces of each ticket that aren't finished
        self._dropped: set[int] = set()
        self._objects: dict[int, tuple[str, str]] = {}
        self._idle = self._threads = self._most = 0
        self._counted = Counted()

    def run(self) -> None:
        """Obey the trainer until it hangs up."""
        threading.stack_size(STACK_BYTES)
        while (message := next_message(self._channel)) is not None:
            if message.kind == SETTINGS:
                self._set(message.data)
            elif message.kind == OBJECT:
                etag, _, url = message.data.decode("utf-8", "surrogateescape").partition("\0")
                self._objects[message.number] = etag, url
            elif message.kind == DROP:
                with self._lock:
                    self._dropped |= {message.number} & self._left.keys()
                    self._lock.notify_all()  # ends pauses
            elif message.kind == WANT:
                self._add(message)

    def _set(self, data: bytes) -> None:
        text, _, pickled = data.partition(b"\0")
        known = json.loads(text)
        given = pickle.loads(pickled) if pickled else None  # made by the trainer
        self._most, self._retries, self._backoff_s = known["requests"], known["retries"], known["backoff_s"]
        self._addresses = Addresses({**known["store"], "credentials": given})

    def _add(self, message: Message) -> None:
        pieces = pieces_of(message.number, message.data)
        with self._lock:
            self._left[message.number] = len(pieces)
            for each in pieces:
                heapq.heappush(self._heap, (not message.first, message.number, each.rows[0][0], each))
            self._lock.notify(len(pieces))
            for _ in range(min(len(self._heap) - self._idle, self._most - self._threads)):
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        connection = Connection(lambda: self._addresses.tls())
        while True:
            with self._lock:
                self._idle += 1
                while not self._heap:
                    self._lock.wait()
                self._idle -= 1
                piece = heapq.heappop(self._heap)[-1]
            self._finish(piece, self._failure(connection, piece))

    def _failure(self, connection: Connection, piece: ByteRange) -> str | None:
        """Get a piece, by several tries if needed; return why it can't be got, or None."""
        tries, renewed, last = 0, False, None
        while True:
            begin_ns = time.monotonic_ns()
            try:
                self._get(connection, piece)
                self._count(piece, time.monotonic_ns() - begin_ns)
            except FetchFault as fault:
                if fault.kind == "dropped":
                    return (last or fault).text(tries)
                last, tries = fault, tries + 1
                if renews := fault.kind in RENEWS and not renewed:
                    renewed = True
                    self._addresses.renew()
                if not renews and not fault.passes(tries, self._retries):
                    return fault.text(tries)
                with self._lock:
                    retries = self._counted.retries
                    retries[fault.kind] = retries.get(fault.kind, 0) + 1
                    ends_s = time.monotonic() + (0 if renews else fault.pause_s(tries, self._backoff_s))
                    while (left := ends_s - time.monotonic()) > 0 and piece.ticket not in self._dropped:
                        self._lock.wait(left)
            except Exception as error:  # such as that of a library for credentials: its text may have them
                return f"the fetch process met an error of {type(error).__module__}: {type(error).__name__}"
            else:
                return None

    def _get(self, connection: Connection, piece: ByteRange) -> None:
        """Try once to get a piece. Raises ``FetchFault``."""
        etag, url = self._objects[piece.number]
        out = self._ring[piece.place : piece.place + piece.length]
        if piece.ticket in self._dropped:
            raise FetchFault("dropped")
        connection.read(
            self._addresses.of(url), etag, piece.offset, out, lambda: piece.ticket in self._dropped
        )
        for _, place, length, crc in piece.rows:
            if crc >= 0 and _native.crc32c(self._ring[place : place + length]) != crc:  # type: ignore[arg-type]
                raise FetchFault("checksum")

    def _count(self, piece: ByteRange, took_ns: int) -> None:
        with self._lock:
            self._counted.requests += 1
            self._counted.bytes += piece.length
            self._counted.latency[_native.latency_bucket(took_ns)] += 1

    def _finish(self, piece: ByteRange, failure: str | None) -> None:
        """Report a finished piece."""
        answers = b""
        if failure is not None:
            text = failure.encode()
            answers = b"".join(
                packed(FAILED, piece.ticket, FAILED_ROW.pack(row) + text) for row, *_ in piece.rows
            )
        with self._lock:
            self._left[piece.ticket] -= 1
            is_last = not self._left[piece.ticket]
            if is_last:
                del self._left[piece.ticket]
                self._dropped.discard(piece.ticket)
                counted = self._counted
                numbers = counted.requests, counted.bytes, counted.retries, counted.latency
                answers += packed(COUNTS, 0, json.dumps(numbers).encode()) + packed(DONE, piece.ticket)
            if answers:  # in the lock: failures come before their ticket's end
                try:
                    self._channel.sendall(answers)
                except OSError:  # the trainer has hung up
                    os._exit(0)


def main() -> None:
    """Run the fetch process until the trainer ends or hangs up.

    The program's arguments are descriptors: of the channel, of the ring, of the pipe that ends with the trainer; and
    the trainer's process number.
    """
    channel, ring, pipe, trainer = map(int, sys.argv[1:5])
    ignore_interrupts()
    _native.end_with(pipe, trainer)
    try:
        Fetcher(socket.socket(fileno=channel), ring).run()
    finally:
        os._exit(0)
