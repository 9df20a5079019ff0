"""Encoded images from a dataset become the same batches as the same images in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from forked import output
from photos import encoded, picture, write_list

COUNT = 23
GOOD = encoded(picture(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of images of several formats, and a file with all of them one after another."""
    folder = tmp_path_factory.mktemp("images")
    contents = [encoded(picture(seed, 50 + seed, 60), quality=90) for seed in range(COUNT)]
    contents[3] = encoded(picture(3), quality=90, progressive=True)
    contents[7] = encoded(picture(7), "PNG")
    contents[11] = encoded(picture(11), "WEBP")
    write_list(folder, contents)
    (folder / "all.bin").write_bytes(b"".join(contents))
    return folder


class Encoded:
    """Images of a folder in the form that ``give(path, offset, length)`` returns, and their labels."""

    def __init__(self, folder: Path, give: Callable[[Path, int, int], Any]) -> None:
        self.paths = sorted(folder.glob("*.jpg"))
        self.ends = np.cumsum([path.stat().st_size for path in self.paths]).tolist()
        self.give = give

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, end = self.paths[index], self.ends[index]
        size = path.stat().st_size
        return {"image": self.give(path, end - size, size), "label": index}


def data_of(path: Path, offset: int, length: int) -> bytes:
    return path.read_bytes()


FORMS: Mapping[str, Callable[[Path, int, int], Any]] = {
    "bytes": data_of,
    "bytearray": lambda path, offset, length: bytearray(path.read_bytes()),
    "memoryview": lambda path, offset, length: memoryview(b".." + path.read_bytes())[2:],
    "array": lambda path, offset, length: np.fromfile(path, np.uint8),
    "strided array": lambda path, offset, length: np.repeat(np.fromfile(path, np.uint8), 2)[::2],
    "str": lambda path, offset, length: str(path),
    "Path": lambda path, offset, length: path,
    "rest of a file": lambda path, offset, length: (str(path), 0, -1),
    "part of a file": lambda path, offset, length: (path.parent / "all.bin", offset, np.int64(length)),
    "Hugging Face": lambda path, offset, length: {"bytes": path.read_bytes(), "path": path.name},
    "Hugging Face, in a file": lambda path, offset, length: {"bytes": None, "path": str(path)},
}


def recipe(source: Any, **options: Any) -> sp.Pipeline:
    pipeline = sp.Pipeline(source).shuffle(seed=5).map(sp.RandomResizedCrop(24), sp.RandomHorizontalFlip())
    return pipeline.map(sp.Normalize()).batch(4, **options)


def batches(pipeline: sp.Pipeline, epochs: int = 2, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**{"memory": "512MiB", "num_workers": 1, **options}) as loader:
        return [
            {name: np.array(value) for name, value in batch.items()}
            for _ in range(epochs)
            for batch in loader
        ]


def check_equal(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), name


@pytest.fixture(scope="module")
def of_files(folder: Path) -> list[dict[str, Any]]:
    return batches(recipe(sp.FileList(folder / "list.txt"), last_batch="partial"))


@pytest.mark.parametrize(
    ("executor", "workers"),
    [
        ("inline", 1),
        *(("thread", number) for number in (1, 2, 5)),
        *(("process", number) for number in range(1, 6)),
    ],
)
def test_bytes_become_the_batches_of_files(
    executor: str, workers: int, folder: Path, of_files: list[dict[str, Any]]
) -> None:
    source = sp.MapSource(Encoded(folder, data_of), encoded="image")
    forkserver = {"mp_context": "forkserver"} if executor == "process" else {}
    found = batches(
        recipe(source, last_batch="partial"), executor=executor, num_workers=workers, **forkserver
    )
    check_equal(found, of_files)


@pytest.mark.parametrize("give", FORMS.values(), ids=FORMS)
def test_every_form_of_bytes(give: Any, folder: Path, of_files: list[dict[str, Any]]) -> None:
    source = sp.MapSource(Encoded(folder, give), encoded="image")
    check_equal(batches(recipe(source, last_batch="partial"), executor="inline"), of_files)


@pytest.mark.parametrize("fields", [None, "image"])
def test_a_sample_may_be_a_part_of_a_file(fields: Any, folder: Path, of_files: list[dict[str, Any]]) -> None:
    every = [(path, 0, path.stat().st_size) for path in sorted(folder.glob("*.jpg"))]
    found = batches(
        recipe(sp.MapSource(every, fields, encoded="image"), last_batch="partial"), executor="inline"
    )
    check_equal(found, [{name: batch[name] for name in ("image", "index")} for batch in of_files])
    with pytest.raises(sp.SampleError, match="a sample of 3 values; name them"):
        batches(sp.Pipeline(sp.MapSource([("text", 1, 2)])).batch(1), executor="inline")


