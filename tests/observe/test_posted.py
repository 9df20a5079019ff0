"""Other processes find a loader's newest snapshot, whole, and nobody else's."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import standpipe as sp
from observed import shown, small_plan
from standpipe.observe import Found, loaders
from standpipe.observe.posted import PLACE, ROOM, STALE_S, Posted, delivers, framed, newest

pytestmark = pytest.mark.usefixtures("no_garbage")

NOW = shown(small_plan())


@contextmanager
def posted() -> Iterator[Posted]:
    post = Posted(0)
    try:
        yield post
    finally:
        post.close()


def mine() -> list[sp.observe.Found]:
    return [found for found in loaders() if found.pid == os.getpid()]


def test_the_newest_one_is_found_under_proc() -> None:
    with posted() as post, posted() as other:
        assert mine() == []  # nothing written yet
        for step in range(5):
            post.write(replace(NOW, step=step))
            assert [found.snapshot for found in mine()] == [replace(NOW, step=step)]
        other.write(replace(NOW, rank=1))
        copy = os.dup(post.descriptor)  # the same loader
        assert [found.snapshot.rank for found in mine()] == [0, 1]
        os.close(copy)
    assert mine() == []


def test_a_forked_childs_copy_is_not_another_loader() -> None:
    with posted() as post:
        post.write(NOW)
        ends, goes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(goes)
            os.read(ends, 1)  # until its parent closes the pipe
            os._exit(0)
        os.close(ends)
        try:
            assert [found.pid for found in loaders() if found.pid in (child, os.getpid())] == [os.getpid()]
        finally:
            os.close(goes)
            os.waitpid(child, 0)


def test_while_one_is_written_the_one_before_it_is_found() -> None:
    first, second = framed(NOW.as_json(), 1), framed(replace(NOW, step=9).as_json(), 2)
    for half in range(0, len(second), 97):
        file = second[:half].ljust(PLACE, b"\0") + first
        assert newest(file) == NOW
    assert newest(second.ljust(PLACE, b"\0") + first).step == 9


def test_the_one_before_the_newest_is_left_alone() -> None:
    with posted() as post:
        for step in range(5):
            post.write(replace(NOW, step=step))
        file = os.pread(post.descriptor, 2 * PLACE, 0)
    assert newest(file).step == 4
    halves = (file[:PLACE], file[PLACE:])
    assert {newest(half.ljust(2 * PLACE, b"\0")).step for half in halves} == {3, 4}


def test_one_that_is_too_long_goes_without_names() -> None:
    many = tuple(sp.WorkerStats("x" * 4000) for _ in range(40))
    long = replace(NOW, stats=replace(NOW.stats, workers=many))
    assert len(long.as_json()) > ROOM
    with posted() as post:
        post.write(long)
        assert newest(os.pread(post.descriptor, 2 * PLACE, 0)).stats.workers == ()


def test_what_has_the_name_but_is_none_is_left_out() -> None:
    whole = framed(NOW.as_json(), 1)
    older = whole[:8] + struct.pack("<I", 0) + whole[12:]
    files = []
    for content in (b"", b"\0" * 100, whole[:-1], older, framed(b"{}", 1), b"\xff" * 2 * PLACE):
        files.append(os.memfd_create("standpipe-loader-0", os.MFD_CLOEXEC))
        os.write(files[-1], content)
    try:
        assert mine() == []
    finally:
        for file in files:
            os.close(file)


def found(steps: int, time_s: float, *, rank: int = 0, age_s: float = 0.0, rows: int = 800) -> Found:
    stats = replace(NOW.stats, step=replace(NOW.stats.step, steps=steps))
    now = replace(NOW, rank=rank, time_s=time_s, stats=stats, recent=replace(NOW.recent, rows=rows))
    return Found(1, age_s, now)


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ([], [], False),
        ([found(5, 1.0)], [found(6, 2.0)], True),
        ([found(5, 1.0)], [found(5, 2.0)], False),
        (
            [found(5, 1.0), found(500, 1.0, rank=1)],
            [found(6, 2.0)],
            True,
        ),  # the other one has ended meanwhile
        ([found(5, 1.0)], [found(5, 2.0), found(1, 2.0, rank=1)], True),
        # These have said nothing meanwhile:
        ([found(5, 1.0)], [found(5, 1.0)], True),
        ([found(5, 1.0)], [found(5, 1.0, rows=0)], False),
        ([found(5, 1.0)], [found(5, 1.0, age_s=STALE_S + 1)], False),
    ],
)
def test_whether_a_process_delivers(before: list[Found], after: list[Found], goes_on: bool) -> None:
    assert delivers(before, after) == goes_on


def test_processes_that_cant_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()  # ended meanwhile: no fd in it
    (tmp_path / "2").write_text("")
    (tmp_path / "self").mkdir()
    (tmp_path / "3" / "fd").mkdir(parents=True)
    (tmp_path / "3" / "fd" / "0").symlink_to("/memfd:standpipe-loader-0 (deleted)")  # leads nowhere
    assert loaders(tmp_path) == []
