"""Instances in index files and contracts: ragged columns, sizes, and groups of sections of later versions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
from indexes import change_section
from standpipe.contracts import RaggedRows, Records, check_source
from standpipe.errors import StandpipeError
from standpipe.source.index.file import PREAMBLE, SIZES, Facts, IndexFile, preamble, read_facts
from standpipe.source.index.instances import write_instances
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import build_shared, build_temporary
from standpipe.source.index.writer import IndexWriter
from standpipe.spec import RaggedSpec

LONG_AGO_NS = 1_600_000_000_123_456_789
Writes = Callable[[IndexWriter, Facts, IndexFile], Facts]


def source_of(folder: Path, rows: int, name: str = "list.txt") -> sp.FileList:
    path = folder / name
    path.write_text("".join(f"{row}.jpg\n" for row in range(rows)))
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return sp.FileList(path, labels=False, index=f"{path}.index")


def columns_of(counts: list[int]) -> dict[str, Any]:
    """Return columns whose values say which instance each is of."""
    each = np.arange(sum(counts))
    boxes = each[:, None] + np.array([0, 0.25, 0.5, 0.75], np.float32)
    return {"boxes": boxes.astype(np.float32), "labels": each * 7, "iscrowd": each % 3 == 0}


def adding(counts: list[int], values: dict[str, Any]) -> Writes:
    """Add instances, and sizes of (row, 10) pixels, to an index."""

    def finish(writer: IndexWriter, facts: Facts, draft: IndexFile) -> Facts:
        columns = write_instances(writer, np.cumsum(counts), values)
        writer.add(SIZES, np.stack([np.arange(facts.rows), np.full(facts.rows, 10)], axis=1).astype("<u4"))
        return replace(facts, instances=columns, optional={"instances": 1, "sizes": 1})

    return finish


def with_instances(source: sp.FileList, counts: list[int]) -> sp.FileList:
    assert isinstance(source.index, str)
    build_shared(source.subject(), source.index.encode(), adding(counts, columns_of(counts)))
    return source


def change_facts(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Let an index have other facts, with the right checksum."""
    content = path.read_bytes()
    at = PREAMBLE.unpack(content[: PREAMBLE.size])[4]
    facts = json.loads(content[at:])
    change(facts)
    text = json.dumps(facts).encode()
    path.write_bytes(preamble(at + len(text), at, text) + content[PREAMBLE.size : at] + text)


@settings(deadline=None)
@given(st.data())
def test_any_instances_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=60))
    rows = len(counts)
    indices = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=80)), np.int64)
    subject = source_of(tmp_path_factory.mktemp("ragged"), rows).subject()
    values = columns_of(counts)
    opened = Listing(subject, build_temporary(subject, finish=adding(counts, values)))
    found = opened.locate(indices).ragged
    ends = np.cumsum(counts)
    for name, whole in values.items():
        parts = [whole[ends[index] - counts[index] : ends[index]] for index in indices]
        expected = np.concatenate([whole[:0], *parts])
        assert found[name].values.dtype == whole.dtype
        assert np.array_equal(found[name].values, expected)
        assert found[name].ends.tolist() == np.cumsum([len(part) for part in parts]).tolist()
    sizes = opened.sizes(indices)
    assert sizes is not None
    assert sizes.tolist() == [[index, 10] for index in indices]


def test_a_source_with_instances_keeps_the_contract(tmp_path: Path) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    check_source(source)
    opened = source.open()
    assert opened.fields["boxes"] == RaggedSpec((4,), np.dtype(np.float32))
    assert str(opened.fields["boxes"]) == "(M, 4) float32"
    assert str(opened.fields["labels"]) == "(M,) int64"
    assert opened.columns == ("height", "width")
    assert opened.column("height", 1, 3).tolist() == [1, 2]
    assert opened.column("width", 0, 4).tolist() == [10] * 4


def test_the_digest_covers_instances(tmp_path: Path) -> None:
    digests = {source_of(tmp_path, 4).open().digest}
    for number, counts in enumerate(([2, 0, 3, 0], [0, 2, 3, 0])):
        digests.add(with_instances(source_of(tmp_path, 4, f"{number}.txt"), counts).open().digest)
    assert len(digests) == 3


def test_a_plan_needs_to_know_the_most_instances(tmp_path: Path) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    with pytest.raises(
        sp.PlanError, match=r"the fields boxes, iscrowd, labels have .* contracts.HasInstances"
    ):
        sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).plan()


def newer(facts: dict[str, Any]) -> None:
    facts["optional"] = {"instances": 2, "polygons": 7, "sizes": 1}
    facts["instances"] = ["described in another way"]


def test_groups_that_are_unknown_are_ignored(tmp_path: Path) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    path = Path(os.fspath(source.index))  # type: ignore[arg-type]
    inode = path.stat().st_ino
    change_facts(path, newer)
    opened = source.open()
    assert path.stat().st_ino == inode, "it was built again"
    assert sorted(opened.fields) == ["image"]
    assert opened.locate(np.arange(4)).ragged == {}
    assert opened.sizes(np.array([3])).tolist() == [[3, 10]]  # type: ignore[attr-defined]


