"""Parameters that change by epoch: each epoch's rows are those of a pipeline with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import standpipe as sp
from preloaded import SERVER
from standpipe.spec import AnyArray

SIZES: Any = sp.Schedule({0: 8, 1: 24, 3: 16})
MAGNITUDES: Any = sp.Schedule({0: 5, 2: 9})
EPOCHS = 5
ROWS = 9  # in batches of 4: one row is left out of each epoch
EXECUTORS = ["native", "thread", "inline", "process"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    pixels = np.random.default_rng(3)
    for number in range(ROWS):
        image = pixels.integers(0, 256, (30 + number, 40, 3), np.uint8)
        (folder / f"{number % 2}").mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{number % 2}" / f"{number}.jpg")
    return folder


def unchanged(image: AnyArray) -> AnyArray:
    return image


def pipeline(
    photos: Path,
    size: Any = SIZES,
    magnitude: Any = MAGNITUDES,
    p: Any = 0.5,
    functions: Sequence[Callable[[AnyArray], AnyArray]] = (),
) -> sp.Pipeline:
    jitter = sp.RandomApply([sp.RandomSolarize(100, p=p), sp.ColorJitter(brightness=0.3)], p=0.7)
    described = sp.Pipeline(sp.ImageFolder(photos)).shuffle(seed=7).map(sp.RandomResizedCrop(size), jitter)
    for function in functions:
        described = described.map(function, field="image")
    return described.map(sp.RandAugment(magnitude=magnitude), sp.Normalize()).batch(4)


def scheduled(photos: Path, executor: str) -> sp.Pipeline:
    """A pipeline for the executor: only Python code needs worker processes or Python threads."""
    return pipeline(photos, functions=[unchanged] if executor in ("thread", "process") else ())


def loader(described: sp.Pipeline, executor: str = "native", **settings: Any) -> sp.Loader:
    given: Any = {} if executor == "native" else {"executor": executor}
    workers = {} if executor == "inline" else {"num_workers": 2}
    return described.loader(memory="400MiB", mp_context=SERVER, **{**workers, **given, **settings})


def at(epoch: int, schedule: Any) -> Any:
    return schedule.at(epoch) if isinstance(schedule, sp.Schedule) else schedule


def fixed(photos: Path, epoch: int) -> sp.Pipeline:
    return pipeline(photos, at(epoch, SIZES), at(epoch, MAGNITUDES))


def copied(batch: Any) -> dict[str, AnyArray]:
    return {name: np.array(value) for name, value in batch.items()}


def epochs(
    described: sp.Pipeline, executor: str = "native", number: int = EPOCHS
) -> list[list[dict[str, AnyArray]]]:
    with loader(described, executor, prefetch=3) as made:
        return [[copied(batch) for batch in made] for _ in range(number)]


@pytest.fixture(scope="module")
def expected(photos: Path) -> list[list[dict[str, AnyArray]]]:
    """The batches of each epoch, of pipelines without schedules."""
    return [epochs(fixed(photos, epoch), number=epoch + 1)[epoch] for epoch in range(EPOCHS)]


def assert_same(batch: Any, other: Any) -> None:
    assert batch.keys() == other.keys()
    for name in batch:
        assert batch[name].shape == other[name].shape
        assert np.array_equal(batch[name], other[name])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_each_epoch_has_the_rows_of_its_parameters(photos: Path, expected: Any, executor: str) -> None:
    made = epochs(scheduled(photos, executor), executor)
    assert [epoch[0]["image"].shape[2] for epoch in made] == [8, 24, 24, 16, 16]
    for batches, others in zip(made, expected, strict=True):
        for batch, other in zip(batches, others, strict=True):
            assert_same(batch, other)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_batches_made_ahead_have_the_shape_of_their_epoch(photos: Path, expected: Any, executor: str) -> None:
    """Both epochs' batches are held at once, more than the slots at the start."""
    with loader(scheduled(photos, executor), executor, prefetch=4) as made:
        held = [batch for _ in range(2) for batch in made]
        for batch, other in zip(held, [*expected[0], *expected[1]], strict=True):
            assert_same(batch, other)


