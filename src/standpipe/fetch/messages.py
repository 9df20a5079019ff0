"""Messages between a trainer and its fetch process, over an anonymous socket pair: a head of fixed size, and bytes."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

HEAD = struct.Struct("<c?xxIq")  # kind, first, bytes that follow, number
# A record to get: number of its object, offset and length there, its place in the ring, CRC-32C or -1.
ROW = struct.Struct("<5q")
FAILED_ROW = struct.Struct("<q")  # in front of the text of a failure

# To the process. The number is that of the object, or of the ticket.
SETTINGS, OBJECT, WANT, DROP = b"s", b"o", b"w", b"d"
# From the process. After DONE nothing is written to the places of a ticket, so they may be lent again.
DONE, FAILED, COUNTS = b"D", b"F", b"C"


class Message(NamedTuple):
    """A message.

    first   of WANT: True if it goes before those that were sent before
    number  of the object or the ticket
    data    what follows the head
    """

    kind: bytes
    first: bool
    number: int
    data: bytes


def packed(kind: bytes, number: int = 0, data: bytes = b"", *, first: bool = False) -> bytes:
    """Return a message as bytes."""
    return HEAD.pack(kind, first, len(data), number) + data


def next_message(channel: socket.socket) -> Message | None:
    """Wait for a message, and return it; None if the other side has ended."""
    head = _exactly(channel, HEAD.size)
    if head is None:
        return None
    kind, first, size, number = HEAD.unpack(head)
    data = _exactly(channel, size)
    return None if data is None else Message(kind, first, number, data)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    try:
        while len(data) < size:
            some = channel.recv(size - len(data))
            if not some:
                return None
            data += some
    except OSError:
        return None
    return bytes(data)
