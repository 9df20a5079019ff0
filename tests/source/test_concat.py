"""Sources one after another: what is numbered how, what must agree, and that batches hold what was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture
from preloaded import SERVER


def listing(folder: Path, name: str, lines: str) -> sp.FileList:
    (folder / name).write_text(lines)
    return sp.FileList(folder / name)


def test_records_are_numbered_on(tmp_path: Path) -> None:
    a = listing(tmp_path, "a.txt", "x/1.jpg\t3\nx/2.jpg\t4\n")
    b = listing(tmp_path, "b.txt", "/abs/3.jpg\t5\n")
    opened = sp.Concat(a, b, a).open()
    assert opened.num_records == 5
    records = opened.locate(np.array([4, 2, 0, 2]))
    assert records.index.tolist() == [4, 2, 0, 2]
    assert records.plain["label"].tolist() == [4, 5, 3, 5]
    root = bytes(tmp_path)
    files = records.files["image"]
    assert [files.paths[row] for row in range(4)] == [
        root + b"/x/2.jpg",
        b"/abs/3.jpg",
        root + b"/x/1.jpg",
        b"/abs/3.jpg",
    ]
    assert [opened.name(index) for index in (1, 2)] == [f"{tmp_path}/x/2.jpg", "/abs/3.jpg"]
    assert opened.column("label", 1, 4).tolist() == [4, 5, 3]
    assert opened.index_bytes == a.open().index_bytes + b.open().index_bytes


def test_the_digest_knows_parts_and_their_order(tmp_path: Path) -> None:
    a = listing(tmp_path, "a.txt", "1.jpg\t3\n")
    b = listing(tmp_path, "b.txt", "2.jpg\t3\n")
    both = listing(tmp_path, "ab.txt", "1.jpg\t3\n2.jpg\t3\n")
    digests = [
        source.open().digest for source in (sp.Concat(a, b), sp.Concat(b, a), sp.Concat(a, b, b), a, both)
    ]
    assert len(set(digests)) == 5
    assert sp.Concat(a, b).open().digest == digests[0]


def test_a_batch_mixes_the_parts(tmp_path: Path) -> None:
    sources = []
    for part in range(3):
        (tmp_path / str(part)).mkdir()
        for number in range(part + 2):
            name = f"{part}/{number}.jpg"
            (tmp_path / name).write_bytes(encoded(picture(10 * part + number), quality=90))
        lines = "".join(f"{part}/{number}.jpg\t{10 * part + number}\n" for number in range(part + 2))
        sources.append(listing(tmp_path, f"{part}.txt", lines))
    whole = listing(tmp_path, "all.txt", "".join((tmp_path / f"{part}.txt").read_text() for part in range(3)))

    def batches(source: sp.Concat | sp.FileList) -> list[tuple[bytes, ...]]:
        pipeline = (
            sp.Pipeline(source).shuffle(seed=3).map(sp.RandomResizedCrop(16)).batch(4, last_batch="pad")
        )
        with pipeline.loader(memory="64MiB", num_workers=2) as loader:
            return [tuple(batch[name].tobytes() for name in sorted(batch)) for batch in loader]

    assert batches(sp.Concat(*sources)) == batches(whole)


def test_an_error_names_the_parts_file(tmp_path: Path) -> None:
    (tmp_path / "good.jpg").write_bytes(encoded(picture(1)))
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    parts = [listing(tmp_path, f"{name}.txt", f"{name}.jpg\t0\n") for name in ("good", "bad")]
    pipeline = sp.Pipeline(sp.Concat(*parts)).map(sp.CenterCrop(8)).batch(2)
    with pipeline.loader(memory="64MiB", num_workers=1) as loader, pytest.raises(sp.DecodeError) as caught:
        next(iter(loader))
    assert (caught.value.index, caught.value.path) == (1, str(tmp_path / "bad.jpg"))


def test_the_same_arrays_twice() -> None:
    source = sp.Arrays(x=np.arange(12).reshape(4, 3))
    with sp.Pipeline(sp.Concat(source, source)).batch(8).loader(memory="64MiB", num_workers=1) as loader:
        (batch,) = loader
    assert batch["x"].tolist() == np.tile(np.arange(12).reshape(4, 3), (2, 1)).tolist()


PIXELS = np.random.default_rng(0).integers(0, 256, (9, 40, 40, 3), np.uint8)
EXTRA = np.random.default_rng(1).normal(size=(9, 5))


@pytest.mark.parametrize(
    "transforms",
    [(), (sp.RandomResizedCrop(16),), (lambda image: image[:4],)],
    ids=["copied", "native", "python"],
)
def test_rows_stay_in_their_arrays(transforms: tuple[Any, ...]) -> None:
    def batches(source: sp.Arrays | sp.Concat) -> list[tuple[bytes, ...]]:
        pipeline = sp.Pipeline(source).shuffle(seed=3)
        for transform in transforms:
            pipeline = (
                pipeline.map(transform, field="image") if callable(transform) else pipeline.map(transform)
            )
        with pipeline.batch(4, last_batch="pad").loader(
            memory="64MiB", num_workers=2, executor="thread"
        ) as loader:
            return [tuple(batch[name].tobytes() for name in sorted(batch)) for batch in loader]

    cuts = [
        sp.Arrays(image=PIXELS[a:b].copy(), extra=EXTRA[a:b].copy(), label=np.arange(a, b))
        for a, b in ((0, 2), (2, 8), (8, 9))
    ]
    whole = sp.Arrays(image=PIXELS, extra=EXTRA, label=np.arange(9))
    assert batches(sp.Concat(*cuts)) == batches(whole)
    nested = sp.Concat(sp.Concat(cuts[0], cuts[1]), cuts[2])
    assert batches(nested) == batches(whole)


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_datasets_in_python_are_joined(executor: Any) -> None:
    a, b = ([(np.full(3, value), value) for value in range(first, first + 4)] for first in (0, 10))
    concat = sp.Concat(sp.MapSource(a, fields=("x", "label")), sp.MapSource(b, fields=("x", "label")))
    with (
        sp.Pipeline(concat)
        .shuffle(seed=1)
        .batch(8)
        .loader(memory="1GiB", num_workers=2, executor=executor, mp_context=SERVER) as loader
    ):
        (batch,) = loader
    expected = [int(index) if index < 4 else int(index) + 6 for index in batch["index"]]
    assert batch["label"].tolist() == expected
    assert batch["x"].tolist() == [[value] * 3 for value in expected]


def test_columns_are_those_of_all_parts() -> None:
    a = sp.Arrays(label=np.arange(3), w=np.arange(3.0))
    b = sp.Arrays(label=np.arange(3) + 5, w=np.arange(3.0))
    pipeline = sp.Pipeline(sp.Concat(a, b)).filter("1 < label < 7 and w > 0")
    with pipeline.batch(3).loader(memory="64MiB", num_workers=1) as loader:
        (batch,) = loader
    assert batch["index"][batch["valid"]].tolist() == [2, 4]


def folder(path: Path, *classes: str) -> sp.ImageFolder:
    for name in classes:
        (path / name).mkdir(parents=True)
        (path / name / "1.jpg").touch()
    return sp.ImageFolder(path)


def test_what_does_not_fit(tmp_path: Path) -> None:
    cats = folder(tmp_path / "a", "cat", "dog")
    more = folder(tmp_path / "b", "cat", "dog", "fox")
    other = folder(tmp_path / "c", "cat", "fish")
    plain = listing(tmp_path, "n.txt", "1.jpg\t3\n")
    bare = listing(tmp_path, "m.txt", "1.jpg\n")
    x = sp.Arrays(x=np.zeros((3, 2)))
    pairs, triples = sp.MapSource([(1, 2)]), sp.MapSource([(1, 2, 3)], fields=("a", "b", "c"))
    for sources, says in (
        ((cats, more), r"ImageFolder.*b'\) differs from .*a'\): it has the class 'fox'"),
        ((more, cats), "it lacks the class 'fox'"),
        ((cats, other), "it has the class 'fish'"),
        ((cats, plain), "class names, those of the other are numbers"),
        ((plain, bare), "it has no field 'label'"),
        ((bare, plain), "it has a field 'label'"),
        ((x, sp.Arrays(x=np.zeros((3, 3)))), r"its field 'x' is \(3\) float64, not \(2\) float64"),
        ((x, pairs), "one takes samples from Python, the other doesn't"),
        ((pairs, triples), r"fields are named \('a', 'b', 'c'\), not \('image', 'label'\)"),
        ((x,), "needs at least two sources, got 1"),
        ((), "needs at least two sources, got 0"),
        ((x, sp.ImageFolder), "takes sources such as"),
        ((x, "path"), "takes sources such as"),
        ((x, np.zeros((1000, 1000))), r"(?s)takes sources such as .{1,150}$"),
    ):
        with pytest.raises(sp.PlanError, match=says):
            sp.Pipeline(sp.Concat(*sources)).batch(1).plan()  # type: ignore[arg-type]
