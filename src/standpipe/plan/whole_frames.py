"""Whole frames: what images take at once that can't be decoded row by row, as far as a plan can know it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from standpipe.contracts import Encoded, Files, OpenSource
from standpipe.errors import StandpipeError
from standpipe.formats import FORMATS
from standpipe.spec import Decoding
from standpipe.transform.foreign import Undecodable, decode_foreign

LOOKED_AT = 16  # samples, evenly over the source
HEADER_BYTES = 64 << 10  # of each, in which its size is said
WHOLE = frozenset(suffix for each in FORMATS if each.name != "JPEG" for suffix in each.suffixes)


def frame_bytes(source: OpenSource, decoding: Decoding) -> int:
    """Bytes of the largest whole frame among the first samples; 0 where their names say that they are JPEGs.

    Names are in the index. Only files that are something else by their name are opened, and of these the headers are
    read; those that say no size count nothing.
    """
    fields = [name for name, spec in source.fields.items() if isinstance(spec, Encoded)]
    if not fields or source.num_records == 0:
        return 0
    numbers = np.unique(np.linspace(0, source.num_records - 1, LOOKED_AT).astype(np.int64))
    try:
        files = source.locate(numbers).files
    except StandpipeError:  # the run meets it, and says so
        return 0
    return max((_frame(path, decoding) for name in fields for path in _whole(files[name])), default=0)


def _whole(files: Files) -> Iterator[Path]:
    """Files that aren't decoded in rows, by their names."""
    for row in range(len(files.paths)):
        path = Path(os.fsdecode(files.paths[row]))
        if path.suffix.lower() in WHOLE:
            yield path


def _frame(path: Path, decoding: Decoding) -> int:
    """Bytes that decoding a file would take; nothing is decoded. 0 for one whose header doesn't say it."""
    asked = 0

    def refuse(height: int, width: int, size: int) -> str:
        nonlocal asked
        asked = size
        return "nothing is decoded yet"

    with contextlib.suppress(OSError, Undecodable), open(path, "rb", opener=_at_once) as file:
        head = np.frombuffer(file.read(HEADER_BYTES), np.uint8)
        rest = os.fstat(file.fileno()).st_size - head.nbytes
        decode_foreign(head, decoding, refuse)
    return asked and asked + rest


def _at_once(path: str, flags: int) -> int:
    """Open a file, without a wait for who writes into a pipe of that name."""
    return os.open(path, flags | os.O_NONBLOCK)
