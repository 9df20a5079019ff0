from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import standpipe as sp
from photos import encoded, picture
from standpipe.contracts import check_source
from standpipe.contracts.source import Files
from standpipe.spec import Listed
from texts import check_texts

pa = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("datasets")

ROWS = 60
IMAGES = [encoded(picture(n, 20 + n % 7, 30)) for n in range(ROWS)]
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


def features(**more: Any) -> Any:
    label = datasets.ClassLabel(names=["cat", "dog", "cow"])
    return datasets.Features({"image": datasets.Image(), "label": label, **more})


def stored(folder: Path, columns: dict[str, Any] | None = None, *, kinds: Any = None, files: int = 3) -> Any:
    """A data set in mapped files: images, labels, and further columns."""
    values = {
        "image": [{"bytes": data, "path": f"{n}.jpg"} for n, data in enumerate(IMAGES)],
        "label": [n % 3 for n in range(ROWS)],
    }
    made = datasets.Dataset.from_dict(values | (columns or {}), features=kinds or features())
    made.save_to_disk(folder, num_shards=files)
    return datasets.load_from_disk(folder)


def written(path: Path, table: Any, *, stream: bool = False, rows: int = 7, **options: Any) -> Path:
    """An Arrow file or stream of a table, in record batches of ``rows`` rows."""
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with (
        pa.OSFile(str(path), "wb") as file,
        make(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table, max_chunksize=rows)
    return path


def read(files: Files) -> list[bytes]:
    found = []
    for row in range(len(files.offset)):
        data = Path(files.paths[row].decode()).read_bytes()[files.offset[row] :]
        found.append(data if files.length[row] < 0 else data[: files.length[row]])
    return found


def images_of(source: Any, field: str = "image") -> list[bytes]:
    opened = source.open()
    return read(opened.locate(np.arange(opened.num_records)).files[field])


def as_stored(dataset: Any) -> list[bytes]:
    return [row["bytes"] for row in dataset.cast_column("image", datasets.Image(decode=False))["image"]]


VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda dataset: dataset,
    "select": lambda dataset: dataset.select([5, 3, 3, 59, 0]),
    "range": lambda dataset: dataset.select(range(13, 47)),
    "slice of a selection": lambda dataset: dataset.select([9, 8, 7, 55, 5]).select(range(1, 4)),
    "shuffle": lambda dataset: dataset.shuffle(seed=1),
    "filter": lambda dataset: dataset.filter(lambda label: label == 2, input_columns="label"),
    "split": lambda dataset: dataset.train_test_split(0.3, seed=2)["test"],
    "concatenation": lambda dataset: datasets.concatenate_datasets(
        [dataset.select(range(20, 30)), dataset.shuffle(seed=3), dataset]
    ),
    "shard": lambda dataset: dataset.shard(3, 1),
    "skip": lambda dataset: dataset.skip(4),
    "format": lambda dataset: dataset.with_format("numpy"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_dataset_is_read_in_place(view: str, tmp_path: Path) -> None:
    dataset = VIEWS[view](stored(tmp_path))
    source = sp.HuggingFace(dataset)
    opened = source.open()
    records = opened.locate(np.arange(len(dataset)))
    assert read(records.files["image"]) == as_stored(dataset.with_format(None))
    assert records.plain["label"].tolist() == dataset.with_format(None)["label"][:]
    assert opened.column("label", 1, 3).tolist() == dataset.with_format(None)["label"][1:3]
    assert opened.classes == ("cat", "dog", "cow")
    check_source(source)


def test_random_reads_are_the_rows_of_the_dataset(tmp_path: Path) -> None:
    dataset = stored(tmp_path).shuffle(seed=5)
    numbers = np.random.default_rng(0).integers(0, ROWS, 1000)
    found = read(sp.HuggingFace(dataset).open().locate(numbers).files["image"])
    rows = as_stored(dataset)
    assert found == [rows[number] for number in numbers]


def test_batches_are_those_of_loose_files(tmp_path: Path) -> None:
    """After the data set's shuffle and select are undone."""
    lines = []
    for number, data in enumerate(IMAGES):
        (tmp_path / f"{number}.jpg").write_bytes(data)
        lines.append(f"{number}.jpg\t{number % 3}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    order = np.random.default_rng(1).permutation(ROWS)
    dataset = stored(tmp_path / "set").select(order).select(np.argsort(order))
    digests = set()
    for source in (sp.FileList(tmp_path / "list.txt"), sp.HuggingFace(dataset)):
        pipeline = sp.Pipeline(source).shuffle(seed=7).map(sp.RandomResizedCrop(16), sp.Normalize()).batch(8)
        digests.add(sp.digest_epoch(pipeline, num_workers=2).sha256)
    assert len(digests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), STRUCT, pa.dictionary(pa.int8(), pa.binary())]
)
def test_images_of_every_type_in_arrow_files(kind: Any, stream: bool, tmp_path: Path) -> None:
    values: list[Any] = IMAGES
    if kind == STRUCT:
        values = [{"bytes": data, "path": None} for data in IMAGES]
    column = (
        pa.array(values, pa.binary()).dictionary_encode()
        if pa.types.is_dictionary(kind)
        else pa.array(values, kind)
    )
    table = pa.table({"photo": column, "label": pa.array(range(ROWS), pa.int16())})
    written(tmp_path / "1.arrow", table.slice(0, 25), stream=stream, unify_dictionaries=True)
    written(tmp_path / "2.arrow", table.slice(25), stream=stream, unify_dictionaries=True)
    source = sp.Arrow(tmp_path / "*.arrow", image="photo")
    assert images_of(source) == IMAGES
    assert source.open().locate(np.array([59, 3])).plain["label"].tolist() == [59, 3]
    check_source(source)


def test_columns_of_numbers(tmp_path: Path) -> None:
    columns = {
        "weight": pa.array(np.linspace(0, 1, ROWS), pa.float32()),
        "half": pa.array(np.arange(ROWS).astype(np.float16)),
        "flag": pa.array([n % 5 == 0 for n in range(ROWS)]),
        "kind": pa.array([10 * (n % 4) for n in range(ROWS)]).dictionary_encode(),
        "big": pa.array([2**63 + n for n in range(ROWS)], pa.uint64()),
    }
    gaps = {
        "gap": pa.array([*range(1, ROWS), None]),
        "time": pa.array([1] * ROWS, pa.timestamp("s")),
    }
    table = pa.table({"image": IMAGES, **columns, **gaps})
    source = sp.Arrow(written(tmp_path / "a.arrow", table.slice(3)))
    opened, rows = source.open(), np.array([40, 0, 9, 9])
    found = opened.locate(rows).plain
    assert sorted(found) == sorted(columns)
    for name, values in found.items():
        assert values.tolist() == [table[name][int(row) + 3].as_py() for row in rows], name
    assert sorted(opened.columns) == ["big", "flag", "half", "kind", "weight"]
    assert "gap (int64 with nulls), time (timestamp[s])" in opened.index_note
    check_source(source)


TEXTS = ["", "a\0b", "漢字 😀", None, "é" * 300, *(f"text {n % 9}" for n in range(5, ROWS))]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_every_type_in_arrow_files(kind: Any, stream: bool, tmp_path: Path) -> None:
    """Texts in several files and record batches, of a slice; a null is an empty text."""
    column = pa.array(TEXTS, pa.string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    none = pa.array([None] * ROWS, pa.string())
    table = pa.table({"image": IMAGES, "caption": column, "label": column, "none": none, "valid": column})
    written(tmp_path / "1.arrow", table.slice(2, 25), stream=stream, unify_dictionaries=True)
    written(tmp_path / "2.arrow", table.slice(27), stream=stream, unify_dictionaries=True)
    source = sp.Arrow(tmp_path / "*.arrow")
    check_source(source)
    opened, rows = source.open(), np.random.default_rng(0).integers(0, ROWS - 2, 100)
    texts = opened.locate(rows).texts
    for name in ("caption", "label"):
        assert texts[name].texts() == [TEXTS[row + 2] or "" for row in rows]
    assert texts["none"].texts() == [""] * 100
    mean = sum(len((text or "").encode()) for text in TEXTS[2:]) / (ROWS - 2)
    assert opened.fields["caption"] == Listed("str")
    assert opened.fields["caption"].nbytes == pytest.approx(mean, rel=0.1)  # type: ignore[union-attr]
    assert "columns left out: valid (its name stands for another field)" in opened.index_note


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=9), min_size=1, max_size=20), st.data())
def test_any_texts_come_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], data: st.DataObject
) -> None:
    table = pa.table({"image": [b"x"] * len(texts), "text": pa.array(texts, pa.string())})
    path = written(tmp_path_factory.mktemp("any") / "a.arrow", table, rows=data.draw(st.integers(1, 5)))
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=30))
    found = sp.Arrow(path).open().locate(np.array(rows, np.int64)).texts["text"].texts()
    assert found == [texts[row] or "" for row in rows]


