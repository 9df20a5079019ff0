"""A run over every source of encoded images: the same rows in the same order as from a list of the same files.

A new source of images joins ``SOURCES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture, write_list
from preloaded import SERVER
from record_files import example, mds, tfrecord
from standpipe.contracts import Source
from tars import shard

COUNT, BAD = 24, 13
MEMORY = "256MiB"

Row = tuple[int, int, bytes]  # record, label, pixels


def as_list(folder: Path, images: Sequence[bytes]) -> Source:
    return write_list(folder, images)


def as_folder(folder: Path, images: Sequence[bytes]) -> Source:
    """A class for every image, so that labels are the records' numbers."""
    for number, image in enumerate(images):
        path = folder / f"root/{number:03}/image.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(image)
    return sp.ImageFolder(folder / "root")


def as_shards(folder: Path, images: Sequence[bytes]) -> Source:
    """Three shards, one of them with a single record."""
    for number, part in enumerate((range(11), range(11, 12), range(12, len(images)))):
        members = [(f"{n:03}.{kind}", data) for n in part for kind, data in parts_of(n, images[n])]
        shard(folder / f"{number}.tar", members)
    return sp.TarShards(folder / "{0..2}.tar")


def parts_of(number: int, image: bytes) -> Iterator[tuple[str, bytes]]:
    yield "cls", b"%d" % number
    yield "jpg", image


def as_tf_records(folder: Path, images: Sequence[bytes]) -> Source:
    for number, part in enumerate((range(11), range(11, 12), range(12, len(images)))):
        records = [example({"n": [n], "i": images[n]}) for n in part]
        tfrecord(folder / f"{number}.tfrecord", records)
    return sp.TFRecords(folder / "*.tfrecord", image="i", label="n")


def as_mds(folder: Path, images: Sequence[bytes]) -> Source:
    samples = [{"x": image, "y": number} for number, image in enumerate(images)]
    return sp.MDS(mds(folder / "mds", {"x": "jpeg", "y": "int"}, samples, per_shard=7), image="x", label="y")


def as_dataset(folder: Path, images: Sequence[bytes]) -> Source:
    """A Python dataset of encoded images."""
    samples = [{"image": image, "label": number} for number, image in enumerate(images)]
    return sp.MapSource(samples, columns={"label": np.arange(len(images))}, encoded="image")


def as_arrow(folder: Path, images: Sequence[bytes]) -> Source:
    """A stream of record batches of five rows."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"image": images, "label": range(len(images))})
    with pa.OSFile(str(folder / "a"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return sp.Arrow(folder / "a")


def as_hugging_face(folder: Path, images: Sequence[bytes]) -> Source:
    """A data set in two files, after a shuffle and a select that undoes it."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"image": [{"bytes": image, "path": None} for image in images], "label": [*range(len(images))]}
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(folder / "set", num_shards=2)
    shuffled = datasets.load_from_disk(folder / "set").shuffle(seed=1)
    return sp.HuggingFace(shuffled.select(np.argsort(shuffled["label"][:])))


SOURCES: dict[str, Callable[[Path, Sequence[bytes]], Source]] = {
    "folder": as_folder,
    "shards": as_shards,
    "tf_records": as_tf_records,
    "mds": as_mds,
    "dataset": as_dataset,
    "arrow": as_arrow,
    "hugging_face": as_hugging_face,
}


def images(*, bad: bool = False) -> list[bytes]:
    made = [encoded(picture(seed), quality=90) for seed in range(COUNT)]
    if bad:
        made[BAD] = made[BAD][:300]
    return made


@pytest.fixture(scope="module", params=SOURCES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, Source]:
    """A list, and another source of the same images."""
    folder = tmp_path_factory.mktemp(request.param)
    return as_list(folder, images()), SOURCES[request.param](folder, images())


@pytest.fixture(scope="module", params=SOURCES)
def with_a_bad_one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return SOURCES[request.param](tmp_path_factory.mktemp(request.param), images(bad=True))