@pytest.mark.parametrize(
    ("executor", "place"), [*(("native", place) for place in range(4)), ("thread", 3), ("process", 2)]
)
def test_a_run_resumes_inside_a_segment(photos: Path, expected: Any, executor: str, place: int) -> None:
    described = scheduled(photos, executor)
    with loader(described, "native" if executor == "native" else "thread") as first:
        first.load_state_dict({**first.state_dict(), "epoch": place})
        next(iter(first))
        state = first.state_dict()
    with loader(described, executor, num_workers=1) as second:
        second.load_state_dict(state)
        rest = [copied(batch) for batch in second]
        following = [copied(batch) for batch in second]
    for batch, other in zip(rest, expected[place][1:], strict=True):
        assert_same(batch, other)
    assert_same(following[0], expected[place + 1][0])


def test_ranks_resume_with_their_part_of_the_rows(photos: Path) -> None:
    whole = epochs(pipeline(photos), number=2)[1]
    with loader(pipeline(photos)) as made:
        for _ in made:
            pass
        state = made.state_dict()
    parts = []
    for rank in range(2):
        half = pipeline(photos).batch(2).shard(rank, 2)
        with loader(half) as made:
            made.load_state_dict(state)
            parts.append([copied(batch)["image"] for batch in made])
    for one, other, batch in zip(*parts, whole, strict=True):
        assert np.array_equal(np.concatenate([one, other]), batch["image"])


def test_the_digest_of_an_epoch_is_that_of_its_parameters(photos: Path) -> None:
    scheduled = pipeline(photos)
    for epoch in range(4):
        with loader(scheduled) as made, loader(fixed(photos, epoch)) as other:
            assert content(made, epoch) == content(other, epoch)
    assert scheduled.plan().digest != fixed(photos, 0).plan().digest


def content(made: sp.Loader, epoch: int) -> list[bytes]:
    made.load_state_dict({**made.state_dict(), "epoch": epoch})
    return [np.array(batch["image"]).tobytes() for batch in made]


def test_the_slots_have_room_for_the_largest_batch(photos: Path) -> None:
    plan, largest = pipeline(photos).plan(), pipeline(photos, 24).plan()
    assert plan.fields == largest.fields
    assert plan.memory.forecast.slots // plan.slots == largest.memory.forecast.slots // largest.slots
    text = plan.explain()
    assert "image: (4, 3, 24, 24) float32" in text
    assert "from epoch 0 on, image: (4, 3, 8, 8)" in text
    assert "from epoch 1 on, image: (4, 3, 24, 24)" in text
    assert "from epoch 2 on" not in text


