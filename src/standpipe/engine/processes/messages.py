"""Messages between a trainer and its workers, over an anonymous socket pair that no other process can reach."""

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
from standpipe.batch.layout import ALIGNMENT
from standpipe.spec import AnyArray

# A header: number of bytes that follow; number of arrays in a file, whose descriptor comes with the header.
_HEADER = struct.Struct("<QI")
_FILE = struct.Struct("i")  # a descriptor
_PLACE = struct.Struct("<QQ")  # an array in the file: its first byte, and its length
CHUNK_BYTES = 1 << 20  # most bytes that one call receives
LARGE_BYTES = 64 << 10  # from this total size on, the arrays of a message are sent in a file
# As plain integers: an operation on flags of ``socket`` takes 2 µs.
_CLOEXEC, _DONTWAIT = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_DONTWAIT)
MOST_FILES = 253  # descriptors in one message, the system's limit
MOST_AT_ONCE = 512  # buffers that one call writes; the system's limit is 1,024

Received = TypeVar("Received")


class Ended(Exception):
    """Raised if the process at the other side of a channel has ended, or has closed the channel."""


class UnpicklableMessage(Exception):
    """Raised for a complete message that can't be unpickled in this process."""


def send(channel: socket.socket, message: Any) -> None:
    """Send a message. Raises ``Ended`` if the other side has ended."""
    send_encoded(channel, encoded(message))


def encoded(message: Any) -> bytes:
    """Return a message as bytes, with its header."""
    data = _pickled(message, None)
    return _HEADER.pack(len(data), 0) + data


def _pickled(message: Any, apart: list[pickle.PickleBuffer] | None) -> bytes:
    """Pickle a message. Append the memory of arrays to ``apart``; None: the arrays are part of the pickle."""
    try:
        return pickle.dumps(message, protocol=5, buffer_callback=None if apart is None else apart.append)
    except Exception:  # classes of the main module and functions must be pickled by value
        if apart is None:
            return bytes(cloudpickle.dumps(message, protocol=5))
        apart.clear()
        return bytes(cloudpickle.dumps(message, protocol=5, buffer_callback=apart.append))


@dataclass(slots=True)
class Parcel:
    """A packed message, with its large arrays in an anonymous file.

    data  the message as bytes, with its header
    file  descriptor of the file, which is sent with the message; None without large arrays
    """

    data: bytes
    file: int | None = None


def parcel(message: Any, admit: Callable[[int], None] = lambda size: None) -> Parcel:
    """Pack a message. Large arrays are written to an anonymous file, which the receiver maps.

    If the system has no descriptor or memory for the file, the arrays are part of the message.

    admit  called with the message's size in bytes before arrays are written; it may wait for memory, or raise
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
    """Write views to a file, one after another, aligned to 64 bytes; return the first byte and length of each.

    file  descriptor of the file
    """
    pieces: deque[memoryview] = deque()
    places: list[tuple[int, int]] = []
    end = 0
    for view in views:
        begin = -(-end // ALIGNMENT) * ALIGNMENT
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
    """Send a parcel, and close its file. Raises ``Ended`` if the other side has ended."""
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


def channel_of(descriptor: int) -> socket.socket:
    """Return the socket of a descriptor. It waits as long as it takes, whatever ``socket.setdefaulttimeout`` says."""
    channel = socket.socket(fileno=descriptor)
    channel.settimeout(None)
    return channel


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, which wait as ``channel_of`` says."""
    ours, theirs = socket.socketpair()
    ours.settimeout(None)
    theirs.settimeout(None)
    return ours, theirs


def send_files(channel: socket.socket, files: Sequence[int]) -> None:
    """Send any number of descriptors, which stay open here. Raises ``Ended`` if the other side has ended."""
    send(channel, len(files))
    try:
        for begin in range(0, len(files), MOST_FILES):
            socket.send_fds(channel, [b"f"], files[begin : begin + MOST_FILES])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Ended(str(error)) from error


def receive_files(channel: socket.socket) -> list[int]:
    """Return the descriptors that ``send_files`` sent. Raises ``OSError`` if not as many are free in this process."""
    count = receive(channel)
    files: list[int] = []
    while len(files) < count:
        expected = min(MOST_FILES, count - len(files))
        _, some, _, _ = socket.recv_fds(channel, 1, expected)
        if len(some) < expected:
            raise OSError(
                f"no file descriptors were free for {count} tensors in shared memory: raise ulimit -n"
            )
        files += some
    return files


def send_encoded(channel: socket.socket, data: bytes, process: int | None = None) -> None:
    """Send ``data``, a message that ``encoded`` returned.

    process  pidfd of the other side, to stop waiting if that process ends; None: wait for the channel alone

    Raises ``Ended`` if the other side has ended.
    """
    try:
        if process is None:
            channel.sendall(data)
            return
        view = memoryview(data)
        while view:
            with contextlib.suppress(BlockingIOError):
                view = view[channel.send(view, _DONTWAIT) :]
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
    """Return a context for a question and its answer, which closes the channel if an exception interrupts them.

    Otherwise the next question would get the answer to this one.
    """
    try:
        yield
    except BaseException:
        hang_up(channel)
        raise


