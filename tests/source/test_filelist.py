from __future__ import annotations

import os
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.formats import SUFFIXES, is_image_name
from standpipe.source import FileList


def opened(folder: Path, content: bytes, **options: bool | str | None) -> OpenSource:
    (folder / "list.txt").write_bytes(content)
    return FileList(folder / "list.txt", root=options.pop("root", "/r"), **options).open()


def records(
    source: OpenSource, base: bytes = b"/r/"
) -> tuple[list[bytes], list[int] | None, tuple[str, ...] | None]:
    """Paths without ``base``, labels and classes."""
    found = source.locate(np.arange(source.num_records))
    paths = found.files["image"].paths
    labels = found.plain["label"].tolist() if "label" in found.plain else None
    return [paths[row].removeprefix(base) for row in range(len(paths))], labels, source.classes


def line_by_line(
    content: bytes, *, labels: bool, stays: bool
) -> tuple[list[bytes], list[int] | None, list[bytes] | None]:
    """The rules of ``FileList`` in the plainest way. Raises ``ValueError`` where a ``PlanError`` is due."""
    rows = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if len(line) > 65_535 or b"\0" in line:
            raise ValueError(line)
        line = line.removesuffix(b"\r")
        if b"\r" in line:
            raise ValueError(line)
        if not line.strip(b" \t"):
            continue
        if not labels:
            rows.append((line, None))
            continue
        if b"\t" in line:
            path, _, label = line.rpartition(b"\t")
            label = label.strip(b" ")
        elif b" " in line.rstrip(b" "):
            path, _, label = line.rstrip(b" ").rpartition(b" ")
            path = path.rstrip(b" ")
        else:
            path, label = line.rstrip(b" "), None
        if path == b"" or label == b"":
            raise ValueError(line)
        rows.append((path, label))
    if not rows:
        raise ValueError("empty")
    paths, found = [path for path, _ in rows], [label for _, label in rows]
    if stays and any(path.startswith(b"/") or b".." in path.split(b"/") for path in paths):
        raise ValueError("out of root")
    if all(label is None for label in found):
        return paths, None, None
    if any(label is None for label in found):
        raise ValueError("some without label")
    if all(re.fullmatch(rb"-?[0-9]+", label) for label in found):
        numbers = [int(label) for label in found]
        if any(not -(2**63) <= number < 2**63 for number in numbers):
            raise ValueError("too large")
        return paths, numbers, None
    if any(re.fullmatch(rb"-?[0-9]+", label) or is_image_name(label) for label in found):
        raise ValueError("mixture or path")
    classes = sorted(set(found))
    return paths, [classes.index(label) for label in found], classes


def check_like_line_by_line(folder: Path, content: bytes, *, labels: bool, stays: bool) -> None:
    """With ``root=``, in which paths have to stay, or without."""
    root, base = ("/r", b"/r/") if stays else (None, bytes(folder) + b"/")
    try:
        expected = line_by_line(content, labels=labels, stays=stays)
    except ValueError:
        with pytest.raises(PlanError):
            opened(folder, content, labels=labels, root=root)
        return
    paths, numbers, classes = records(opened(folder, content, labels=labels, root=root), base)
    assert (paths, numbers) == (expected[0], expected[1])
    assert (classes is None) == (expected[2] is None)
    assert classes is None or len(classes) == len(expected[2])


PIECES = [
    b"a.jpg",
    b"/b",
    b"..",
    b"/",
    b"\xff",
    b"7",
    b"-12",
    b"-",
    b"0",
    b"cat",
    b"golden retriever",
    b"99999999999999999999",
]
SEPARATORS = [b" ", b"\t", b"  ", b"\n", b"\r\n", b"\r", b"\n\n", b"\t ", b" \t", b"", b"\0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists")


@given(content=st.binary(max_size=200), labels=st.booleans(), stays=st.booleans())
def test_any_bytes_are_a_list_or_a_plan_error(
    folder: Path, content: bytes, labels: bool, stays: bool
) -> None:
    check_like_line_by_line(folder, content, labels=labels, stays=stays)


@given(
    content=st.lists(st.sampled_from(PIECES + SEPARATORS), max_size=30).map(b"".join),
    labels=st.booleans(),
    stays=st.booleans(),
)
def test_any_pieces_are_read_as_line_by_line(folder: Path, content: bytes, labels: bool, stays: bool) -> None:
    check_like_line_by_line(folder, content, labels=labels, stays=stays)