def test_a_list_of_bytes_and_a_declared_label(folder: Path, of_files: list[dict[str, Any]]) -> None:
    every = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    structs = [{"bytes": data, "path": None} for data in every]  # Hugging Face's, as the whole sample
    for images in (every, structs):
        alone = batches(
            recipe(sp.MapSource(images, encoded="image"), last_batch="partial"), executor="thread"
        )
        check_equal(alone, [{name: batch[name] for name in ("image", "index")} for batch in of_files])
    spec = {"label": sp.ArraySpec((), np.dtype(np.int64))}
    labelled = sp.MapSource(list(zip(every, range(COUNT), strict=True)), spec=spec, encoded="image")
    pipeline = recipe(labelled, last_batch="partial")
    assert str(pipeline.plan().fields["image"]) == "(3, 24, 24) float32"
    check_equal(batches(pipeline, executor="thread"), of_files)


def test_a_run_goes_on_from_files_to_processes(folder: Path, of_files: list[dict[str, Any]]) -> None:
    pipeline = recipe(sp.MapSource(Encoded(folder, data_of), encoded="image"), last_batch="partial")
    with pipeline.loader(memory="512MiB", num_workers=1, executor="thread") as loader:
        for _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
    with pipeline.loader(memory="512MiB", num_workers=2, mp_context="forkserver") as loader:
        loader.load_state_dict(state)
        rest = [{name: np.array(value) for name, value in batch.items()} for batch in loader]
    check_equal(rest, of_files[3:6])


class OneBuffer:
    """Images that all come in one array, which the next sample overwrites; ``kinds``: bytes among them."""

    def __init__(self, folder: Path, kinds: int) -> None:
        self.images = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
        self.kinds = kinds
        self.buffer = bytearray(max(map(len, self.images)))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        data = self.images[index]
        if index % self.kinds:
            return data, index
        self.buffer[: len(data)] = data
        return memoryview(self.buffer)[: len(data)], index


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("kinds", [1, 5])
def test_a_dataset_may_use_its_memory_again(
    executor: str, kinds: int, folder: Path, of_files: list[dict[str, Any]]
) -> None:
    source = sp.MapSource(OneBuffer(folder, kinds), encoded="image")
    pipeline = recipe(source, last_batch="partial")
    check_equal(batches(pipeline, executor=executor), of_files)


def test_a_task_of_many_bytes(folder: Path, of_files: list[dict[str, Any]]) -> None:
    """Zeros behind an image change no pixel: each of these takes more than half of a worker's memory for files."""
    every = [path.read_bytes() + bytes(5 << 19) for path in sorted(folder.glob("*.jpg"))[:8]]
    (whole,) = batches(
        sp.Pipeline(sp.MapSource(every, encoded="image")).map(sp.CenterCrop(24)).batch(8),
        1,
        executor="inline",
    )
    some = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))[:8]]
    (expected,) = batches(
        sp.Pipeline(sp.MapSource(some, encoded="image")).map(sp.CenterCrop(24)).batch(8), 1, executor="inline"
    )
    check_equal([whole], [expected])


KILLED = """
class Images:
    def __init__(self):
        self.image = {image!r}

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.image, index

pipeline = sp.Pipeline(sp.MapSource(Images(), encoded="image")).map(sp.CenterCrop(24)).batch(16)
try:
    with pipeline.loader(memory="300MiB", num_workers=1, executor="process") as loader:
        for batch in loader:
            assert batch["label"].tolist() == list(range(16))
except sp.WorkerDiedError as error:
    print(error.index, error)
"""


def test_the_image_that_kills_its_worker_is_named() -> None:
    """All images of a task are decoded in one call."""
    told = output(KILLED.format(image=GOOD), environment={"STANDPIPE_FAULTS": "decode.row=kill@#21"})
    assert told.startswith("21 ")
    assert "while it made record 21 (decode + " in told


def test_python_functions_get_decoded_images(folder: Path) -> None:
    def darker(image: Any, rng: np.random.Generator) -> Any:
        return image // np.uint8(rng.integers(1, 4))

    for source in (sp.FileList(folder / "list.txt"), sp.MapSource(Encoded(folder, data_of), encoded="image")):
        first = sp.Pipeline(source).map(darker, field="image").map(sp.RandomResizedCrop(24)).batch(4)
        whole = sp.Pipeline(source).map(sp.RandomResizedCrop(24)).map(darker, field="image").batch(4)
        found = [batches(pipeline, 1, executor="thread") for pipeline in (first, whole)]
        if isinstance(source, sp.FileList):
            expected = found
    for some, others in zip(found, expected, strict=True):
        check_equal(some, others)


