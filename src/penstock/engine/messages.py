"""Messages between a trainer and its workers, over an anonymous socket pair that nobody else can reach."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from typing import Any

import cloudpickle

_LENGTH = struct.Struct("<Q")
CHUNK_BYTES = 1 << 20


class Ended(Exception):
    """The other side is gone."""


class Unreadable(Exception):
    """A message came whole, and can't be rebuilt here."""


def send(channel: socket.socket, message: Any) -> None:
    """Send a message. Raises ``Ended``."""
    send_encoded(channel, encoded(message))


def encoded(message: Any) -> bytes:
    """A message as bytes."""
    try:
        data = pickle.dumps(message, protocol=5)
    except Exception:  # classes of the main module, functions: by value
        data = cloudpickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(data)) + data


def send_encoded(channel: socket.socket, data: bytes) -> None:
    """Send what ``encoded`` gave. Raises ``Ended``."""
    try:
        channel.sendall(data)
    except OSError as error:
        raise Ended(str(error)) from error


def receive(channel: socket.socket, process: int | None = None) -> Any:
    """Wait for a message. ``process``: a pidfd; when that process ends the other side is gone too.

    Raises ``Ended``, and ``Unreadable`` for a message whose objects can't be made again.
    """
    data = _exactly(channel, _LENGTH.unpack(_exactly(channel, _LENGTH.size, process))[0], process)
    try:
        return pickle.loads(data)
    except Exception as error:
        raise Unreadable(
            f"what a worker process sent can't be rebuilt here: {type(error).__name__}: {error}"
        ) from error


def _exactly(channel: socket.socket, size: int, process: int | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        _wait(channel, process)
        try:
            received = channel.recv_into(view[:CHUNK_BYTES])
        except OSError as error:
            raise Ended(str(error)) from error
        if received == 0:
            raise Ended("the other side closed the channel")
        view = view[received:]
    return data


def _wait(channel: socket.socket, process: int | None) -> None:
    """Until there is something to receive. A process's own children may hold its end open after it has ended."""
    if process is None:
        return
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    waiting.register(process, select.POLLIN)
    ready = dict(waiting.poll())
    if channel.fileno() not in ready:
        raise Ended("the process has ended")
