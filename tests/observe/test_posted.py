"""Other processes find a loader's newest snapshot, whole, and nobody else's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import standpipe as sp
from observed import shown, small_plan
from standpipe.observe import Found, loaders
from standpipe.observe.posted import KIND, STALE_S, delivers
from standpipe.system.published import Published

pytestmark = pytest.mark.usefixtures("no_garbage")

NOW = shown(small_plan())


@contextmanager
def posted() -> Iterator[Published]:
    post = Published(KIND)
    try:
        yield post
    finally:
        post.close()


def mine() -> list[sp.observe.Found]:
    return [found for found in loaders() if found.pid == os.getpid()]


def test_the_newest_one_of_each_loader_is_found() -> None:
    with posted() as post, posted() as other:
        assert mine() == []  # nothing written yet
        for step in range(5):
            post.write(replace(NOW, step=step).as_json())
            assert [found.snapshot for found in mine()] == [replace(NOW, step=step)]
        other.write(replace(NOW, rank=1).as_json())
        assert [found.snapshot.rank for found in mine()] == [0, 1]
    assert mine() == []


def test_a_forked_child_has_none() -> None:
    with posted() as post:
        post.write(NOW.as_json())
        child = os.fork()
        if child == 0:
            post.write(replace(NOW, step=99).as_json())
            post.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert [found.snapshot for found in mine()] == [NOW]


def test_what_is_none_is_left_out() -> None:
    with posted() as post:
        for content in (b"", b"{}", b"\xff" * 99, NOW.as_json()[:-1]):
            post.write(content)
            assert mine() == []


def found(steps: int, time_s: float, *, rank: int = 0, age_s: float = 0.0, rows: int = 800) -> Found:
    stats = replace(NOW.stats, step=replace(NOW.stats.step, steps=steps))
    now = replace(NOW, rank=rank, time_s=time_s, stats=stats, recent=replace(NOW.recent, rows=rows))
    return Found(age_s, now)


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
