"""Messages between a trainer and its workers, over an anonymous socket pair that nobody else can reach."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import cloudpickle

from standpipe import _native
from standpipe.spec import AnyArray

# Bytes that follow; arrays that lie in a file, whose descriptor came with this.
_HEADER = struct.Struct("<QI")
_FILE = struct.Struct("i")  # a descriptor that came with them
_PLACE = struct.Struct("<QQ")  # of such an array: its first byte, and its length
CHUNK_BYTES = 1 << 20
LARGE_BYTES = 64 << 10  # of arrays in a message, that are worth a file of their own
ALIGNED_BYTES = 64  # as slots are, for whoever computes with arrays
MOST_AT_ONCE = 512  # pieces that one call writes; the system takes 1,024

Received = TypeVar("Received")


class Ended(Exception):
    """The other side is gone."""


class Unreadable(Exception):
    """A message came whole, and can't be rebuilt here."""


def send(channel: socket.socket, message: Any) -> None:
    """Send a message. Raises ``Ended``."""
    send_encoded(channel, encoded(message))


def encoded(message: Any) -> bytes:
    """A message as bytes."""
    data = _pickled(message, None)
    return _HEADER.pack(len(data), 0) + data


def _pickled(message: Any, apart: list[pickle.PickleBuffer] | None) -> bytes:
    """A message's objects; the memory of its arrays is put into ``apart``, or is part of the bytes without."""
    try:
        return pickle.dumps(message, protocol=5, buffer_callback=None if apart is None else apart.append)
    except Exception:  # classes of the main module, functions: by value
        if apart is None:
            return bytes(cloudpickle.dumps(message, protocol=5))
        apart.clear()
        return bytes(cloudpickle.dumps(message, protocol=5, buffer_callback=apart.append))


@dataclass(slots=True)
class Parcel:
    """A message whose large arrays are in a file.

    file  descriptor of that file, sent with the message; None without large arrays
    """

    data: bytes
    file: int | None = None


def parcel(message: Any, admit: Callable[[int], None] = lambda size: None) -> Parcel:
    """A message that may hold large arrays: these are written to memory that is handed over, not sent.

    Where the system has no descriptor or memory for that, everything is sent. ``admit`` is called with the
    number of bytes before they are written; it may wait, or raise.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = _pickled(message, buffers)
    try:
        views = [buffer.raw() for buffer in buffers]
        size = sum(view.nbytes for view in views)
    except BufferError:  # memory with gaps
        return Parcel(encoded(message))
    admit(size + len(data))
    if not buffers:
        return Parcel(_HEADER.pack(len(data), 0) + data)
    if size < LARGE_BYTES:
        return Parcel(encoded(message))
    try:
        file = os.memfd_create("standpipe-answer", os.MFD_CLOEXEC)
    except OSError:  # no descriptor
        return Parcel(encoded(message))
    try:
        places = _written(file, views)
    except OSError:
        os.close(file)
        return Parcel(encoded(message))
    table = b"".join(_PLACE.pack(*place) for place in places)
    return Parcel(_HEADER.pack(len(table) + len(data), len(places)) + table + data, file)


def _written(file: int, views: Sequence[memoryview]) -> list[tuple[int, int]]:
    """Write the views one after another; where each lies."""
    pieces: deque[memoryview] = deque()
    places: list[tuple[int, int]] = []
    end = 0
    for view in views:
        begin = -(-end // ALIGNED_BYTES) * ALIGNED_BYTES
        pieces += (memoryview(bytes(begin - end)), view)
        end = begin + view.nbytes
        places.append((begin, view.nbytes))
    while pieces:
        done = os.writev(file, list(islice(pieces, MOST_AT_ONCE)))
        while pieces and done >= pieces[0].nbytes:
            done -= pieces.popleft().nbytes
        if done:
            pieces[0] = pieces[0][done:]
    return places


def send_parcel(channel: socket.socket, sent: Parcel) -> None:
    """Send what ``parcel`` gave, which ends with it. Raises ``Ended``."""
    if sent.file is None:
        send_encoded(channel, sent.data)
        return
    try:
        done = socket.send_fds(channel, [sent.data], [sent.file])
    except OSError as error:
        raise Ended(str(error)) from error
    finally:
        os.close(sent.file)
    send_encoded(channel, sent.data[done:])


def send_encoded(channel: socket.socket, data: bytes, process: int | None = None) -> None:
    """Send what ``encoded`` gave. ``process``: a pidfd; when that process ends the other side is gone too.

    Raises ``Ended``.
    """
    try:
        if process is None:
            channel.sendall(data)
            return
        view = memoryview(data)
        while view:
            with contextlib.suppress(BlockingIOError):
                view = view[channel.send(view, socket.MSG_DONTWAIT) :]
                continue
            _wait(channel, select.POLLOUT, process, None)
    except OSError as error:
        raise Ended(str(error)) from error


def hang_up(channel: socket.socket) -> None:
    """Close the connection for both sides; the other side notices at once."""
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def talk(channel: socket.socket) -> Iterator[None]:
    """A question and its answer. One that breaks off is the last: else the next question would get its answer."""
    try:
        yield
    except BaseException:
        hang_up(channel)
        raise


def has_come(channel: socket.socket) -> bool:
    """True if a message can be received, or the other side is gone."""
    waiting = select.poll()
    try:
        waiting.register(channel, select.POLLIN)
    except ValueError:  # it is closed
        return False
    return bool(waiting.poll(0))


def receive(channel: socket.socket, process: int | None = None, patience_s: float | None = None) -> Any:
    """Wait for a message.

    process     a pidfd; when that process ends the other side is gone too
    patience_s  longer without a word, and it counts as gone

    Raises ``Ended``, and ``Unreadable`` for a message whose objects can't be made again.
    """
    return receive_parcel(channel, process, patience_s)[0]


def receive_parcel(
    channel: socket.socket,
    process: int | None = None,
    patience_s: float | None = None,
    mapped: _native.ByteCount | None = None,
) -> tuple[Any, int]:
    """Receive a message. Return it and its bytes without large arrays, which ``mapped`` counts."""
    header, file = _begin(channel, process, patience_s)
    try:
        length, count = _HEADER.unpack(header)
        data = memoryview(_exactly(channel, length, process, patience_s))
        try:
            table = count * _PLACE.size
            return pickle.loads(data[table:], buffers=_arrays(file, data[:table], mapped)), length
        except Exception as error:
            raise Unreadable(
                f"what a worker process sent can't be rebuilt here: {type(error).__name__}: {error}"
            ) from error
    finally:
        if file is not None:
            os.close(file)


def _begin(channel: socket.socket, process: int | None, patience_s: float | None) -> tuple[bytes, int | None]:
    """A message's header, and the descriptor that came with it."""
    header, file = b"", None
    flags = socket.MSG_CMSG_CLOEXEC | _flags(process, patience_s)
    while len(header) < _HEADER.size:
        left, room = _HEADER.size - len(header), socket.CMSG_LEN(_FILE.size)
        # socket.recv_fds forgets its flags.
        received = _if_there(partial(channel.recvmsg, left, room, flags))
        if received is None:
            _wait(channel, select.POLLIN, process, patience_s)
            continue
        some, files, _, _ = received
        for _, _, number in files:
            if len(number) == _FILE.size:  # else no descriptor was free for it
                (file,) = _FILE.unpack(number)
        if not some:
            raise Ended("the other side closed the channel")
        header += some
    return header, file