def test_without_transforms_images_are_decoded() -> None:
    pipeline = sp.Pipeline(sp.MapSource([GOOD, GOOD], encoded="image")).batch(2)
    (batch,) = batches(pipeline, 1, executor="thread")
    assert batch["image"].shape == (2, 40, 56, 3)


def test_bad_images_are_replaced_as_in_files(tmp_path: Path) -> None:
    contents = [encoded(picture(seed)) for seed in range(12)]
    contents[2], contents[5], contents[9] = b"", contents[5][:300], b"no image"
    files = recipe(write_list(tmp_path, contents)).on_error(sp.Replace(at_most=10))
    source = sp.MapSource(Encoded(tmp_path, FORMS["Hugging Face"]), encoded="image")
    dataset = recipe(source).on_error(sp.Replace(at_most=10))
    check_equal(batches(dataset, executor="thread"), batches(files))
    with dataset.loader(memory="512MiB", num_workers=1, executor="thread") as loader:
        list(loader)
        bad = {each.index: each.path for each in loader.bad_samples}
    assert bad == {2: "002.jpg", 5: "005.jpg", 9: "009.jpg"}


def error_of(dataset: Any, executor: str = "thread", **options: Any) -> sp.SampleError:
    pipeline = sp.Pipeline(sp.MapSource(dataset, encoded="image")).map(sp.CenterCrop(24)).batch(2)
    with (
        pytest.raises(sp.SampleError) as found,
        pipeline.loader(memory="256MiB", num_workers=1, executor=executor, **options) as loader,
    ):
        next(iter(loader))
    return found.value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "'image' is None"),
        (7, "the dataset must give the image's bytes, .* but 'image' is int"),
        ([1, 2], "but 'image' is list"),
        (Image.new("RGB", (4, 4)), "is decoded. A Hugging Face dataset gives bytes after cast_column"),
        (np.zeros((4, 4, 3), np.uint8), r"an array \(4, 4, 3\) uint8; an array of bytes is \(n,\) uint8"),
        (np.zeros(4, np.int64), r"an array \(4,\) int64"),
        ({"data": GOOD}, "but 'image' is a dict with the keys 'data'"),
        ({"bytes": None, "path": None}, "whose 'bytes' and 'path' are both empty"),
        ({"bytes": "text", "path": None}, "but 'image' is str"),
        (("a.tar", -1, 5), r"'image' is \('a.tar', -1, 5\); it must be a path, an offset from 0 on"),
        (("a.tar", 1 << 70, 5), "it must be a path, an offset from 0 on"),
        (("a.tar", 5, (1 << 63) - 1), "it must be a path, an offset from 0 on"),
        (("a.tar", 0, "5"), "it must be a path, an offset"),
        ("a\0b", "it must be a path"),
        (memoryview(np.zeros(4)), "but 'image' is memoryview"),
    ],
    ids=lambda each: each if isinstance(each, str) and "\0" not in each else type(each).__name__,
)
def test_other_values(value: Any, says: str) -> None:
    error = error_of([{"image": GOOD}, {"image": value}])
    assert re.search(says, error.reason), error.reason
    assert (error.place, error.index) == ("source", 1)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_errors_name_record_file_and_offset(executor: str, tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"." * 100)
    bad = error_of([{"image": GOOD}, {"image": (tmp_path / "shard", 40, 20)}], executor)
    assert isinstance(bad, sp.DecodeError)
    assert (bad.index, bad.path, bad.offset) == (1, str(tmp_path / "shard"), 40)
    if executor == "process":
        return
    missing = error_of([{"image": GOOD}, {"image": tmp_path / "none.jpg"}])
    assert isinstance(missing, sp.ReadError)
    assert missing.path == str(tmp_path / "none.jpg")
    cut = error_of([{"image": GOOD}, {"image": (tmp_path / "shard", 90, 20)}])
    assert isinstance(cut, sp.ReadError)
    assert "file ends after 10 of 20 bytes" in cut.reason
    named = error_of([{"image": GOOD}, {"image": {"bytes": b"x", "path": "n01.JPEG"}}])
    assert (named.place, named.path) == ("transform", "n01.JPEG")
    assert "record 1, n01.JPEG" in str(named)
    empty = error_of([{"image": GOOD}, {"image": b""}])
    assert isinstance(empty, sp.DecodeError)
    assert empty.reason == "the image has no bytes"
    lacking = error_of([{"image": GOOD}, {"picture": GOOD}])
    assert "no field 'image'" in lacking.reason
    assert "Its fields are picture" in lacking.reason


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_too_many_bytes_are_an_error_that_names_the_limit(executor: str) -> None:
    large = GOOD + bytes(9 << 20)
    error = error_of([GOOD, large], executor, large_image_memory="8MiB")
    assert isinstance(error, sp.ReadError)
    assert error.reason == f"too large: {len(large)} encoded bytes are more than large_image_memory={8 << 20}"
    pipeline = sp.Pipeline(sp.MapSource([GOOD, large], encoded="image")).map(sp.CenterCrop(24)).batch(2)
    with pipeline.loader(
        memory="256MiB", large_image_memory="16MiB", num_workers=2, executor=executor
    ) as loader:
        list(loader)
        assert loader.stats().side_peak_bytes >= len(large)


