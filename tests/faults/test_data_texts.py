"""Bad lines of the texts that are read: lists of files, and of records to leave out. Each error has its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from forked import output

DEEP = b"[" * 100_000

LINES = {
    "NaN": (b"NaN", "doesn't name a record"),
    "infinity": (b'{"index": Infinity}', "doesn't name a record"),
    "huge int": (b"9" * 400, "doesn't name a record"),
    "int of 10,000 digits": (b"9" * 10_000, "isn't JSON"),
    "depth of 100,000": (DEEP, "isn't JSON"),
    "invalid UTF-8": (b'{"index": 1, "path": "\xff"}', "isn't JSON"),
    "embedded NUL": (b'{"index": 1, "path": "a\0b"}', "isn't JSON"),
    "unclosed quote": (b'{"index": 1, "path": "a', "isn't JSON"),
    "no end of a line": (b'"' + b"a" * (2 << 20), "is longer than 1,048,576 bytes"),
}


def rows() -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(8)))


@pytest.mark.parametrize(("line", "says"), LINES.values(), ids=LINES.keys())
def test_json_with_nan_huge_int_depth_invalid_utf8_nul_or_unclosed_quote(
    tmp_path: Path, line: bytes, says: str
) -> None:
    """Of a list of records, which is JSON a line: the error names file and line."""
    listed = tmp_path / "bad.jsonl"
    listed.write_bytes(b'{"index": 3}\n\n' + line + b'\n{"index": 4}\n')
    with pytest.raises(sp.PlanError) as caught:
        rows().exclude(listed).batch(1).plan()
    assert str(caught.value).startswith(f"exclude('{listed}'): line 3 {says}")


def test_json_with_a_byte_order_mark(tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    listed.write_bytes(b'\xef\xbb\xbf{"index": 3}\n4\n')
    assert rows().exclude(listed).batch(1).plan().rows_per_epoch == 6


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    """A gigabyte of one JSON line, or one line of a list of files, is refused within a few megabytes."""
    for name in ("bad.jsonl", "files.txt"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"a")
            file.truncate(1 << 30)
    text = output(f"""
from programs import peaks
pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8)))
refused = [pipeline.exclude({str(tmp_path / "bad.jsonl")!r}), sp.Pipeline(sp.FileList({str(tmp_path / "files.txt")!r}))]
before = peaks()["VmHWM"]
for each in refused:
    try:
        each.map(*([sp.CenterCrop(4)] if each is refused[1] else [])).batch(1).plan()
    except sp.PlanError as error:
        print(error)
print(peaks()["VmHWM"] - before)
""")
    *errors, grown_mib = text.splitlines()
    assert len(errors) == 2
    assert "line 1 is longer than" in errors[0]
    assert "files.txt:1: the line" in errors[1]
    assert int(grown_mib) < 64


FILES = {
    "huge int": (b"a.jpg 99999999999999999999", "outside int64"),
    "embedded NUL": (b"a\0.jpg 1", "NUL"),
    "path of 70,000 bytes": (b"a" * 70_000 + b" 1", "65,535"),
}


@pytest.mark.parametrize(("line", "says"), FILES.values(), ids=FILES.keys())
def test_list_with_huge_int_nul_or_a_path_too_long(tmp_path: Path, line: bytes, says: str) -> None:
    """Of a list of files likewise."""
    listed = tmp_path / "files.txt"
    listed.write_bytes(b"b.jpg 1\n\n" + line + b"\nc.jpg 2\n")
    with pytest.raises(sp.PlanError) as caught:
        sp.FileList(listed).open()
    assert str(caught.value).startswith(f"{listed}:3: the line ")
    assert says in str(caught.value)


def test_list_with_byte_order_mark_invalid_utf8_nan_and_quotes(tmp_path: Path) -> None:
    """A path may have any bytes but a line's end and NUL; what isn't an integer is a class's name."""
    listed = tmp_path / "files.txt"
    listed.write_bytes(b'\xef\xbb\xbf\xff.jpg NaN\n"b.jpg cat\n')
    opened = sp.FileList(listed).open()
    paths = opened.locate(np.arange(2)).files["image"].paths
    assert [paths[row].rpartition(b"/")[2] for row in range(2)] == [b"\xff.jpg", b'"b.jpg']
    assert opened.classes == ("NaN", "cat")
