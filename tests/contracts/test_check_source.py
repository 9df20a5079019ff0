"""``check_source`` is public: it must find each promise that somebody's source breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.contracts import OpenSource, Paths, RaggedRows, Records, Rows, check_source
from standpipe.spec import Listed, RaggedSpec


class Altered:
    """A good source, of which some answers are others."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def open(self) -> OpenSource:
        good = sp.Arrays(x=np.arange(12, dtype=np.float32).reshape(4, 3), label=np.arange(4)).open()
        altered = type("OpenAltered", (), {"__getattr__": lambda _, name: getattr(good, name)})()
        for name, answer in self.answers.items():
            setattr(altered, name, answer(good) if callable(answer) else answer)
        opened: OpenSource = altered
        return opened

    def describe(self) -> str:
        return "Altered()"


def locates(change: Any) -> Any:
    """What makes a source answer ``locate()`` by ``change(records)``."""
    return lambda good: lambda indices: change(good.locate(indices))


def unsorted(records: Records) -> Records:
    """The records as if they had been asked for by number."""
    return records.take(np.argsort(records.index, kind="stable"))


def nowhere(rows: Rows) -> Rows:
    """A field of which no array has the first record's row."""
    others = np.arange(len(rows.rows)) > 0
    return replace(
        rows, rows=np.full(len(rows.rows), -1), others=(replace(rows, rows=np.where(others, rows.rows, -1)),)
    )


def test_a_source_of_ones_own_is_checked() -> None:
    check_source(Altered())