class Items:
    """A dataset in Python that gives encoded images and labels."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.paths[index].read_bytes(), index


def mirrored(image: AnyArray) -> AnyArray:
    return image[:, ::-1]


@pytest.mark.parametrize("executor", EXECUTORS[1:])
@pytest.mark.parametrize("functions", [(), (mirrored,)])
def test_python_code_gets_images_of_the_epoch_s_size(photos: Path, executor: str, functions: Any) -> None:
    described = sp.Pipeline(sp.MapSource(Items(photos), encoded="image")).map(sp.RandomResizedCrop(SIZES))
    for function in functions:
        described = described.map(function, field="image")
    made = epochs(described.map(sp.Normalize()).batch(4), executor, 4)
    assert [epoch[0]["image"].shape[2] for epoch in made] == [8, 24, 24, 16]


def test_functions_of_batches_get_the_epoch_s_shape(photos: Path) -> None:
    seen = []

    def look(batch: Any) -> Any:
        seen.append(batch["image"].shape[2])
        return batch

    mixes = sp.MixUp(0.2, num_classes=2), sp.CutMix(1.0, num_classes=2)
    made = epochs(pipeline(photos).map_batch(look, *mixes), "thread", 4)
    assert sorted(set(seen)) == [8, 16, 24]
    assert [epoch[0]["image"].shape[2] for epoch in made] == [8, 24, 24, 16]


def test_a_parameter_inside_a_group_changes(photos: Path) -> None:
    certain: Any = sp.Schedule({0: 0.0, 1: 1.0})
    made = epochs(pipeline(photos, 8, 5, p=certain), number=2)
    for epoch, p in enumerate((0.0, 1.0)):
        other = epochs(pipeline(photos, 8, 5, p=p), number=2)[epoch]
        assert_same(made[epoch][0], other[0])


def test_normalize_and_resize_can_change(photos: Path) -> None:
    means: Any = sp.Schedule({0: (0.0, 0.0, 0.0), 1: (0.5, 0.5, 0.5)})
    sides: Any = sp.Schedule({0: (8, 10), 1: (10, 12)})
    described = sp.Pipeline(sp.ImageFolder(photos)).map(sp.Resize(sides), sp.Normalize(mean=means)).batch(4)
    made = epochs(described, number=2)
    assert [epoch[0]["image"].shape[2:] for epoch in made] == [(8, 10), (10, 12)]
    assert made[0][0]["image"].min() >= 0 > made[1][0]["image"].min()


@pytest.mark.parametrize("functions", [(), (mirrored,)])
def test_a_cache_comes_before_a_schedule(photos: Path, tmp_path: Path, functions: Any) -> None:
    described = sp.Pipeline(sp.ImageFolder(photos))
    cache = sp.Cache("schedule", memory="20MiB", directory=tmp_path)
    before = described.map(sp.CenterCrop(28))
    for function in functions:
        before = before.map(function, field="image")
    before = before.cache(cache)
    made = epochs(before.map(sp.RandomResizedCrop(SIZES)).batch(4), "thread", number=4)
    assert [epoch[0]["image"].shape[1] for epoch in made] == [8, 24, 24, 16]
    behind = described.map(sp.CenterCrop(SIZES)).cache(cache).batch(4)
    with pytest.raises(sp.PlanError, match=r"Put cache\(\) before the transform with the Schedule"):
        behind.plan()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({30: 160}, r"Schedule\(\{30: 160\}\) has no value for epoch 0\. Add 0: value"),
        ({}, "has no value for epoch 0"),
        ({0: 160, -1: 8}, "epochs must be integers from 0 on, got -1"),
        ({0: 160, 1.5: 8}, "epochs must be integers from 0 on, got 1.5"),
        ({0: 160, True: 8}, "epochs must be integers from 0 on, got True"),
        ({0: 160, 30: (192, 192)}, "must have one type, got number and tuple"),
        ([160, 192], "give it a mapping of epochs to values"),
        ({0: 160, 3: -1}, "RandomResizedCrop"),
    ],
)
def test_an_invalid_schedule_is_refused(photos: Path, values: Any, said: str) -> None:
    with pytest.raises(sp.PlanError, match=said):
        pipeline(photos, sp.Schedule(values)).plan()


def test_dtype_and_layout_stay_the_same(photos: Path) -> None:
    described = sp.Pipeline(sp.ImageFolder(photos)).map(sp.CenterCrop(8))
    dtypes: Any = sp.Schedule({0: "float32", 1: "float16"})
    with pytest.raises(sp.PlanError, match="Only sizes may change"):
        described.map(sp.ToDtype(dtypes)).batch(4).plan()
    layouts: Any = sp.Schedule({0: "NCHW", 1: "NHWC"})
    with pytest.raises(sp.PlanError, match="Only sizes may change"):
        described.map(sp.Normalize(), sp.ToLayout(layouts)).batch(4).plan()
    grey = described.decode(channels="L").map(sp.Normalize((0.5,), (0.5,)), sp.ToLayout(layouts))
    with pytest.raises(sp.PlanError, match="is 3-dimensional float32, NCHW in one epoch or step"):
        grey.batch(4).plan()


def test_what_it_says_has_epochs_in_order() -> None:
    assert repr(sp.Schedule({30: 192, 0: 160})) == "Schedule({0: 160, 30: 192})"
    assert sp.Schedule({30: 192, 0: 160}) == sp.Schedule({0: 160, 30: 192})


def schedules() -> st.SearchStrategy[dict[int, int]]:
    later = st.dictionaries(st.integers(1, 6), st.integers(4, 20), max_size=3)
    return st.tuples(st.integers(4, 20), later).map(lambda found: {0: found[0], **found[1]})


IMAGES = np.random.default_rng(4).integers(0, 256, (5, 22, 23, 3), np.uint8)


@settings(max_examples=15)
@given(schedules(), st.integers(0, 7))
def test_any_schedule_gives_the_rows_of_its_sizes(values: dict[int, int], epoch: int) -> None:
    size = next(values[start] for start in sorted(values, reverse=True) if start <= epoch)
    rows = []
    for given_size in (sp.Schedule(values), size):
        crop = sp.RandomResizedCrop(given_size)  # type: ignore[arg-type]
        described = sp.Pipeline(sp.Arrays(image=IMAGES)).map(crop).batch(5)
        with described.loader(memory="100MiB", num_workers=1) as made:
            made.load_state_dict({**made.state_dict(), "epoch": epoch})
            rows.append(np.array(next(iter(made))["image"]))
    assert rows[0].shape == (5, size, size, 3)
    assert np.array_equal(rows[0], rows[1])
