"""Whole frames: what images take at once that can't be decoded row by row, as far as a plan can know it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from standpipe.contracts import Encoded, Files, OpenSource
from standpipe.errors import StandpipeError
from standpipe.formats import FORMATS
from standpipe.spec import Decoding
from standpipe.transform.foreign import Undecodable, decode_foreign

LOOKED_AT = 16  # samples, evenly over the source
HEADER_BYTES = 64 << 10  # of each, in which its size is said
WHOLE = frozenset(suffix for each in FORMATS if each.name != "JPEG" for suffix in each.suffixes)


class WholeFrame(NamedTuple):
    """A sample that needs a whole frame at once, in bytes.

    decoded  what decoding takes, with its file
    file     that file, which may be there a second time, as it was read
    """

    decoded: int = 0
    file: int = 0


def largest_frame(source: OpenSource, decoding: Decoding) -> WholeFrame:
    """Return the largest whole frame among the first samples; an empty one where their names say JPEG.

    Names are in the index. Only files that are something else by their name are opened, and of these the headers are
    read; those that say no size count nothing.
    """
    fields = [name for name, spec in source.fields.items() if isinstance(spec, Encoded)]
    if not fields or source.num_records == 0:
        return WholeFrame()
    numbers = np.unique(np.linspace(0, source.num_records - 1, LOOKED_AT).astype(np.int64))
    try:
        files = source.locate(numbers).files
    except StandpipeError:  # the run meets it, and says so
        return WholeFrame()
    found = (_frame(path, decoding) for name in fields for path in _whole(files[name]))
    return max(found, default=WholeFrame())


def _whole(files: Files) -> Iterator[Path]:
    """Files that aren't decoded in rows, by their names."""
    for row in range(len(files.paths)):
        path = Path(os.fsdecode(files.paths[row]))
        if path.suffix.lower() in WHOLE:
            yield path


def _frame(path: Path, decoding: Decoding) -> WholeFrame:
    """What decoding a file would take; nothing is decoded. Empty for one whose header doesn't say it."""
    asked = size_bytes = 0

    def refuse(height: int, width: int, size: int) -> str:
        nonlocal asked
        asked = size
        return "nothing is decoded yet"

    with contextlib.suppress(OSError, Undecodable), open(path, "rb", opener=_at_once) as file:
        head = np.frombuffer(file.read(HEADER_BYTES), np.uint8)
        size_bytes = os.fstat(file.fileno()).st_size
        decode_foreign(head, decoding, refuse)
    return WholeFrame(asked + size_bytes - head.nbytes, size_bytes) if asked else WholeFrame()


def _at_once(path: str, flags: int) -> int:
    """Open a file, without a wait for who writes into a pipe of that name."""
    return os.open(path, flags | os.O_NONBLOCK)