@pytest.mark.parametrize(
    ("answers", "promise"),
    [
        ({"num_records": 0}, "num_records is at least 1, got 0"),
        ({"digest": "abc"}, "digest is 32 hex digits or more, got 'abc'"),
        ({"name": lambda _: lambda index: "\n"}, "name.0. is printable or None"),
        ({"classes": ("one", "two")}, r"labels are in \[0, 2\)"),
        ({"fields": lambda good: {"x": good.fields["x"]}}, r"locate\(\) gives each of \['x'\] once"),
        ({"fields": lambda good: {**good.fields, "x": sp.ArraySpec((3,), np.dtype(int))}}, "a row of 'x' is"),
        ({"column": lambda good: lambda name, start, stop: np.zeros(3)}, "one number for each record"),
        (
            {"column": lambda good: lambda name, start, stop: good.arrays[name][start:stop]},
            r"column\('label', -1, 1\) raises IndexError",
        ),
        ({"locate": locates(unsorted)}, r"locate\(\) gives the same records in any order"),
        (
            {"locate": locates(lambda records: replace(records, index=records.index.astype(np.int32)))},
            "index is int64, got int32",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_a_broken_promise_is_named(answers: dict[str, Any], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_source(Altered(**answers))


RAGGED = {"boxes": RaggedSpec((4,), np.dtype(np.float32)), "area": RaggedSpec((), np.dtype(np.float32))}


@pytest.mark.parametrize(
    ("boxes", "ends", "promise"),
    [
        (
            np.zeros((3, 4)),
            [1, 1, 2, 3],
            r"'boxes' is \(M, 4\) float32 for each record, got \(M, 4\) float64",
        ),
        (np.zeros((3, 4), np.float32), [1, 0, 2, 3], "ends of 'boxes' are int64 for each record"),
        (np.zeros((3, 4), np.float32), [1, 2, 3], "ends of 'boxes' are int64 for each record"),
        (np.zeros((3, 4), np.float32), [1, 1, 1, 2], "the last end of 'boxes' is the number of its values"),
        (np.zeros((3, 4), np.float32), [0, 1, 2, 3], "'boxes' has as many values as"),
        (np.zeros((3, 4), np.float32), [1, 1, 2, 3], "sizes are int64, a height and a width for each"),
        (np.zeros((3, 4), np.float32), [1, 1, 2, 3], "a record has at most 0 instances"),
        (np.zeros((3, 4), np.float32), [1, 1, 2, 3], None),
    ],
)
def test_instances_that_break_a_promise(boxes: Any, ends: list[int], promise: str | None) -> None:
    def change(records: Records) -> Records:
        if promise is None or not promise.startswith("sizes"):
            records = replace(records, sizes=np.ones((len(records.index), 2), np.int64))
        area = RaggedRows(np.arange(3, dtype=np.float32), np.array([1, 1, 2, 3]))
        if np.array_equal(records.index, np.arange(4)):
            return replace(records, ragged={"boxes": RaggedRows(boxes, np.array(ends)), "area": area})
        right = {"boxes": RaggedRows(np.zeros((3, 4), np.float32), area.ends), "area": area}
        return replace(records, ragged={name: part.take(records.index) for name, part in right.items()})

    most = 0 if promise == "a record has at most 0 instances" else 1
    facts = {"most_instances": most, "num_instances": 3, "flip_pairs": None, "skeleton": ()}
    altered = Altered(fields=lambda good: {**good.fields, **RAGGED}, locate=locates(change), **facts)
    if promise is None:
        check_source(altered)
        return
    with pytest.raises(AssertionError, match=promise):
        check_source(altered)


@pytest.mark.parametrize(
    ("texts", "promise"),
    [
        (Paths.pack([b"a", b"", b"\xff", b"bc"]), None),
        (Paths.pack([b"a", b"b", b"c"]), "'caption' is uint8, cut at an int64 end for each record"),
        (Paths(np.zeros(3, np.uint8), np.array([1, 0, 2, 3])), "'caption' is uint8, cut at"),
        (Paths(np.zeros(3, np.uint8), np.array([1, 1, 2, 2])), "'caption' is uint8, cut at"),
        (Paths(np.zeros(3, np.uint8), np.array([1, 1, 2, 3], np.int32)), "'caption' is uint8, cut at"),
        (Paths(np.zeros(3), np.array([1, 1, 2, 3])), "'caption' is uint8, cut at"),
    ],
)
def test_texts_that_break_a_promise(texts: Paths, promise: str | None) -> None:
    def change(records: Records) -> Records:
        whole = np.array_equal(records.index, np.arange(4))
        return replace(records, texts={"caption": texts if whole else texts.take(records.index)})

    altered = Altered(fields=lambda good: {**good.fields, "caption": Listed("str")}, locate=locates(change))
    if promise is None:
        check_source(altered)
        return
    with pytest.raises(AssertionError, match=promise):
        check_source(altered)


def test_texts_are_described_as_texts() -> None:
    def change(records: Records) -> Records:
        return replace(records, texts={"caption": Paths.pack([b"a"] * len(records.index))})

    spec = sp.ArraySpec((), np.dtype(np.int64))
    altered = Altered(fields=lambda good: {**good.fields, "caption": spec}, locate=locates(change))
    with pytest.raises(AssertionError, match=r"'caption' is list of str, outside the slots, got \(\) int64"):
        check_source(altered)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda records: replace(records, plain={}), r"'label', \(\) int64"),
        (lambda records: replace(records, rows={}), r"'x', \(3\) float32"),
        (
            lambda records: replace(records, plain={"label": records.plain["label"][:1]}),
            r"'label', \(\) int64",
        ),
        (lambda records: replace(records, plain={"label": np.array([None] * 4)}), r"'label', \(\) int64"),
        (lambda records: replace(records, rows={"x": nowhere(records.rows["x"])}), r"'x', \(3\) float32"),
    ],
    ids=["no label", "no x", "one label", "no numbers", "nowhere"],
)
def test_a_loader_delivers_nothing_that_the_source_has_not_given(change: Any, field: str) -> None:
    """The slot's row would keep the value of an earlier batch."""
    pipeline = sp.Pipeline(Altered(locate=locates(change))).batch(4)
    with (
        pipeline.loader(memory="256MiB") as loader,
        pytest.raises(sp.PlanError, match=rf"doesn't give {field}, for each of 4 records.*check_source"),
    ):
        next(iter(loader))
