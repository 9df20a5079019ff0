"""Small photos on disk, and a source that tests can watch, for tests of the running loader."""

from __future__ import annotations

import io
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import standpipe as sp
from standpipe.contracts import OpenSource, Records, Source
from standpipe.spec import Int64Array, UInt8Array

WAIT_S = 20  # how long a test waits for what takes milliseconds
LONG_AGO_NS = 1_000_000_000 * 10**9  # a file that was just written may change again and bear the same times
FILES_CLOCK = 5  # CLOCK_REALTIME_COARSE, from which the system has the times of files


def picture(seed: int, height_px: int = 40, width_px: int = 56) -> UInt8Array:
    """A picture of its own for each seed, smooth with some grain, (height_px, width_px, 3)."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (4, 5, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width_px, height_px), Image.Resampling.BICUBIC))
    return np.clip(smooth.astype(int) + random.integers(-6, 7, smooth.shape), 0, 255).astype(np.uint8)


def encoded(image: UInt8Array, kind: str = "JPEG", **options: object) -> bytes:
    """The image as a file's bytes."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, kind, **options)
    return out.getvalue()


def deep_png(values: NDArray[np.uint16]) -> bytes:
    """A PNG of 16 bits per value, (H, W, 1 to 4 channels); of these Pillow writes grey ones only."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def foreign_kinds(image: UInt8Array) -> list[bytes]:
    """The image in every format beside JPEG that is read."""
    kinds: tuple[tuple[str, dict[str, object]], ...] = (
        ("PNG", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", {"compression": "jpeg"}),
        ("PPM", {}),
    )
    return [encoded(image, kind, **options) for kind, options in kinds]


def write_list(folder: Path, files: Mapping[str, bytes | None] | Iterable[bytes]) -> sp.FileList:
    """Write files and a list of them, labelled 0, 1, … in this order. None: list it and don't write it."""
    if not isinstance(files, Mapping):
        files = {f"{number:03d}.jpg": content for number, content in enumerate(files)}
    for name, content in files.items():
        if content is not None:
            (folder / name).write_bytes(content)
    listed = "".join(f"{name}\t{number}\n" for number, name in enumerate(files))
    (folder / "list.txt").write_text(listed)
    return sp.FileList(folder / "list.txt")


def write_photos(folder: Path, count: int) -> sp.FileList:
    """``count`` small JPEGs, and the list of them."""
    return write_list(folder, [encoded(picture(seed), quality=90) for seed in range(count)])


def age(*paths: Path, at_ns: int = LONG_AGO_NS) -> None:
    """Modify files long ago, and let their clock tick: what is changed from now on bears another time."""
    for path in paths:
        os.utime(path, ns=(at_ns, at_ns))
    while time.clock_gettime_ns(FILES_CLOCK) <= max(path.stat().st_ctime_ns for path in paths):
        pass


def numbers(rows: int) -> sp.Arrays:
    """A source whose field ``x`` (1,) int64 is three times the record's number."""
    return sp.Arrays(x=3 * np.arange(rows).reshape(rows, 1))


@dataclass(frozen=True)
class Watched:
    """``source``, which calls ``before`` with the records' numbers before it locates them."""

    source: Source
    before: Callable[[Int64Array], None]

    def open(self) -> OpenSource:
        return _OpenWatched(self.source.open(), self.before)  # type: ignore[return-value]

    def describe(self) -> str:
        return self.source.describe()


class _OpenWatched:
    def __init__(self, source: OpenSource, before: Callable[[Int64Array], None]) -> None:
        self._source, self._before = source, before

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def locate(self, indices: Int64Array) -> Records:
        self._before(indices)
        return self._source.locate(indices)
