"""``exclude``: records left out by their numbers in the source, listed here or in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from photos import numbers, write_list, write_photos
from standpipe.order import exclusion


def delivered(pipeline: sp.Pipeline) -> list[int]:
    """The records of one epoch in their order."""
    order = pipeline.batch(1, last_batch="partial").plan().order
    return order.indices(0, 0, order.num_positions).tolist()


def listing(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@given(st.data())
def test_what_is_left_out_is_left_out_and_nothing_else(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 300))
    out = data.draw(st.lists(st.integers(0, n - 1), max_size=n - 1))
    left = [record for record in range(n) if record not in out]
    assert delivered(sp.Pipeline(numbers(n)).exclude(out)) == left
    assert sorted(delivered(sp.Pipeline(numbers(n)).exclude(out).shuffle(seed=3))) == left


def test_numbers_are_the_sources_whatever_was_selected_before() -> None:
    chosen = sp.Pipeline(numbers(20)).select([7, 3, 7, 12, 3, 5])
    assert delivered(chosen.exclude([3, 5, 19])) == [7, 7, 12]
    assert delivered(sp.Pipeline(numbers(600_000)).skip(300_000).exclude([0, 300_001, 599_999]))[:2] == [
        300_000,
        300_002,
    ]
    first, rest = sp.Pipeline(numbers(100)).split(0.5, seed=1)
    assert set(delivered(first.exclude(range(50)))) == {r for r in delivered(first) if r >= 50}
    assert not set(delivered(first)) & set(delivered(rest))


def test_later_selections_see_what_is_left() -> None:
    pipeline = sp.Pipeline(numbers(10)).exclude([0, 1]).take(3).exclude([3])
    assert delivered(pipeline) == [2, 4]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([[1]], "a file that lists records, or a list of record numbers"),
        ([1.0], "got float64"),
        (np.array([True, False]), "For a mask, write np.flatnonzero"),
        ([-1], "from 0 on, got -1"),
        (3, "of shape"),
    ],
)
def test_what_is_no_list_of_numbers(records: object, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(numbers(10)).exclude(records)


def test_what_can_not_be_left_out() -> None:
    pipeline = sp.Pipeline(numbers(1000))
    with pytest.raises(sp.PlanError, match=r"names record 1,000, but the source's last record is 999"):
        pipeline.exclude([1000]).batch(1).plan()
    with pytest.raises(
        sp.PlanError, match=r"exclude\(1000 records, digest .* leaves nothing of 1,000 records"
    ):
        pipeline.exclude(range(1000)).batch(1).plan()
    with pytest.raises(sp.PlanError, match=r"Write it before \.shuffle"):
        pipeline.shuffle(seed=1).exclude([1])


def test_the_recipe_has_what_is_left_out_and_not_where_it_is_listed(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 5)
    whole = sp.Pipeline(source).map(sp.CenterCrop(8))
    path = listing(tmp_path / "bad.jsonl", {"index": 3, "path": str(tmp_path / "003.jpg"), "reason": "…"}, 1)

    def digest(pipeline: sp.Pipeline) -> str:
        return pipeline.batch(1).plan().digest

    listed = digest(whole.exclude(path))
    assert listed == digest(whole.exclude([3, 1, 3])) == digest(whole.exclude(np.array([1, 3], np.uint8)))
    assert listed not in (digest(whole), digest(whole.exclude([3])))
    assert "exclude(2 records, digest " in whole.exclude(str(path)).batch(1).plan().explain()


def test_the_file_is_read_once_and_by_plan(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 4)
    missing = sp.Pipeline(source).map(sp.CenterCrop(8)).exclude(tmp_path / "bad.jsonl").batch(1)
    with pytest.raises(sp.PlanError, match=r"exclude\('.*bad.jsonl'\) can't be read: No such file"):
        missing.plan()
    listing(tmp_path / "bad.jsonl", 2)
    before = missing.plan()
    listing(tmp_path / "bad.jsonl", 1)
    assert missing.plan().digest == before.digest
    assert missing.plan().order.indices(0, 0, 3).tolist() == [0, 1, 3]


def of(folder: Path, lines: Sequence[Any]) -> list[int]:
    source = sp.FileList(folder / "list.txt")
    return delivered(sp.Pipeline(source).map(sp.CenterCrop(8)).exclude(listing(folder / "bad.jsonl", *lines)))


def test_the_list_belongs_to_the_source(tmp_path: Path) -> None:
    digest = write_photos(tmp_path, 4).open().digest
    mine, other = {"index": 2, "path": str(tmp_path / "002.jpg")}, {"index": 2, "path": "/elsewhere/002.jpg"}
    assert of(tmp_path, []) == [0, 1, 2, 3]
    assert of(tmp_path, [mine]) == [0, 1, 3]
    assert of(tmp_path, [{"source": digest}, other]) == [0, 1, 3]  # the data was moved
    assert of(tmp_path, [{"source": "older"}, mine]) == [0, 1, 3]  # a label was changed, say
    with pytest.raises(
        sp.PlanError, match=r"line 1 names record 2 as /elsewhere/002.jpg, but in this source"
    ):
        of(tmp_path, [other])
    with pytest.raises(
        sp.PlanError, match=r"line 2 names record 1 as .*002.jpg, but in this source it is .*001.jpg"
    ):
        of(tmp_path, [{"source": "older"}, {**mine, "index": 1}])
    with pytest.raises(sp.PlanError, match="was made for another source: its digest is older"):
        of(tmp_path, [{"source": "older"}, {"index": 1}])
    with pytest.raises(sp.PlanError, match="line 3 names record 4, but the source's last record is 3"):
        of(tmp_path, [0, mine, {**mine, "index": 4}])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "line 1 isn't JSON"),
        (b'1\n\n{"index": "2"}\n', "line 3 doesn't name a record"),
        (b"1\ntrue\n", "line 2 doesn't name a record"),
        (b"-1\n", "line 1 doesn't name a record"),
        (b"[1]\n", "line 1 doesn't name a record"),
        (b'{"index": 1, "path": 5}\n', "line 1 doesn't name a record"),
        (b"1\n\xff\n", "line 2 isn't JSON"),
        (b"1\n\0\n", "line 2 isn't JSON"),
        (b"[" * 100_000 + b"\n", "line 1 isn't JSON"),
        (b"9" * 5000 + b"\n", "line 1 isn't JSON"),
        (str(1 << 63).encode(), "line 1 doesn't name a record"),
        (b"NaN\n", "line 1 doesn't name a record"),
        (b"1" * (2 << 20), "line 1 is longer than 1,048,576 bytes"),
    ],
    ids=range(13),
)
def test_a_file_that_lists_nothing_says_where(tmp_path: Path, content: bytes, says: str) -> None:
    write_list(tmp_path, [b"", b""])
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(sp.PlanError, match=says):
        exclusion(tmp_path / "bad.jsonl").describe()


def test_a_byte_order_mark_and_empty_lines_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b'\xef\xbb\xbf{"index": 1}\r\n\r\n 0 \n')
    assert delivered(sp.Pipeline(numbers(4)).exclude(tmp_path / "bad.jsonl")) == [2, 3]


def test_a_runs_ledger_is_such_a_list(tmp_path: Path) -> None:
    from photos import encoded, picture

    good = encoded(picture(0))
    source = write_list(tmp_path, [good, b"", good, good[:200], good, good, good, good])
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8))
    replacing = pipeline.shuffle(seed=1).on_error(sp.Replace(at_most=2)).batch(4)
    with replacing.loader(memory="64MiB", error_log=tmp_path / "bad.jsonl") as loader:
        list(loader)
    assert delivered(pipeline.exclude(tmp_path / "bad.jsonl")) == [0, 2, 4, 5, 6, 7]