def captioned(folder: Path) -> Any:
    kinds = features(caption=datasets.Value("string"))
    return stored(folder, {"caption": TEXTS}, kinds=kinds)


def test_texts_of_a_dataset_are_lists_of_its_batches(tmp_path: Path) -> None:
    dataset = captioned(tmp_path).shuffle(seed=3)
    captions = [text or "" for text in dataset["caption"]]
    pipeline = sp.Pipeline(sp.HuggingFace(dataset)).shuffle(seed=7).map(sp.RandomResizedCrop(8)).batch(7)
    check_texts(pipeline, "caption", captions)


def test_the_digest_is_of_texts_too(tmp_path: Path) -> None:
    dataset = captioned(tmp_path)
    added = [dataset.add_column("more", [text] * ROWS) for text in ("a", "b")]
    without = dataset.remove_columns("caption")
    sources = [sp.HuggingFace(each).open() for each in (dataset, without, *added)]
    assert len({source.digest for source in sources}) == 4
    assert sources[3].locate(np.array([5, 1])).texts["more"].texts() == ["b", "b"]
    order = np.random.default_rng(1).permutation(ROWS)
    assert sp.HuggingFace(dataset.select(range(5))).open().digest == (
        sp.HuggingFace(dataset.select(order).select(np.argsort(order)[:5])).open().digest
    )