PATHS = st.sampled_from(
    [
        b"a.jpg",
        b"/b.jpg",
        b"c d.jpg",
        b"e\tf.jpg",
        b"\xff\xfe.jpg",
        b"x/y//z.jpg",
        b"#no",
        b"..a/b..",
        b"x/../y",
    ]
)
LINES = st.tuples(
    PATHS, st.sampled_from([b" ", b"\t", b"   ", b"\t "]), st.sampled_from([b"\n", b" \n", b"\r\n", b"\n \n"])
)
NUMBERS = st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number) | st.sampled_from(
    [b"00", b"-0", b"0" * 40 + b"5"]
)
WORDS = st.text("ab\xe9", min_size=1, max_size=20).map(lambda name: name.encode())


@given(
    lines=st.lists(LINES, min_size=1),
    labels=st.data(),
    kind=st.sampled_from([NUMBERS, WORDS]),
    stays=st.booleans(),
)
def test_well_formed_lists_are_read_as_line_by_line(
    folder: Path,
    lines: list[tuple[bytes, bytes, bytes]],
    labels: st.DataObject,
    kind: st.SearchStrategy[bytes],
    stays: bool,
) -> None:
    content = b"".join(path + gap + labels.draw(kind) + end for path, gap, end in lines)
    check_like_line_by_line(folder, content, labels=True, stays=stays)


def test_lists_larger_than_a_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    names = [b"n%08d" % name for name in rng.integers(0, 300, 60_000)]
    lines = [b"x" * int(length) + b".jpg\t" for length in rng.integers(1, 60, 60_000)]
    content = b"\n".join(line + name for line, name in zip(lines, names, strict=True))
    assert len(content) > 2 << 20
    paths, labels, classes = records(opened(tmp_path, content))
    assert paths == [line[:-1] for line in lines]
    assert [classes[label].encode() for label in labels] == names

    numbers = rng.integers(-(2**40), 2**40, 60_000).tolist()
    content = b"\r\n".join(line + b"%d" % number for line, number in zip(lines, numbers, strict=True))
    assert records(opened(tmp_path, content)) == (paths, numbers, None)


def test_paths_are_relative_to_the_list_or_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list.txt").write_bytes(b"a.jpg 0\n/x/b.jpg 1\n../c.jpg 2\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below.txt").write_bytes(b"a.jpg 0\n..x/b.. 1\n")
    beside, below = FileList("list.txt").open(), FileList("below.txt", root="sub").open()
    monkeypatch.chdir("/")
    base = os.fsencode(tmp_path)
    assert records(beside)[0] == [base + b"/a.jpg", b"/x/b.jpg", base + b"/../c.jpg"]
    assert records(below)[0] == [base + b"/sub/a.jpg", base + b"/sub/..x/b.."]
    assert below.name(0) == f"{tmp_path}/sub/a.jpg"


def test_names_are_printable(tmp_path: Path) -> None:
    source = opened(tmp_path, b"\xff\x0b.jpg\tc\xfe\nb\xc3\xa9.jpg\td\n")
    assert source.name(0) == r"/r/\xff\x0b.jpg"
    assert source.name(1) == "/r/bé.jpg"
    assert source.classes == (r"c\xfe", "d")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a.jpg\nb.jpg", ([b"a.jpg", b"b.jpg"], None, None)),
        (b"\xef\xbb\xbfa.jpg 1\r\n\r\nb.jpg 2\r\n", ([b"a.jpg", b"b.jpg"], [1, 2], None)),
        (b"a b.jpg 3 \n", ([b"a b.jpg"], [3], None)),
        (b"a 1\tb.jpg\t7\n", ([b"a 1\tb.jpg"], [7], None)),
        (b" a .jpg \t-7\n", ([b" a .jpg "], [-7], None)),
        (b"# a.jpg 5\n#b.jpg 6", ([b"# a.jpg", b"#b.jpg"], [5, 6], None)),
        (b"a.jpg\tred fox\nb.jpg\tcat", ([b"a.jpg", b"b.jpg"], [1, 0], ("cat", "red fox"))),
        (b"a.jpg 1.5\nb.jpg +2", ([b"a.jpg", b"b.jpg"], [1, 0], ("+2", "1.5"))),
        (b"a 9223372036854775807\nb -9223372036854775808", ([b"a", b"b"], [2**63 - 1, -(2**63)], None)),
        (b"a.jpg a\na.jpg a", ([b"a.jpg", b"a.jpg"], [0, 0], ("a",))),
    ],
)
def test_lines(tmp_path: Path, content: bytes, expected: object) -> None:
    assert records(opened(tmp_path, content)) == expected