def _if_there(receive: Callable[[], Received]) -> Received | None:
    """Return what is received, or None if nothing has come. An interrupt during a later wait has no context
    then.
    """
    try:
        return receive()
    except BlockingIOError:
        return None
    except OSError as error:
        raise Ended(str(error)) from error


def _arrays(file: int | None, table: memoryview, count: _native.ByteCount | None) -> list[AnyArray]:
    """Arrays of bytes over the memory that was handed over: it stays until the last of them ends."""
    places = list(_PLACE.iter_unpack(table))
    if not places:
        return []
    if file is None:
        raise OSError("no file descriptor was free for its arrays; raise the limit, ulimit -n")
    memory = _native.mapped(file, max(begin + length for begin, length in places), count)
    return [memory[begin : begin + length] for begin, length in places]


def _exactly(channel: socket.socket, size: int, process: int | None, patience_s: float | None) -> bytearray:
    try:
        data = bytearray(size)
    except (MemoryError, OverflowError) as error:
        raise Ended(f"no memory for a message of {size:,} bytes") from error
    view, flags = memoryview(data), _flags(process, patience_s)
    while view:
        received = _if_there(partial(channel.recv_into, view[:CHUNK_BYTES], 0, flags))
        if received is None:
            _wait(channel, select.POLLIN, process, patience_s)
            continue
        if received == 0:
            raise Ended("the other side closed the channel")
        view = view[received:]
    return data


def _flags(process: int | None, patience_s: float | None) -> int:
    """Return the flags of ``recv``: non-blocking where something other than the channel may end the wait."""
    return 0 if process is None and patience_s is None else socket.MSG_DONTWAIT


def _wait(channel: socket.socket, event: int, process: int | None, patience_s: float | None) -> None:
    """Until there is something to receive, or room to send. A process's own children may hold its end open after it
    has ended.
    """
    waiting = select.poll()
    waiting.register(channel, event)
    if process is not None:
        waiting.register(process, select.POLLIN)
    ready = dict(waiting.poll(None if patience_s is None else patience_s * 1000))
    if not ready:
        raise Ended(f"no word for {patience_s:g} s")
    if channel.fileno() not in ready:
        raise Ended("the process has ended")