def test_a_null_image_is_a_bad_sample_and_a_path_is_read(tmp_path: Path) -> None:
    (tmp_path / "alone.jpg").write_bytes(IMAGES[5])
    rows = [
        {"bytes": IMAGES[0], "path": "0.jpg"},
        None,
        {"bytes": None, "path": str(tmp_path / "alone.jpg")},
        {"bytes": None, "path": None},
        {"bytes": IMAGES[4], "path": None},
    ]
    table = pa.table({"image": pa.array(rows, STRUCT), "label": [0] * 5})
    table = table.cast(features().arrow_schema)
    source = sp.HuggingFace(
        datasets.Dataset.from_file(str(written(tmp_path / "a.arrow", table, stream=True, rows=2)))
    )
    assert images_of(source) == [IMAGES[0], b"", IMAGES[5], b"", IMAGES[4]]
    assert "from 1 mapped file and files of their own" in source.open().index_note
    check_source(source)
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(5)
    with pipeline.loader(num_workers=1) as loader, pytest.raises(sp.DecodeError, match=r"arrow.*null"):
        loader.peek()
    with pipeline.on_error(sp.Replace(at_most=0.5)).loader(num_workers=1) as loader:
        assert [len(batch["image"]) for batch in loader] == [5]
        assert {bad.index for bad in loader.bad_samples} >= {1, 3}


def test_several_images_and_another_name(tmp_path: Path) -> None:
    kinds = datasets.Features(
        {"left": datasets.Image(), "depth": datasets.Image(), "image": datasets.Value("int64")}
    )
    columns = {
        name: [{"bytes": data, "path": None} for data in IMAGES[::step]]
        for name, step in (("left", 1), ("depth", -1))
    }
    made = datasets.Dataset.from_dict({**columns, "image": [*range(ROWS)]}, features=kinds)
    made.save_to_disk(tmp_path)
    source = sp.HuggingFace(datasets.load_from_disk(tmp_path), image="left")
    opened = source.open()
    assert sorted(opened.fields) == ["depth", "image"]
    assert images_of(source) == IMAGES
    assert images_of(source, "depth") == IMAGES[::-1]
    assert "image (its name stands for another field)" in opened.index_note


