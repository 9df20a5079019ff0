"""Forecast what a cache brings: its bytes, the rows that it finds, and the epoch in which it has paid for
itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import asdict, dataclass

import numpy as np

from standpipe.cache import file_system
from standpipe.contracts import KnownHere, OpenSource
from standpipe.pipeline.mix import OpenMixture
from standpipe.source import OpenConcat, cache_folder
from standpipe.system.files import open_regular

# Where no loader has measured it. Of benchmarks/cache_engine.py and eval_cache.py on one core of a server: writing into
# memory that nobody has used yet, reading from there, and decoding.
STORE_BYTES_PER_S = 2e9
TAKE_BYTES_PER_S = 3e9
EACH_ROW_S = 5e-6
DECODED_BYTES_PER_S = 100e6  # of a JPEG file
READ_S = 40e-6  # a small file that the system has in memory
FAR_READ_S = 2e-3  # of a file system over a network
LOOKED_AT = 64  # files, for their mean size


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a record without a cache, on average.

    read_s      seconds to read its file
    make_s      seconds of a worker to make a row from it
    file_bytes  size of its file
    measured    True if a loader measured it on this machine; False: the cost on a usual machine
    """

    read_s: float
    make_s: float
    file_bytes: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Payoff:
    """The benefit of keeping rows at one place.

    row_bytes   bytes of a row, on average
    rows        number of rows that fit
    share       fraction of all records
    saved_s     seconds of work saved by a row that is found
    first_s     additional seconds of work when a row is kept
    """

    row_bytes: float
    rows: int
    share: float
    saved_s: float
    first_s: float

    @property
    def per_record_s(self) -> float:
        """Seconds that a later epoch saves, for each of its records."""
        return self.share * self.saved_s

    @property
    def break_even(self) -> int | None:
        """The epoch, counted from 1, by whose end it has saved more than it cost; None: never."""
        return None if self.saved_s <= 0 else 2 + math.floor(self.first_s / self.saved_s)


def payoff(row_bytes: float, room: int, records: int, without_s: float) -> Payoff:
    """Return the benefit of rows of ``row_bytes`` bytes.

    room       bytes for all rows
    records    number of records
    without_s  seconds of work for a row without a cache
    """
    rows = min(records, int(room // max(row_bytes, 1)))
    return Payoff(
        row_bytes,
        rows,
        rows / records,
        without_s - EACH_ROW_S - row_bytes / TAKE_BYTES_PER_S,
        EACH_ROW_S + row_bytes / STORE_BYTES_PER_S,
    )


def costs_of(source: OpenSource) -> Costs:
    """Return the costs of a source's records, as a loader measured them here, or else of a usual machine."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        with open(_path(source), "rb", opener=open_regular) as file:
            known = json.loads(file.read(4096))
        return Costs(float(known["read_s"]), float(known["make_s"]), float(known["file_bytes"]), True)
    size = mean_file_bytes(source)
    return Costs(FAR_READ_S if _is_far(source) else READ_S, size / DECODED_BYTES_PER_S, size, False)


def note_costs(source: OpenSource, costs: Costs) -> None:
    """Store measured costs for later plans. An error of the file system is ignored."""
    path = _path(source)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 (likewise)
        written = path + b".%d" % os.getpid()
        with open(written, "wb") as file:  # noqa: PTH123
            file.write(json.dumps(asdict(costs)).encode())
        os.replace(written, path)  # noqa: PTH105


def mean_file_bytes(source: OpenSource) -> float:
    """Return the mean size of some files, spread evenly over the records; 0 without files."""
    count = min(source.num_records, LOOKED_AT)
    records = np.linspace(0, source.num_records - 1, count, dtype=np.int64)
    files = source.locate(records).files.get("image")
    if files is None:
        return 0.0
    sizes = [_bytes_of(files.paths[row], int(files.length[row])) for row in range(len(records))]
    return sum(sizes) / max(sum(size > 0 for size in sizes), 1)


def _is_far(source: OpenSource) -> bool:
    """Return True if the first record's file is on a network file system."""
    files = source.locate(np.zeros(1, np.int64)).files.get("image")
    if files is None:
        return False
    with contextlib.suppress(OSError):
        return file_system(os.path.dirname(os.fsdecode(files.paths[0])) or ".").elsewhere  # noqa: PTH120 (likewise)
    return False


def _bytes_of(path: bytes, length: int) -> int:
    if length >= 0:
        return length
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def _path(source: OpenSource) -> bytes:
    """Return the path of the file with a source's costs; it depends on the location of the source."""
    from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

    named = blake2b(ascii([source.digest, *here_of(source)]).encode(), digest_size=16)
    return cache_folder() + b"/costs/" + named.hexdigest().encode()


def here_of(source: OpenSource) -> list[str]:
    """Return the location of a source, or of each of several: two folders may have files of the same names."""
    if isinstance(source, OpenMixture):
        return here_of(source.concat)
    if isinstance(source, OpenConcat):
        return [each for part in source.parts for each in here_of(part)]
    return [source.here()] if isinstance(source, KnownHere) else []
