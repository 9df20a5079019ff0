"""Tar shards for tests."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from photos import age

BLOCK = 512
END = bytes(2 * BLOCK)


def shard(path: Path, members: Iterable[tuple[str | bytes, bytes]], kind: int = tarfile.USTAR_FORMAT) -> Path:
    """Pack members into a shard that looks as if written long ago."""
    with tarfile.open(path, "w", format=kind, encoding="utf-8", errors="surrogateescape") as tar:
        for name, data in members:
            text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
            about = tarfile.TarInfo(text)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    age(path)
    return path


def raw(path: Path, content: bytes) -> Path:
    """Write a shard's bytes as they are."""
    path.write_bytes(content)
    age(path)
    return path


def header(
    name: bytes, size: bytes | int, kind: bytes = b"0", magic: bytes = b"", prefix: bytes = b""
) -> bytes:
    """A member's header; ``size``: a number, or the field's 12 bytes."""
    field = b"%011o\0" % size if isinstance(size, int) else size
    head = bytearray(BLOCK)
    head[:100] = name.ljust(100, b"\0")
    head[100:124] = b"0000644\0" + b"0000000\0" * 2
    head[124:136] = field
    head[136:148] = b"%011o\0" % 0
    head[156:157] = kind
    head[257 : 257 + len(magic)] = magic
    head[345 : 345 + len(prefix)] = prefix
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def pax(**records: str | bytes) -> bytes:
    """The text of a pax header."""
    lines = b""
    for key, value in records.items():
        text = (
            key.replace("__", ".").encode() + b"=" + (value if isinstance(value, bytes) else value.encode())
        )
        length = len(text) + 3
        while len(b"%d " % length) + len(text) + 1 != length:
            length += 1
        lines += b"%d %s\n" % (length, text)
    return lines