def test_labels_off_takes_whole_lines(tmp_path: Path) -> None:
    source = opened(tmp_path, b"a b.jpg\n \nc\t1 \r\n", labels=False)
    assert records(source) == ([b"a b.jpg", b"c\t1 "], None, None)
    assert list(source.fields) == ["image"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "list.txt lists no files"),
        (b"\xef\xbb\xbf", "lists no files"),
        (b" \n\t\r\n", "lists no files"),
        (b"a.jpg 1\n\nb.jpg cat\n", "list.txt:3: .* has a class name, but line 1 has an integer label; all"),
        (b"\na.jpg cat\nb.jpg 1\n", "list.txt:3: .* has an integer label, but line 2 has a class name"),
        (b"a.jpg 1\nb.jpg\n", "list.txt:2: .* has no label, but line 1 has an integer .*labels=False"),
        (b"a.jpg\nb.jpg\nc d\n", "list.txt:3: .* has a class name, but line 1 has no label"),
        (b"a 1\nb 9223372036854775808", "list.txt:2: .* outside int64"),
        (b"a 1\nb -9223372036854775809", "list.txt:2: .* outside int64"),
        (b"a 1\nb 1" + b"0" * 5000, "list.txt:2: .* outside int64"),
        (b"a 1\nb\0 1\n", "list.txt:2: .* NUL"),
        ("a.jpg 1\n".encode("utf-16"), "list.txt:1: .* UTF-16"),
        (b"a.jpg\t1\nb.jpg\t\n", "list.txt:2: .* no label after its tab"),
        (b"a.jpg\t1\n\t2\n", "list.txt:2: .* no path"),
        (b"a.jpg 1\n 2\n", "list.txt:2: .* no path"),
        (b"my cat.jpg\n", "list.txt:1: .* label 'cat.jpg', which looks like a file; .*labels=False"),
        (b"a cat\nb.jpg c.PNG\n", "list.txt:2: .* looks like a file"),
        *(
            (f"my photo 1{suffix}\n".encode(), f"list.txt:1: .* label '1{suffix}', which looks like a file")
            for suffix in SUFFIXES
        ),
        (b"a 1\n" + b"x" * 65_536 + b"\n", "list.txt:2: .* longer than 65,535 bytes"),
        (b"a 1\n" + b"x" * (5 << 20), "list.txt:2: .* longer than 65,535 bytes"),
        (b"a 1\ra 2", r"list.txt:1: .* contains a CR.*convert the line ends"),
        (b"a 1\r\n\nb\rc 2\r\n", r"list.txt:3: .* contains a CR"),
        (b"a 1\nb 2\r\r\n", r"list.txt:2: .* contains a CR"),
        (b"a 1\r" * 400_000, "list.txt:1: .* contains a CR"),
        (b"a 1\r\n" * 400_000 + b"b\r2\n", "list.txt:400001: .* contains a CR"),
        (b"a 1\n" * 400_000 + b"b\n", "list.txt:400001: .* no label, but line 1"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        opened(tmp_path, content)


def test_the_longest_line(tmp_path: Path) -> None:
    assert records(opened(tmp_path, b"x" * 65_535)) == ([b"x" * 65_535], None, None)


def test_lists_that_cannot_be_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlanError, match=r"pipe, socket or device"):
        FileList(tmp_path / "pipe").open()
    with pytest.raises(PlanError, match=r"Is a directory.*ImageFolder"):
        FileList(tmp_path).open()
    with pytest.raises(PlanError, match=r"check the path"):
        FileList(tmp_path / "gone.txt").open()
    with pytest.raises(PlanError, match=r"can't read"):
        FileList(tmp_path / ("x" * 300)).open()


def test_digest_covers_paths_order_labels_and_classes_but_not_the_root(tmp_path: Path) -> None:
    def digest(content: bytes, **options: bool | str) -> str:
        return opened(tmp_path, content, **options).digest

    first = digest(b"a 1\nb 2")
    assert digest(b"\na\t1\r\nb\t02", root="/elsewhere") == first
    different = [
        b"b 2\na 1",
        b"a 1\nb 3",
        b"a 1\nc 2",
        b"a 1",
        b"a 1\nb 2\nb 2",
        b"a\nb",
        b"a x\nb y",
        b"a x\nb z",
    ]
    assert len({first, *map(digest, different)}) == len(different) + 1
    assert digest(b"a 0\nb 1") != digest(b"a x\nb y")
    assert digest(b"ab\nc", labels=False) != digest(b"a\nbc", labels=False)


def test_memory_is_a_small_index_and_a_few_chunks(tmp_path: Path) -> None:
    content = b"".join(b"folder/%08d.jpg c%d\n" % (row, row % 100) for row in range(300_000))
    tracemalloc.start()
    source = opened(tmp_path, content)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert source.index_bytes < 300_000 * (8 + 1) * 1.01 + 4096
    assert peak_bytes < 8 << 20


def test_describe() -> None:
    assert FileList("a\nb").describe() == r"FileList('a\nb')"
    assert FileList("a", root="r", labels=False).describe() == "FileList('a', root='r', labels=False)"