def test_version_4_is_built_again(tmp_path: Path) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    path = Path(os.fspath(source.index))  # type: ignore[arg-type]
    content = bytearray(path.read_bytes())
    content[8] = 4
    path.write_bytes(content)
    assert sp.verify_index(source).differences == (
        "the file: it has version 4, this standpipe reads version 5",
    )
    assert sorted(source.open().fields) == ["image"]
    assert sp.verify_index(source).ok


@pytest.mark.parametrize(
    "ends",
    [[2, 2, 9, 5], [2, 1, 5, 5], [2, 2, -1, 5]],
    ids=["more than there are", "less than before", "negative"],
)
def test_damaged_ends_are_named(tmp_path: Path, ends: list[int]) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    path = Path(os.fspath(source.index))  # type: ignore[arg-type]

    def change(data: bytearray) -> None:
        data[:] = np.array(ends, np.int64).tobytes()

    change_section(path, "ends of instances", change)
    opened = source.open()
    with pytest.raises(
        StandpipeError, match=r"list.txt.index is damaged: .*'ends of instances'.* outside \[0, 5\]"
    ):
        opened.locate(np.arange(4))
    assert "the section 'ends of instances' isn't as it was written" in sp.verify_index(source).differences[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda facts: facts["instances"]["boxes"].update(shape=[3]), "isn't of 12 bytes an instance"),
        (lambda facts: facts["instances"]["boxes"].update(shape=[2]), r"of \{\d+, \d+\} instances"),
        (
            lambda facts: facts["instances"]["boxes"].update(shape=[0]),
            r"its column boxes has the shape \(0,\)",
        ),
        (lambda facts: facts["sections"].pop("ends of instances"), "doesn't have the size of 4 rows"),
        (lambda facts: facts["sections"].pop("sizes"), "sizes doesn't have the size of 4 rows"),
        (lambda facts: facts["instances"].clear(), "its instances have the columns"),
        (lambda facts: facts["optional"].update(sizes="1"), "its facts are invalid"),
    ],
)
def test_facts_that_contradict_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    source = with_instances(source_of(tmp_path, 4), [2, 0, 3, 0])
    path = Path(os.fspath(source.index))  # type: ignore[arg-type]
    change_facts(path, change)
    with path.open("rb") as file, pytest.raises(Exception, match=reason):
        read_facts(file.fileno(), path.stat().st_size)


def test_records_without_any_instance(tmp_path: Path) -> None:
    opened = with_instances(source_of(tmp_path, 3), [0, 0, 0]).open()
    found = opened.locate(np.array([2, 0])).ragged
    assert found["boxes"].values.shape == (0, 4)
    assert found["labels"].ends.tolist() == [0, 0]


def test_take_keeps_instances_together() -> None:
    ends = np.array([2, 2, 5])
    ragged = {
        "boxes": RaggedRows(np.arange(20).reshape(5, 4), ends),
        "labels": RaggedRows(np.arange(5), ends),
    }
    taken = Records(np.arange(3), ragged=ragged).take(np.array([2, 1, 0, 2]))
    assert taken.ragged["labels"].values.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert taken.ragged["labels"].ends.tolist() == taken.ragged["boxes"].ends.tolist() == [3, 3, 5, 8]
    assert taken.ragged["boxes"].values[:, 0].tolist() == [8, 12, 16, 0, 4, 8, 12, 16]
    assert len(taken.take(np.array([], np.int64)).ragged["labels"].values) == 0


def test_sources_with_instances_are_joined(tmp_path: Path) -> None:
    a = with_instances(source_of(tmp_path, 3, "a.txt"), [1, 0, 2])
    b = with_instances(source_of(tmp_path, 2, "b.txt"), [0, 2])
    both = sp.Concat(a, b, a)
    check_source(both)
    found = both.open().locate(np.array([4, 7, 0, 1, 2])).ragged["labels"]
    assert found.values.tolist() == [0, 7, 7, 14, 0, 7, 14]
    assert found.ends.tolist() == [2, 4, 5, 5, 7]


def test_sources_that_differ_in_instances_are_not_joined(tmp_path: Path) -> None:
    a = with_instances(source_of(tmp_path, 3, "a.txt"), [1, 0, 2])
    with pytest.raises(sp.PlanError, match="it has no field 'boxes'"):
        sp.Concat(a, source_of(tmp_path, 3, "b.txt")).open()
    c = source_of(tmp_path, 3, "c.txt")
    values = columns_of([1, 0, 2]) | {"boxes": np.zeros((3, 4))}
    assert isinstance(c.index, str)
    build_shared(c.subject(), c.index.encode(), adding([1, 0, 2], values))
    with pytest.raises(sp.PlanError, match=r"field 'boxes' is \(M, 4\) float64, not \(M, 4\) float32"):
        sp.Concat(a, c).open()
