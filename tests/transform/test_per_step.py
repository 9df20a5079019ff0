"""Sizes that are drawn for each step: a step's rows are those of a pipeline with its size, by any workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted
from preloaded import SERVER
from standpipe.spec import AnyArray

STEP: Any = sp.PerStep([32, 96, 64])
ROWS, BATCH = 33, 4  # one row is left out of each epoch
MEMORY = "300MiB"
EXECUTORS = ["native", "thread", "inline", "process"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    pixels = np.random.default_rng(3)
    for number in range(ROWS):
        image = pixels.integers(0, 256, (40 + number, 50, 3), np.uint8)
        Image.fromarray(image).save(folder / f"{number}.jpg")
    (folder / "list.txt").write_text("".join(f"{number}.jpg\n" for number in range(ROWS)))
    return folder


class Items:
    """A dataset in Python that gives encoded images."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.paths[index].read_bytes(), index


def mirrored(image: AnyArray) -> AnyArray:
    return image[:, ::-1]


def in_files(photos: Path, size: Any) -> sp.Pipeline:
    crop = sp.RandomResizedCrop(size), sp.RandomHorizontalFlip(), sp.Normalize()
    return sp.Pipeline(sp.FileList(photos / "list.txt")).shuffle(seed=7).map(*crop)


def in_dataset(photos: Path, size: Any) -> sp.Pipeline:
    described = sp.Pipeline(sp.MapSource(Items(photos), encoded="image")).shuffle(seed=7)
    return described.map(sp.RandomResizedCrop(size), sp.Normalize())


def with_function(photos: Path, size: Any) -> sp.Pipeline:
    described = in_dataset(photos, size).map(mirrored, field="image")
    return described.map_batch(sp.MixUp(0.2, num_classes=ROWS))


def options(executor: str, workers: int = 2) -> dict[str, Any]:
    given = {} if executor == "native" else {"executor": executor}
    number = {} if executor == "inline" else {"num_workers": workers}
    return {"memory": MEMORY, "mp_context": SERVER, **given, **number}


def copied(batch: Any) -> dict[str, AnyArray]:
    return {name: np.array(value) for name, value in batch.items()}


def epochs(described: sp.Pipeline, number: int = 1, **settings: Any) -> list[list[dict[str, AnyArray]]]:
    with described.loader(**{"memory": MEMORY, **settings}) as loader:
        return [[copied(batch) for batch in loader] for _ in range(number)]


def sides(batches: Sequence[dict[str, AnyArray]]) -> list[int]:
    return [batch["image"].shape[2] for batch in batches]


def is_same(batch: dict[str, AnyArray], other: dict[str, AnyArray]) -> bool:
    return batch.keys() == other.keys() and all(np.array_equal(batch[name], other[name]) for name in batch)


@pytest.mark.parametrize(
    ("make", "executors"),
    [(in_files, EXECUTORS), (in_dataset, EXECUTORS[1:]), (with_function, EXECUTORS[1:])],
)
def test_rows_of_a_step_are_those_of_its_size(photos: Path, make: Any, executors: Sequence[str]) -> None:
    fixed = {side: epochs(make(photos, side).batch(BATCH), 2, executor="thread") for side in (32, 64, 96)}
    for executor in executors:
        made = epochs(make(photos, STEP).batch(BATCH), 2, prefetch=3, **options(executor))
        for epoch, batches in enumerate(made):
            found = sides(batches)
            assert set(found) == {32, 64, 96}
            for step, (batch, side) in enumerate(zip(batches, found, strict=True)):
                assert is_same(batch, fixed[side][epoch][step])


def test_any_workers_and_any_place_to_resume_give_one_epoch(photos: Path) -> None:
    described = in_files(photos, STEP).batch(BATCH)
    one = sp.digest_epoch(described, epoch=1, **options("native", 1)).sha256
    for executor, workers, stops in (
        ("native", 2, ()),
        ("native", 5, (1, 4)),
        ("thread", 2, (3,)),
        ("inline", 1, (2, 5)),
        ("process", 2, (6,)),
    ):
        again = sp.digest_epoch(described, epoch=1, stop_at=stops, **options(executor, workers))
        assert again.sha256 == one