def test_the_forecast_counts_an_image_of_each_worker() -> None:
    def workers(**options: Any) -> int:
        pipeline = sp.Pipeline(sp.MapSource([GOOD], **options)).map(sp.CenterCrop(24)).batch(1)
        return pipeline.plan(memory="512MiB", num_workers=3, executor="thread").forecast.workers

    assert workers(encoded="image") == workers() + 3 * (4 << 20)


def test_a_cache_keeps_the_bytes(folder: Path, tmp_path: Path, of_files: list[dict[str, Any]]) -> None:
    cache = sp.Cache("encoded", memory="64MiB", directory=str(tmp_path))
    pipeline = (
        sp.Pipeline(sp.MapSource(Encoded(folder, data_of), encoded="image")).cache(cache).shuffle(seed=5)
    )
    pipeline = pipeline.map(sp.RandomResizedCrop(24), sp.RandomHorizontalFlip(), sp.Normalize())
    pipeline = pipeline.batch(4, last_batch="partial")
    with pipeline.loader(memory="512MiB", num_workers=1, executor="thread") as loader:
        for epoch in (0, 1):
            found = [{name: np.array(value) for name, value in batch.items()} for batch in loader]
            check_equal(found, of_files[6 * epoch : 6 * epoch + 6])
        assert loader.stats().cache_hits >= COUNT


def test_a_mixture_of_encoded_datasets(folder: Path) -> None:
    dataset = sp.Pipeline(sp.MapSource(Encoded(folder, data_of), encoded="image"))
    paths = sp.Pipeline(sp.MapSource(Encoded(folder, FORMS["str"]), encoded="image"))
    mixture = sp.Pipeline(sp.Mixture({dataset: 0.5, paths: 0.5})).map(sp.CenterCrop(24)).batch(8)
    found = batches(mixture, 1, executor="thread")
    assert {int(number) for batch in found for number in batch["source"]} == {0, 1}
    with pytest.raises(sp.PlanError, match="its field 'image' is encoded, or that of the other"):
        sp.Concat(sp.MapSource([GOOD], encoded="image"), sp.MapSource([GOOD])).open()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"encoded": ("image", "image")}, "names must be different texts, and none may be"),
        ({"encoded": True}, r"MapSource\(…, encoded=True\): names must be different texts"),
        ({"encoded": "index"}, "none may be 'index'"),
        ({"encoded": ()}, "names must be different texts"),
        (
            {"encoded": "image", "spec": {"image": sp.ArraySpec((3,), np.dtype(np.uint8))}},
            "Leave 'image' out of spec",
        ),
    ],
)
def test_arguments_that_cant_work(options: dict[str, Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.MapSource([GOOD], **options).open()


def test_bytes_without_encoded_are_explained() -> None:
    pipeline = sp.Pipeline(sp.MapSource([GOOD])).map(sp.CenterCrop(24)).batch(1)
    with pytest.raises(sp.TransformError, match=r"say MapSource\(…, encoded=.image.\)"):
        batches(pipeline, 1, executor="thread")


def test_only_files_are_checked_timed_and_packed(tmp_path: Path) -> None:
    source = sp.MapSource([GOOD], encoded="image")
    with pytest.raises(sp.PlanError, match="it has no image files"):
        sp.check_files(source)
    with pytest.raises(sp.PlanError, match="the images of this plan aren't in files"):
        sp.measure_reads(sp.Pipeline(source).map(sp.CenterCrop(24)).batch(1).plan(memory="256MiB"))
    with pytest.raises(sp.PlanError, match=r"only records of one image in a file.* can be packed"):
        sp.pack_shards(source, tmp_path / "shards")


def test_an_audit_finds_no_difference() -> None:
    pipeline = sp.Pipeline(sp.MapSource([GOOD] * 8, encoded="image")).map(sp.RandomResizedCrop(24)).batch(4)
    assert pipeline.audit(executor="thread").ok


def test_digest_and_explain_say_encoded() -> None:
    plain, of_bytes = sp.MapSource([GOOD]), sp.MapSource([GOOD], encoded="image")
    assert plain.open().digest != of_bytes.open().digest
    text = sp.Pipeline(of_bytes).map(sp.CenterCrop(24)).batch(1).plan(memory="512MiB").explain()
    assert "samples with encoded images by the dataset, in the workers" in text
    assert "decode" in text