def turned(number: int) -> bytes:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(number, 24, 36)).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("in_place", [True, False])
def test_photos_are_turned_as_by_datasets(in_place: bool, tmp_path: Path) -> None:
    columns = {"image": [{"bytes": turned(n), "path": None} for n in range(4)], "label": [0] * 4}
    dataset = stored(tmp_path, columns, files=1)
    if not in_place:
        dataset = datasets.Dataset.from_dict(columns, features=features())
    plain = sp.Pipeline(sp.HuggingFace(dataset)).map(sp.CenterCrop((30, 20))).batch(4)
    assert not in_place or "EXIF orientation applied" in plain.plan().explain()
    again = plain.decode(allow_truncated=True)
    both = sp.Pipeline(sp.Concat(sp.HuggingFace(dataset), sp.HuggingFace(dataset)))
    mixed = sp.Pipeline(
        sp.Mixture({sp.Pipeline(sp.HuggingFace(dataset)): 1, sp.Pipeline(sp.HuggingFace(dataset)): 1})
    )
    assert all(each.decoding.upright for each in (plain, again, both, mixed))
    assert not plain.decode(orientation="ignore").decoding.upright
    with plain.loader(num_workers=1) as loader:
        for row, pixels in zip(dataset, loader.peek()["image"], strict=True):
            assert np.array_equal(pixels, np.asarray(row["image"])[3:33, 2:22])


def test_what_isnt_in_mapped_files_goes_the_way_of_a_map_source(tmp_path: Path) -> None:
    dataset = stored(tmp_path)
    columns = {
        "image": [{"bytes": data, "path": None} for data in IMAGES],
        "label": [n % 3 for n in range(ROWS)],
    }
    held = datasets.Dataset.from_dict(columns, features=features())
    both = datasets.concatenate_datasets([dataset, held])
    changed = dataset.with_transform(
        lambda rows: {"image": [np.zeros((8, 8, 3), np.uint8)] * len(rows["image"])}
    )
    batches = []
    for source, why in (
        (held, "image isn't in mapped files"),
        (both, "image isn't in mapped files"),
        (changed, "a transform of its own"),
    ):
        pipeline = sp.Pipeline(sp.HuggingFace(source)).map(sp.CenterCrop(8)).batch(ROWS)
        assert why in " ".join(pipeline.plan().explain().split())
        with pipeline.loader(executor="thread", num_workers=1) as loader:
            batches.append(loader.peek()["image"].copy())
    with sp.Pipeline(sp.HuggingFace(dataset)).map(sp.CenterCrop(8)).batch(ROWS).loader() as loader:
        wanted = loader.peek()["image"]
        assert np.array_equal(batches[0], wanted)
        assert np.array_equal(batches[1], wanted)
    assert not batches[2].any()


def test_a_map_source_of_a_dataset_in_files_points_here(tmp_path: Path) -> None:
    dataset = stored(tmp_path)
    for source, told in ((dataset, True), (IMAGES, False), (dataset.to_list(), False)):
        explained = sp.Pipeline(sp.MapSource(source)).batch(4).plan().explain()
        assert ("sp.HuggingFace(dataset)" in explained) == told