def test_ranks_have_one_size_in_each_step(photos: Path) -> None:
    whole = sides(epochs(in_files(photos, STEP).batch(BATCH))[0])
    for rank in range(2):
        part = epochs(in_files(photos, STEP).batch(BATCH // 2).shard(rank, 2))[0]
        assert sides(part) == whole
    digests = {
        sp.digest_epoch(in_files(photos, STEP).batch(BATCH // ranks), ranks=ranks, **options("native")).sha256
        for ranks in (1, 2)
    }
    assert len(digests) == 1
    other = sides(epochs(in_files(photos, STEP).batch(2))[0])
    assert other[::2] == whole  # steps that begin at the same position


def test_sizes_never_change_and_are_equally_likely() -> None:
    widths: Any = sp.PerStep([(1, 1), (1, 2), (1, 3)], multiple_of=1)
    rows = sp.Arrays(image=np.zeros((2000, 1, 1, 3), np.uint8))
    found = sides(epochs(sp.Pipeline(rows, seed=7).map(sp.Resize(widths)).batch(1))[0])
    assert found[:10] == [2, 1, 3, 3, 2, 3, 2, 3, 3, 3]
    assert np.bincount(found)[1:].min() > 600


class Painted:
    """The data set of ``painted`` in Python: images as pixels, with their box."""

    def __init__(self, source: Any) -> None:
        records = source.open().locate(np.arange(ROWS))
        self.images = sorted(source.images.glob("*.jpg"))
        self.boxes = np.split(records.ragged["boxes"].values, records.ragged["boxes"].ends[:-1])

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        with Image.open(self.images[index]) as image:
            return {"image": np.array(image), "boxes": self.boxes[index]}


MOVES = [sp.RandomHorizontalFlip(), sp.RandomAffine(20, (0.1, 0.1), (0.8, 1.2))]


@pytest.mark.parametrize("kind", ["native", "dataset", "padded"])
def test_boxes_fit_the_pixels_of_each_size(tmp_path: Path, kind: str) -> None:
    source: Any = painted(tmp_path, ROWS, most=1)
    if kind == "dataset":
        source = sp.MapSource(Painted(source), instances=("boxes",))

    def described(size: Any) -> sp.Pipeline:
        first = sp.ScaleJitter(size, (0.5, 1.0)) if kind == "padded" else sp.RandomResizedCrop(size)
        pads = {"image": sp.Pad(max_shape=(96, 96, 3))} if kind == "padded" else {}
        room = sp.Ragged(max_values=2)
        return sp.Pipeline(source, seed=3).map(first, *MOVES).batch(2, collate=pads, instances=room)

    fixed = {side: epochs(described((side, side)))[0] for side in (32, 64, 96)}
    made = epochs(described(sp.PerStep([(32, 32), (96, 96), (64, 64)])))[0]
    seen = set()
    for step, batch in enumerate(made):
        (side,) = [side for side, others in fixed.items() if is_same(batch, others[step])]
        for row, image in enumerate(batch["image"]):
            y, x = np.nonzero(image.min(axis=-1) > 90)
            if not len(x):
                continue
            ((left, top, right, bottom),) = batch["boxes"][batch["batch_index"] == row]
            assert left - 1 <= x.min() < x.max() + 1 <= right + 1
            assert top - 1 <= y.min() < y.max() + 1 <= bottom + 1
            seen.add(side)
    assert seen == {32, 64, 96}


def test_a_replaced_sample_has_the_step_s_size(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    files = [*sorted(photos.glob("*.jpg")), tmp_path / "bad.jpg"]
    (tmp_path / "list.txt").write_text("".join(f"{file}\n" for file in files))
    described = (
        sp.Pipeline(sp.FileList(tmp_path / "list.txt"))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(STEP))
        .batch(BATCH)
    )
    described = described.on_error(sp.Replace(at_most=2))
    (made,), (other,) = (epochs(described, **options(executor)) for executor in ("native", "process"))
    assert set(sides(made)) == {32, 64, 96}
    assert not any(33 in batch["index"] for batch in made)
    for one, two in zip(made, other, strict=True):
        assert is_same(one, two)


def test_the_slots_have_room_for_the_largest_batch(photos: Path) -> None:
    plan = in_files(photos, STEP).batch(BATCH).plan(memory=MEMORY)
    largest = in_files(photos, 96).batch(BATCH).plan(memory=MEMORY)
    assert plan.fields == largest.fields
    assert (plan.slots, plan.forecast.slots) == (largest.slots, largest.forecast.slots)
    text = " ".join(plan.explain().split())
    assert "image: (4, 3, 32, 32) to (4, 3, 96, 96), one of 3 shapes per step" in text
    assert "with another batch size or world size, steps begin elsewhere, and get other shapes" in text
    assert "steps begin elsewhere" not in largest.explain()
    with in_files(photos, STEP).batch(BATCH).loader(memory=MEMORY, num_workers=2) as loader:
        assert len({batch["image"].shape for _ in range(2) for batch in loader}) == 3
        ledger = loader.memory()
        assert 0 < ledger["slots"].peak <= ledger["slots"].forecast
        assert ledger.peak <= ledger.forecast


def test_a_schedule_may_end_it(photos: Path) -> None:
    sizes: Any = sp.Schedule({0: STEP, 1: 64, 3: sp.PerStep([96, 128])})
    for make in (in_files, in_dataset):
        made = epochs(make(photos, sizes).batch(BATCH), 4)
        assert [set(sides(batches)) for batches in made] == [{32, 64, 96}, {64}, {64}, {96, 128}]


def test_transforms_share_a_size() -> None:
    images = sp.Pipeline(sp.Arrays(image=np.zeros((80, 9, 9, 3), np.uint8)))
    same: list[Any] = [sp.Resize(sp.PerStep(range(32, 97, 32))), sp.CenterCrop(sp.PerStep((32, 64, 96)))]
    assert set(sides(epochs(images.map(*same).batch(4))[0])) == {32, 64, 96}
    other: Any = sp.PerStep([32, 64])
    with pytest.raises(sp.PlanError, match=r"have PerStep of \(32, 96, 64\) and of \(32, 64\)"):
        images.map(sp.Resize(STEP), sp.CenterCrop(other)).batch(4).plan()


@pytest.mark.parametrize(
    ("sizes", "multiple_of", "said"),
    [
        ([100], 32, "100 isn't a multiple of 32. Use 96 or 128, or another multiple_of"),
        ([(64, 20)], 32, "20 isn't a multiple of 32. Use 32, or another"),
        ([], 32, "sizes must be a list of integers or of"),
        (96, 32, "sizes must be a list"),
        ([64.0], 32, "sizes must be a list"),
        ([0], 32, "sizes must be a list"),
        ([64], 0, "multiple_of must be an integer from 1"),
        ([(64, 64, 64)], 32, "size must be an int or"),
    ],
)
def test_invalid_sizes_are_refused(photos: Path, sizes: Any, multiple_of: int, said: str) -> None:
    step = sp.PerStep(sizes, multiple_of)
    for size in (step, sp.Schedule({0: step})):
        with pytest.raises(sp.PlanError, match=said):
            in_files(photos, size).batch(4).plan()


def test_a_cache_comes_before_it(photos: Path, tmp_path: Path) -> None:
    files = sp.Pipeline(sp.FileList(photos / "list.txt")).shuffle(seed=7)
    stored = sp.Cache("sizes", memory="20MiB", directory=tmp_path)
    cached = files.cache(stored).map(sp.RandomResizedCrop(STEP)).batch(BATCH)
    plain = files.map(sp.RandomResizedCrop(STEP)).batch(BATCH)
    for batch, other in zip(epochs(cached)[0], epochs(plain)[0], strict=True):
        assert is_same(batch, other)
    with pytest.raises(
        sp.PlanError, match=r"Put cache\(\) before the transform with the Schedule or PerStep"
    ):
        files.map(sp.CenterCrop(STEP)).cache(stored).batch(BATCH).plan()


def test_sizes_of_images_of_earlier_rows_are_refused(tmp_path: Path) -> None:
    sizes = sp.PerStep([32, 64])
    photos = sp.Pipeline(painted(tmp_path, 12)).shuffle(seed=1)
    frames = photos.map(sp.LetterBox(sizes, pad=False), sp.Mosaic(32), sp.CenterCrop(32)).batch(4)
    with pytest.raises(sp.PlanError, match="partners='batch'"):
        frames.plan(memory="256MiB")
    warp = sp.RandomAffine(0, size=sizes, pixels="opencv")
    photos.map(sp.LetterBox(32, pad=False), sp.Mosaic(32), warp).batch(4).plan(memory="256MiB")