def negative(image: Any) -> Any:
    return 255 - image


TRAIN = (sp.RandomResizedCrop(12), sp.RandomHorizontalFlip())


def pipeline(source: Source) -> sp.Pipeline:
    return sp.Pipeline(source).shuffle(seed=7).map(*TRAIN)


def rows_of(loader: sp.Loader) -> list[Row]:
    return [
        (index, label, image.tobytes())
        for batch in loader
        for index, label, image in zip(
            batch["index"].tolist(), batch["label"].tolist(), batch["image"], strict=True
        )
    ]


def run(described: sp.Pipeline, workers: int = 2, **options: Any) -> list[Row]:
    with described.loader(memory=MEMORY, num_workers=workers, mp_context=SERVER, **options) as loader:
        return rows_of(loader)


def test_orders_are_those_of_a_list(pair: tuple[Source, Source]) -> None:
    def described(source: Source) -> Iterator[sp.Pipeline]:
        every = sp.Pipeline(source)
        for part in (
            every,
            every.shuffle(seed=7),
            every.shuffle(seed=2, block=4, window=2),
            every.split(0.5, seed=3)[1].shuffle(seed=7),
            every.filter("label % 3 != 1").skip(2).take(9),
            every.sample(seed=1, weights=np.linspace(0.1, 1, COUNT)),
        ):
            yield part.map(*TRAIN)

    for listed, other in zip(*map(described, pair), strict=True):
        expected = run(listed.batch(5, last_batch="partial"))
        assert run(other.batch(5, last_batch="partial")) == expected
        assert all(index == label for index, label, _ in expected)


def test_workers_executors_and_batches_change_no_row(pair: tuple[Source, Source]) -> None:
    listed, other = (pipeline(source).batch(5, last_batch="partial") for source in pair)
    expected = run(listed, workers=1)
    for workers in (1, 5):
        assert run(other, workers) == expected
    assert run(other, executor="inline") == expected
    assert run(pipeline(pair[1]).batch(7, last_batch="partial")) == expected
    in_python = [
        (index, label, (255 - np.frombuffer(image, np.uint8)).tobytes()) for index, label, image in expected
    ]
    with_code = pipeline(pair[1]).map(negative, field="image").batch(5, last_batch="partial")
    for executor in ("thread", "process"):
        assert run(with_code, executor=executor) == in_python


def test_a_resumed_run_goes_on_with_other_ranks_and_workers(pair: tuple[Source, Source]) -> None:
    listed, other = (pipeline(source) for source in pair)
    expected = run(listed.batch(4))
    with other.batch(4).loader(memory=MEMORY, num_workers=1, mp_context=SERVER) as loader:
        batches = iter(loader)
        rows = [label for _ in range(2) for label in next(batches)["label"].tolist()]
        state = loader.state_dict()
    rest: list[list[int]] = []
    for rank in range(2):
        with other.batch(2).shard(rank, 2).loader(memory=MEMORY, num_workers=3, mp_context=SERVER) as loader:
            loader.load_state_dict(state)
            rest.append([label for _, label, _ in rows_of(loader)])
    for step in range(0, len(rest[0]), 2):
        rows += rest[0][step : step + 2] + rest[1][step : step + 2]
    assert rows == [label for _, label, _ in expected]


def test_a_bad_image_is_named_or_replaced(with_a_bad_one: Source) -> None:
    described = pipeline(with_a_bad_one).batch(4)
    with pytest.raises(sp.DecodeError) as error:
        run(described)
    opened = with_a_bad_one.open()
    assert (error.value.index, error.value.path) == (BAD, opened.name(BAD))
    with described.on_error(sp.Replace(at_most=1)).loader(
        memory=MEMORY, num_workers=2, mp_context=SERVER
    ) as loader:
        rows = rows_of(loader)
        (bad,) = loader.bad_samples
    assert len(rows) == COUNT
    assert BAD not in {label for _, label, _ in rows}
    assert (bad.index, bad.path) == (BAD, opened.name(BAD))