def test_digests_follow_records_and_their_order_but_not_the_folder(tmp_path: Path) -> None:
    dataset = stored(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = datasets.load_from_disk(tmp_path / "there")
    order = np.random.default_rng(1).permutation(ROWS)

    def digest(dataset: Any) -> str:
        return str(sp.HuggingFace(dataset).open().digest)

    same = {digest(each) for each in (moved, moved.select(order).select(np.argsort(order)))}
    assert len(same) == 1
    others = [moved.shuffle(seed=1), moved.select(range(59)), moved.remove_columns("label")]
    assert len(same | {digest(each) for each in others}) == 4
    del dataset


def test_a_changed_file_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", pa.table({"image": IMAGES}))
    pipeline = sp.Pipeline(sp.Arrow(path)).map(sp.CenterCrop(8)).batch(4)
    with pipeline.loader(num_workers=1) as loader:
        with path.open("ab") as file:
            file.write(b"more")
        with pytest.raises(sp.ReadError, match=r"a\.arrow"):
            loader.peek()


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "compressed": (
        lambda folder: sp.Arrow(written(folder / "a", pa.table({"image": IMAGES}), compression="zstd")),
        "compressed. Write the files again without",
    ),
    "no images": (
        lambda folder: sp.Arrow(written(folder / "a", pa.table({"image": [1], "photo": [b"x"]}))),
        r"needs a column of encoded images.*'image' \(int64\), 'photo' \(binary\)",
    ),
    "no file": (lambda folder: sp.Arrow(folder / "no"), "no such file|No such file"),
    "no paths": (lambda folder: sp.Arrow(5), "or a list of paths, got 5"),  # type: ignore[arg-type]
    "no fit": (lambda folder: sp.Arrow(folder / "*.no"), "Arrow: no file fits"),
    "not Arrow": (lambda folder: sp.Arrow(Path(__file__)), "can't be read as an Arrow file or stream"),
    "other columns": (
        lambda folder: sp.Arrow(
            [
                written(folder / "a", pa.table({"image": IMAGES})),
                written(folder / "b", pa.table({"photo": IMAGES})),
            ]
        ),
        "the files differ in their columns",
    ),
    "not UTF-8": (
        lambda folder: sp.Arrow(
            written(folder / "a", pa.table({"image": [b"x"], "text": pa.array([b"\xff"]).view(pa.string())}))
        ),
        "a is damaged: .*UTF8",
    ),
    "no rows": (
        lambda folder: sp.Arrow(written(folder / "a", pa.table({"image": IMAGES[:0]}))),
        "no records",
    ),
    "no dataset": (lambda folder: sp.HuggingFace([1, 2]), "needs a datasets.Dataset.*MapSource"),
    "stream": (lambda folder: sp.HuggingFace(stored(folder).to_iterable_dataset()), "IterableSource"),
    "splits": (lambda folder: sp.HuggingFace(stored(folder).train_test_split(0.5)), r"dataset\['train'\]"),
    "nothing": (lambda folder: sp.HuggingFace(stored(folder).select([])), "no records"),
    "no such column": (lambda folder: sp.HuggingFace(stored(folder), image="img"), "image='img' isn't one"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_refused(refused: str, tmp_path: Path) -> None:
    make, message = REFUSED[refused]
    with pytest.raises(sp.PlanError, match=f"(?s){message}"):
        make(tmp_path).open()


def test_damaged_files_give_no_bytes_of_others(tmp_path: Path) -> None:
    """Offsets and sizes at random places: an error, or images within the file."""
    numbers = pa.array([n % 4 for n in range(ROWS)]).dictionary_encode()
    path = written(
        tmp_path / "a.arrow", pa.table({"image": pa.array(IMAGES).dictionary_encode(), "label": numbers})
    )
    whole = path.read_bytes()
    draw = np.random.default_rng(3)
    opened, refused = 0, set()
    for _ in range(400):
        damaged = bytearray(whole)
        for place in draw.integers(0, len(whole), 4):
            damaged[place] = draw.integers(256)
        path.write_bytes(damaged)
        try:
            source = sp.Arrow(path).open()
        except sp.PlanError as error:
            refused.add("is damaged" in str(error))
            continue
        files = source.locate(np.arange(ROWS)).files["image"]
        opened += 1
        assert np.all((files.offset >= 0) & (files.length >= 0) & (files.offset + files.length <= len(whole)))
    assert opened > 0
    assert refused == {True, False}


BOXES = [[[1, 2, 10, 12]] * (n % 4) for n in range(ROWS)]
OBJECTS = [
    {"bbox": boxes, "category": [n % 2] * len(boxes), "area": [n] * len(boxes), "note": ["x"] * len(boxes)}
    for n, boxes in enumerate(BOXES)
]


@pytest.mark.parametrize("listed", [False, True])
def test_objects_are_instances(listed: bool, tmp_path: Path) -> None:
    """Objects are a struct of lists, or a list of structs."""
    kind = {
        "bbox": datasets.List(datasets.Value("float32"), length=4),
        "category": datasets.ClassLabel(names=["wheel", "door"]),
        "area": datasets.Value("int64"),
        "note": datasets.Value("string"),
    }
    each: Any = [kind] if listed else {name: datasets.List(part) for name, part in kind.items()}
    objects: list[Any] = OBJECTS
    if listed:
        objects = [
            [dict(zip(one, row, strict=True)) for row in zip(*one.values(), strict=True)] for one in OBJECTS
        ]
    side = datasets.Value("int32")
    kinds = datasets.Features({"image": datasets.Image(), "width": side, "height": side, "objects": each})
    sizes = {"width": [30] * ROWS, "height": [20 + n % 7 for n in range(ROWS)]}
    columns = {"image": [{"bytes": data, "path": None} for data in IMAGES], **sizes, "objects": objects}
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(tmp_path, num_shards=2)
    dataset = datasets.load_from_disk(tmp_path).select([7, 5, 4, 3, 3])
    source = sp.HuggingFace(dataset, instances="objects")
    check_source(source)
    opened = source.open()
    records = opened.locate(np.array([3, 0, 2]))
    assert records.ragged["boxes"].ends.tolist() == [3, 6, 6]
    assert records.ragged["boxes"].values.tolist() == [[1, 2, 11, 14]] * 6
    assert records.ragged["labels"].values.tolist() == [1] * 6
    assert records.ragged["area"].values.tolist() == [3] * 3 + [7] * 3
    assert records.sizes is not None
    assert records.sizes.tolist() == [[23, 30], [20, 30], [24, 30]]
    assert (opened.most_instances, opened.num_instances, opened.classes) == (3, 10, ("wheel", "door"))
    with sp.Pipeline(source).map(sp.Resize((16, 16))).batch(5).loader(num_workers=1) as loader:
        assert len(loader.peek()["boxes"]) == 10
    for wrong, options, message in (
        (dataset.remove_columns("height"), {}, "no columns of numbers 'height' and 'width'.*MapSource"),
        (dataset, {"instances": "width"}, "must have a list of boxes"),
        (dataset, {"instances": "things"}, "no column 'things'"),
        (
            dataset,
            {"box_format": "xyxy", "invalid": "error", "normalized": True},
            "faults, first box outside",
        ),
        (dataset, {"invalid": "no"}, "invalid must be"),
    ):
        with pytest.raises(sp.PlanError, match=f"(?s){message}"):
            sp.HuggingFace(wrong, **{"instances": "objects", **options}).open()  # type: ignore[arg-type]
    dropped = sp.HuggingFace(
        dataset, instances="objects", box_format="xyxy", normalized=True, invalid="drop"
    ).open()
    assert dropped.num_instances == 0
    assert "10 × box outside its image" in dropped.index_note


@pytest.mark.parametrize("nested", [False, True])
def test_keypoints_of_objects(nested: bool, tmp_path: Path) -> None:
    points: Any = [[1.0, 2, 2], [9, 12, 1]] if nested else [1.0, 2, 2, 9, 12, 1]
    one = {"bbox": [[1.0, 2, 10, 12]] * 2, "category": [1, 2], "keypoints": [points] * 2}
    objects = [one if n % 2 else {name: [] for name in one} for n in range(ROWS)]
    sizes = {"width": [30] * ROWS, "height": [20 + n % 7 for n in range(ROWS)]}
    number, side = datasets.Value("float64"), datasets.Value("int32")
    lists = {"bbox": [[number]], "category": [side], "keypoints": [[[number]]] if nested else [[number]]}
    kinds = features(width=side, height=side, objects=lists)
    dataset = stored(tmp_path, {**sizes, "objects": objects}, kinds=kinds)
    source = sp.HuggingFace(dataset, instances="objects")
    check_source(source)
    found = source.open().locate(np.array([0, 3])).ragged["keypoints"]
    assert found.values.tolist() == [[[1, 2, 2], [9, 12, 1]]] * 2
    assert found.values.dtype == np.float32
    wrong = {**lists, "keypoints": [side]}
    objects = [{"bbox": [[1.0, 2, 10, 12]], "category": [1], "keypoints": [5]}] * ROWS
    dataset = stored(
        tmp_path / "wrong",
        {**sizes, "objects": objects},
        kinds=features(width=side, height=side, objects=wrong),
    )
    with pytest.raises(
        sp.PlanError, match="each object's 'keypoints' must be x, y and visibility of each point"
    ):
        sp.HuggingFace(dataset, instances="objects").open()