def has_come(channel: socket.socket) -> bool:
    """Return True if a message can be received, or the other side has ended; don't wait."""
    waiting = select.poll()
    try:
        waiting.register(channel, select.POLLIN)
    except ValueError:  # it is closed
        return False
    return bool(waiting.poll(0))


def receive(channel: socket.socket, process: int | None = None, patience_s: float | None = None) -> Any:
    """Wait for a message, and return it.

    process     pidfd of the other side, to stop waiting if that process ends; None: wait for the channel alone
    patience_s  longest time without any byte, in seconds; None: no limit

    Raises ``Ended`` if the other side has ended or the time is over, and ``UnpicklableMessage`` for a message that
    can't be unpickled here.
    """
    return receive_parcel(channel, process, patience_s)[0]


def receive_parcel(
    channel: socket.socket,
    process: int | None = None,
    patience_s: float | None = None,
    mapped: _native.ByteCount | None = None,
) -> tuple[Any, int]:
    """Wait for a message. Return the message, and its size in bytes without large arrays.

    mapped  counter for the bytes of large arrays while they are mapped; None: not counted

    The other arguments and the errors are those of ``receive``.
    """
    header, file = _begin(channel, process, patience_s)
    try:
        length, count = _HEADER.unpack(header)
        data = memoryview(_exactly(channel, length, process, patience_s))
        try:
            if count == 0:
                return pickle.loads(data), length
            table = count * _PLACE.size
            return pickle.loads(data[table:], buffers=_arrays(file, data[:table], mapped)), length
        except Exception as error:
            raise UnpicklableMessage(
                f"the answer of a worker process can't be rebuilt here: {type(error).__name__}: {error}"
            ) from error
    finally:
        if file is not None:
            os.close(file)


def _begin(channel: socket.socket, process: int | None, patience_s: float | None) -> tuple[bytes, int | None]:
    """Return a message's header, and the descriptor that came with it, if there is one."""
    header, file = b"", None
    flags = _CLOEXEC | _flags(process, patience_s)
    while len(header) < _HEADER.size:
        left, room = _HEADER.size - len(header), socket.CMSG_LEN(_FILE.size)
        # Not socket.recv_fds, which ignores its flags.
        received = _if_there(partial(channel.recvmsg, left, room, flags))
        if received is None:
            _wait(channel, select.POLLIN, process, patience_s)
            continue
        some, files, _, _ = received
        for _, _, number in files:
            if len(number) == _FILE.size:  # otherwise this process had no free descriptor for the file
                (file,) = _FILE.unpack(number)
        if not some:
            raise Ended("the other side closed the channel")
        header += some
    return header, file


def _if_there(receive: Callable[[], Received]) -> Received | None:
    """Call ``receive``, and return its result; None if no data has arrived yet. Raises ``Ended`` for other errors.

    It is a function so that an interrupt of a later wait isn't shown as raised during ``BlockingIOError``.
    """
    try:
        return receive()
    except BlockingIOError:
        return None
    except OSError as error:
        raise Ended(str(error)) from error


def _arrays(file: int | None, table: memoryview, count: _native.ByteCount | None) -> list[AnyArray]:
    """Map the file of a message, and return its arrays as bytes. The mapping lasts until the last array is gone.

    file   descriptor of the file; None if this process had no free descriptor for it
    table  first byte and length of each array in the file
    count  counter for the mapped bytes; None: not counted
    """
    places = list(_PLACE.iter_unpack(table))
    if file is None:
        raise OSError("no file descriptor was free for its arrays: raise the limit, ulimit -n")
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
    """Return the flags for ``recv``: non-blocking if a process's end or a time limit can also stop the wait."""
    return 0 if process is None and patience_s is None else _DONTWAIT


def _wait(channel: socket.socket, event: int, process: int | None, patience_s: float | None) -> None:
    """Wait until ``event`` occurs on a channel: ``POLLIN``, data to receive, or ``POLLOUT``, room to send.

    process     pidfd of the other side, whose children may keep the channel open after its end; None: not watched
    patience_s  seconds to wait; None: no limit

    Raises ``Ended`` if the process has ended or the time is over.
    """
    waiting = select.poll()
    waiting.register(channel, event)
    if process is not None:
        waiting.register(process, select.POLLIN)
    ready = dict(waiting.poll(None if patience_s is None else patience_s * 1000))
    if not ready:
        raise Ended(f"no message for {patience_s:g} s")
    if channel.fileno() not in ready:
        raise Ended("the process has ended")
