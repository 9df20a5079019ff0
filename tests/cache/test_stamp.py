"""What tells that a file was changed. Why by private names: loaders say only whether a row was made anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from photos import FILES_CLOCK, LONG_AGO_NS, age
from standpipe import _native

MOST_BYTES = 1 << 16


def stamp_of(path: Path) -> _native.Stamp:
    """As whoever reads it takes it."""
    maker = _native.RowMaker(_native.SideArena(MOST_BYTES), MOST_BYTES, np.zeros(4, np.int64), print)
    reader = _native.Reader(_native.ReadPolicy(0, 0, 0), MOST_BYTES, MOST_BYTES)
    _, wrong, stamp = maker.read(reader, os.fsencode(path), 0, -1)
    assert not wrong
    return stamp


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"some bytes")
    return path


def test_it_is_what_the_system_says(path: Path) -> None:
    age(path)
    stamp, info = stamp_of(path), path.stat()
    assert (stamp.file_bytes, stamp.mtime_ns, stamp.ctime_ns) == (10, LONG_AGO_NS, info.st_ctime_ns)
    assert not stamp.racy


def test_what_may_yet_bear_the_same_time_is_racy(path: Path) -> None:
    for time_ns in (2**62, time.time_ns()):
        os.utime(path, ns=(time_ns, time_ns))
        assert stamp_of(path).racy


def test_a_file_that_was_just_changed_is_read_when_its_clock_has_ticked(path: Path) -> None:
    """What changes from the read on has another time than the stamp."""
    for _ in range(20):
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
        stamp = stamp_of(path)
        assert time.clock_gettime_ns(FILES_CLOCK) > stamp.ctime_ns
        assert not stamp.racy
