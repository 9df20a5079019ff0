"""Estimate the memory of images that can't be decoded row by row, from the headers of some files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from standpipe.contracts import Encoded, Files, OpenSource
from standpipe.errors import PlanError, StandpipeError
from standpipe.formats import FORMATS
from standpipe.spec import KINDS, DecodeLimits, Decoding
from standpipe.system.files import open_regular
from standpipe.transform.decoders.channels import Undecodable
from standpipe.transform.decoders.foreign import foreign_need, stored_form

LOOKED_AT = 16  # samples, evenly over the source
JPEG = b"\xff\xd8"  # how one begins
HEADER_BYTES = 64 << 10  # of each, in which its size is said
WHOLE = frozenset(suffix for each in FORMATS if each.name != "JPEG" for suffix in each.suffixes)


class WholeFrame(NamedTuple):
    """The memory for an image that needs a whole frame at once.

    decoded  bytes that decoding takes, with the file's bytes
    file     bytes of the file, which may be in memory a second time, as it was read
    """

    decoded: int = 0
    file: int = 0


def largest_frame(source: OpenSource, decoding: Decoding) -> WholeFrame:
    """Return the largest whole frame among the first samples; an empty one where their names say JPEG.

    Names are in the index. Only files that are something else by their name are opened, and of these the
    headers are read; those that say no size count nothing.
    """
    fields = [name for name, spec in source.fields.items() if isinstance(spec, Encoded)]
    if not fields or source.num_records == 0:
        return WholeFrame()
    # Not np.unique, which imports numpy.ma: that takes 20 ms.
    count = min(source.num_records, LOOKED_AT)
    numbers = np.linspace(0, source.num_records - 1, count).astype(np.int64)
    try:
        files = source.locate(numbers).files
    except StandpipeError:  # the run meets it, and says so
        return WholeFrame()
    # The samples of a dataset, whose image may be encoded too, are known only when workers make them.
    found = (_frame(*place, decoding) for name in fields if name in files for place in _whole(files[name]))
    return max(found, default=WholeFrame())


def stored_channels(source: OpenSource, limits: DecodeLimits, field: str) -> int:
    """Return the number of channels of the first record's image in a field, for ``decode(channels="as_stored")``.

    Raises ``PlanError`` if the image isn't in a file, or can't be opened.
    """
    what = 'decode(channels="as_stored") takes the channels of the first record'
    if not isinstance(source.fields.get(field), Encoded):
        return 3  # nothing is decoded
    files = source.locate(np.zeros(1, np.int64)).files
    if (found := files.get(field)) is None:
        raise PlanError(f"{what}, which is known only later: use another value of channels")
    path, offset, length = found.paths[0], found.offset[0], found.length[0]
    try:
        with open(path, "rb", opener=open_regular) as file:
            file.seek(int(offset))
            data = np.frombuffer(file.read(int(length)), np.uint8)
        kind = stored_form(data, limits)
    except (OSError, Undecodable) as error:
        raise PlanError(f"{what}, {os.fsdecode(path)}, but it can't be opened: {error}") from error
    return next(number for number, name in KINDS.items() if name == kind)


def _whole(files: Files) -> Iterator[tuple[Path, int, int]]:
    """Yield path, offset and length of images that aren't decoded in rows, by their names, and of parts of files."""
    for row in range(len(files.paths)):
        path = Path(os.fsdecode(files.paths[row]))
        offset, length = int(files.offset[row]), int(files.length[row])
        if length >= 0 or path.suffix.lower() in WHOLE:
            yield path, offset, length


def _frame(path: Path, offset: int, length: int, decoding: Decoding) -> WholeFrame:
    """Return what decoding an image would need, by its header alone; empty for JPEGs and unknown headers."""
    asked = size_bytes = 0
    with contextlib.suppress(OSError, Undecodable), open(path, "rb", opener=open_regular) as file:
        size_bytes = length if length >= 0 else os.fstat(file.fileno()).st_size - offset
        file.seek(offset)
        head = np.frombuffer(file.read(min(HEADER_BYTES, size_bytes)), np.uint8)
        if head[:2].tobytes() != JPEG:
            asked = foreign_need(head, decoding)[2]
    return WholeFrame(asked + size_bytes - head.nbytes, size_bytes) if asked else WholeFrame()
