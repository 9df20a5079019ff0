"""Fields whose samples differ in shape: padded, one after another, or in lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from photos import encoded, picture, write_list
from preloaded import SERVER
from standpipe.spec import Int64Array

MEMORY = "256MiB"
LENGTHS = np.minimum(np.exp(np.random.default_rng(1).normal(2.5, 1, 200)).astype(np.int64), 90)
EXECUTORS = ["inline", "thread", "process"]


class Texts:
    """Sample i has ``lengths[i]`` tokens i, i + 1, …, and boxes of two numbers."""

    def __init__(self, lengths: Int64Array = LENGTHS) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = int(self.lengths[index])
        boxes = np.full((index % 4, 2), index, np.float32)
        return {"tokens": tokens(index), "boxes": boxes, "name": f"text {index}", "number": length}


def tokens(index: int) -> Int64Array:
    return np.arange(index, index + LENGTHS[index])


def texts() -> sp.MapSource:
    return sp.MapSource(Texts(), columns={"length": LENGTHS})


def batches(pipeline: sp.Pipeline, **settings: Any) -> list[dict[str, Any]]:
    """Copies of an epoch's batches."""
    with pipeline.loader(
        **{"memory": MEMORY, "num_workers": 2, "mp_context": SERVER, "executor": "thread", **settings}
    ) as loader:
        return [{name: copied(value) for name, value in batch.items()} for batch in loader]


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    ("pad", "width"),
    [
        (sp.Pad(max_shape=90), lambda longest: longest),
        (sp.Pad(to_multiple_of=8, max_shape=90), lambda longest: -(-longest // 8) * 8),
        (sp.Pad(length=96, value=-1), lambda longest: 96),
    ],
    ids=["longest", "multiple", "fixed"],
)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_padded_rows_are_the_samples_and_the_value(pad: sp.Pad, width: Any, executor: str) -> None:
    pipeline = (
        sp.Pipeline(texts())
        .shuffle(seed=1)
        .batch(16, collate={"tokens": pad, "boxes": list}, last_batch="pad")
    )
    for batch in batches(pipeline, executor=executor):
        longest = int(LENGTHS[batch["index"]].max())
        assert batch["tokens"].shape == (16, width(longest))
        assert batch["tokens"].dtype == np.int64
        assert batch["tokens_length"].tolist() == LENGTHS[batch["index"]].tolist()
        for row, index in enumerate(batch["index"]):
            length = LENGTHS[index]
            assert batch["tokens"][row, :length].tolist() == tokens(index).tolist()
            assert (batch["tokens"][row, length:] == pad.value).all()


def test_padded_rows_lie_one_behind_the_other() -> None:
    pipeline = sp.Pipeline(texts()).batch(16, collate={"tokens": sp.Pad(max_shape=90), "boxes": list})
    with pipeline.loader(memory=MEMORY, executor="thread") as loader:
        for batch in loader:
            assert batch["tokens"].flags.c_contiguous
            assert batch["tokens"].ctypes.data % 64 == 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_several_axes_are_padded_with_their_shapes(executor: str) -> None:
    class Pictures:
        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: int) -> Any:
            return np.full((3 + index % 5, 9 - index % 4, 3), index, np.uint8)

    pipeline = sp.Pipeline(sp.MapSource(Pictures(), fields="image")).batch(
        10, collate={"image": sp.Pad(to_multiple_of=4, value=255, max_shape=(8, 9, 3))}
    )
    for batch in batches(pipeline, executor=executor):
        sizes = [(3 + index % 5, 9 - index % 4, 3) for index in batch["index"]]
        assert batch["image_length"].tolist() == [list(size) for size in sizes]
        assert batch["image"].shape == (10, 8, 12, 3)  # channels aren't rounded
        for image, index, (height, width, _) in zip(batch["image"], batch["index"], sizes, strict=True):
            assert (image[:height, :width] == index).all()
            assert (image[height:] == 255).all()
            assert (image[:, width:] == 255).all()


def test_photos_in_their_own_sizes_are_padded(tmp_path: Path) -> None:
    sizes = [(24 + 3 * number, 40 - 2 * number) for number in range(8)]
    pictures = [picture(number, *size) for number, size in enumerate(sizes)]
    source = write_list(tmp_path, {f"{n}.png": encoded(each, "PNG") for n, each in enumerate(pictures)})
    pipeline = sp.Pipeline(source).batch(4, collate={"image": sp.Pad(max_shape=(64, 64, 3))})
    got = batches(pipeline)
    assert [batch["image"].shape for batch in got] == [(4, 33, 40, 3), (4, 45, 32, 3)]
    for batch in got:
        for image, index in zip(batch["image"], batch["index"], strict=True):
            height, width = sizes[index]
            assert np.array_equal(image[:height, :width], pictures[index])
            assert not image[height:].any()
            assert not image[:, width:].any()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_ragged_rows_follow_one_another(executor: str) -> None:
    pipeline = sp.Pipeline(texts()).batch(
        16, collate={"tokens": sp.Ragged(max_values=16 * 90), "boxes": sp.Ragged(max_values=64)}
    )
    for batch in batches(pipeline, executor=executor):
        offsets, boxes = batch["tokens_offsets"], batch["boxes_offsets"]
        assert offsets.dtype == boxes.dtype == np.int64
        assert offsets.shape == (17,)
        assert batch["tokens"].shape == (offsets[-1],)
        assert batch["boxes"].shape == (boxes[-1], 2)
        for row, index in enumerate(batch["index"]):
            assert batch["tokens"][offsets[row] : offsets[row + 1]].tolist() == tokens(index).tolist()
            assert batch["boxes"][boxes[row] : boxes[row + 1]].tolist() == [[index, index]] * (index % 4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_with_a_budget_room_is_for_the_budget(executor: str) -> None:
    pipeline = sp.Pipeline(texts()).shuffle(seed=1)
    padded = pipeline.batch(budget=200, length_column="length", collate={"tokens": sp.Pad(), "boxes": list})
    for batch in batches(padded, executor=executor):
        assert batch["tokens"].size <= 200
        assert batch["tokens"].shape == (len(batch["index"]), batch["tokens_length"].max())
    packed = pipeline.batch(
        budget=200, length_column="length", packing=True, collate={"tokens": sp.Ragged(), "boxes": list}
    )
    for batch in batches(packed, executor=executor):
        assert len(batch["tokens"]) == LENGTHS[batch["index"]].sum() <= 200
    assert packed.plan(memory=MEMORY).slots >= 2


@pytest.mark.parametrize(
    ("lengths", "budget"), [(np.ones(9000, np.int64), 8192), (LENGTHS, 200)], ids=["ones", "usual"]
)
@pytest.mark.parametrize(
    "pads",
    [
        {"tokens": sp.Pad(to_multiple_of=64)},
        {"tokens": sp.Pad(to_multiple_of=8), "masks": sp.Pad(to_multiple_of=12)},
        {"tokens": sp.Pad(to_multiple_of=8, max_shape=90)},
    ],
    ids=["one", "two", "max_shape"],
)
def test_a_budget_is_kept_with_padding_to_a_multiple(
    lengths: Int64Array, budget: int, pads: dict[str, sp.Pad]
) -> None:
    samples = [{name: np.zeros(length, np.int32) for name in pads} for length in lengths]
    pipeline = sp.Pipeline(sp.MapSource(samples, columns={"length": lengths})).shuffle(seed=1)
    pipeline = pipeline.batch(budget=budget, length_column="length", collate=pads)
    seen: list[int] = []
    for batch in batches(pipeline):
        seen += batch["index"].tolist()
        for name in pads:
            assert batch[name].size <= budget
    assert sorted(seen) == list(range(len(lengths)))


def test_a_state_of_another_multiple_is_refused() -> None:
    def padded(**pad: int) -> sp.Pipeline:
        collate = {"tokens": sp.Pad(**pad), "boxes": list}
        return sp.Pipeline(texts()).batch(budget=200, length_column="length", collate=collate)

    with padded(to_multiple_of=8).loader(memory=MEMORY, executor="thread") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with padded().loader(memory=MEMORY, executor="thread") as loader:
        with pytest.raises(sp.StateError, match="to_multiple_of=8"):
            loader.load_state_dict(state)
        assert "to_multiple_of" not in str(loader.plan.recipe)


def test_the_plan_says_what_a_budget_limits() -> None:
    collate = {"tokens": sp.Pad(), "masks": sp.Pad(length=90), "image": sp.Pad(max_shape=(8, 8, 3))}
    pipeline = sp.Pipeline(texts()).batch(budget=200, length_column="length", collate=collate)
    said = pipeline.plan(memory=MEMORY).explain()
    assert "within the budget: tokens\n" in said
    assert "within the budget if 'length' is its length: image\n" in said
    assert "not within the budget: masks\n" in said
    made = pipeline.batch(budget=200, length_column="length", collate_fn=lambda samples: {"n": len(samples)})
    assert "not within the budget: what functions of the batch pad" in made.plan(memory=MEMORY).explain()
    packed = pipeline.batch(budget=200, length_column="length", packing=True, collate={"tokens": sp.Pad()})
    with pytest.raises(sp.PlanError, match=r"'tokens' needs max_shape=.*packing=True"):
        batches(packed)


@pytest.mark.parametrize(
    ("executor", "workers"), [("thread", 1), ("thread", 3), ("thread", 8), ("process", 2)]
)
def test_who_makes_the_rows_makes_no_difference(executor: str, workers: int) -> None:
    pipeline = (
        sp.Pipeline(texts())
        .shuffle(seed=5)
        .map(lambda sample, rng: {**sample, "tokens": sample["tokens"][: rng.integers(1, 90)]})
        .batch(
            13, collate={"tokens": sp.Pad(max_shape=90), "boxes": sp.Ragged(max_values=60)}, last_batch="pad"
        )
    )
    expected = batches(pipeline, executor="inline")
    got = batches(pipeline, executor=executor, num_workers=workers)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert np.array_equal(a[name], b[name]), name


def test_a_declared_shape_is_one_samples_own() -> None:
    spec = {"tokens": sp.ArraySpec((17,), np.dtype(np.int64)), "number": sp.ArraySpec((), np.dtype(np.int64))}
    source = sp.MapSource([{"tokens": np.arange(n), "number": n} for n in range(1, 9)], spec=spec)
    pipeline = sp.Pipeline(source).batch(4, collate={"tokens": sp.Pad(max_shape=20)})
    assert pipeline.plan(memory=MEMORY).facts()["fields"]["tokens"] == {  # type: ignore[index]
        "shape": "(≤4, ≤20)",
        "dtype": "int64",
    }
    assert [batch["tokens"].shape for batch in batches(pipeline)] == [(4, 4), (4, 8)]


def test_what_fits_no_slot_comes_in_lists_and_explain_says_so() -> None:
    pipeline = sp.Pipeline(texts()).batch(16, collate={"tokens": list, "boxes": list})
    with pipeline.loader(memory=MEMORY, executor="thread") as loader:
        batch = next(iter(loader))
        assert batch["name"] == [f"text {index}" for index in range(16)]
        assert [value.tolist() for value in batch["tokens"]] == [
            tokens(index).tolist() for index in range(16)
        ]
        text = " ".join(loader.plan.explain().split())
    assert "name: a list of 16, outside the slots" in text
    assert "tokens: a list of 16, outside the slots" in text


def test_explain_says_how_fields_are_collated() -> None:
    collate = {"tokens": sp.Pad(to_multiple_of=8, max_shape=90), "boxes": sp.Ragged(max_values=64)}
    with sp.Pipeline(texts()).batch(16, collate=collate).loader(memory=MEMORY, executor="thread") as loader:
        next(iter(loader))
        text = " ".join(loader.plan.explain().split())
    assert "tokens: (≤16, ≤96) int64, room for 1,536" in text
    assert "tokens_length: (≤16,) int64" in text
    assert "boxes: (≤64, 2) float32" in text
    assert "boxes_offsets: (≤17,) int64" in text


@pytest.mark.parametrize(
    ("collate", "says"),
    [
        (
            {"tokens": sp.Pad(max_shape=20)},
            r"'tokens' is \(\d+\) int64; there is room for \(20\) int64 at most",
        ),
        (
            {"tokens": sp.Ragged(max_values=150)},
            r"'tokens' is \d+ long, and with the rows before it \d+; a batch",
        ),
        (
            {},
            r"'tokens' is .*; where samples differ in shape, say .batch\(…, collate=\{'tokens': …\}\) with Pad",
        ),
    ],
)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_sample_without_room_is_an_error_with_its_number(collate: Any, says: str, executor: str) -> None:
    pipeline = sp.Pipeline(texts()).batch(16, collate={"boxes": list, **collate})
    with pytest.raises(sp.SampleError, match=says) as caught:
        batches(pipeline, executor=executor)
    row = caught.value.index
    if isinstance(how := collate.get("tokens"), sp.Pad):
        assert isinstance(caught.value, sp.TransformError)
        assert row == int(np.flatnonzero(LENGTHS > 20)[0])
    elif how is not None:
        ends = np.cumsum(LENGTHS[row - row % 16 :])
        assert row % 16 == int(np.searchsorted(ends, 150, "right"))


@pytest.mark.parametrize(("packing", "how"), [(False, sp.Pad()), (True, sp.Ragged())])
def test_a_budget_of_another_length_needs_room_of_its_own(packing: bool, how: Any) -> None:
    lengths = sp.MapSource(Texts(), columns={"half": np.maximum(LENGTHS // 2, 1)})
    pipeline, collate = sp.Pipeline(lengths).shuffle(seed=1), {"tokens": how, "boxes": list}
    with pytest.raises(sp.TransformError, match=r"'tokens' is \d+ long.*room for"):
        batches(pipeline.batch(budget=100, length_column="half", packing=packing, collate=collate))


def test_samples_of_another_dtype_or_other_axes_are_errors() -> None:
    def broken(sample: dict[str, Any], what: str) -> dict[str, Any]:
        if sample["name"] == "text 5":
            value = sample["tokens"]
            sample["tokens"] = {"dtype": value + 0.5, "axes": value[None], "kind": "words"}[what]
        return sample

    for what in ("dtype", "axes", "kind"):
        for how in (sp.Pad(max_shape=90), sp.Ragged(max_values=1440)):
            pipeline = sp.Pipeline(texts()).map(lambda sample, what=what: broken(sample, what))
            with pytest.raises(sp.TransformError, match="'tokens' is") as caught:
                batches(pipeline.batch(16, collate={"tokens": how, "boxes": list}))
            assert caught.value.index == 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sp.Pad(to_multiple_of=0), "to_multiple_of must be an integer of at least 1"),
        (lambda: sp.Pad(length=0), "must be an integer from 1 on"),
        (lambda: sp.Pad(length=8, to_multiple_of=2), "Leave one of them out"),
        (lambda: sp.Pad(max_shape=(3, -1)), "must be an integer from 1 on"),
        (lambda: sp.Pad(length=(3,), max_shape=3), "Leave one of them out"),
        (lambda: sp.Pad(value="0"), "value='0'"),  # type: ignore[arg-type]
        (lambda: sp.Ragged(max_values=0), "must be an integer from 1 on"),
        (
            lambda: sp.Pipeline(texts()).batch(4, collate={"tokens": "pad"}),
            r"must be Pad\(…\), Ragged\(…\) or list",
        ),  # type: ignore[dict-item]
    ],
)
def test_descriptions_that_cannot_work(make: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        make()


@pytest.mark.parametrize(
    ("collate", "says"),
    [
        ({"tokens": sp.Pad()}, "'tokens'.*needs max_shape="),
        ({"tokens": sp.Ragged()}, "'tokens'.*needs max_values="),
        ({"tokens": sp.Pad(max_shape=(3, 3))}, r"has 2 axes, \(3, 3\), but a sample has 1"),
        ({"tokens": sp.Pad(max_shape=90, value=0.5)}, "value=0.5 doesn't fit the field's dtype, int64"),
        ({"number": sp.Pad(max_shape=90)}, "'number'.*single numbers"),
        ({"number": sp.Ragged(max_values=90)}, "'number'.*single numbers"),
        ({"name": sp.Pad(max_shape=90)}, "'name'.*str"),
        ({"other": sp.Pad(max_shape=90)}, "no field 'other'"),
    ],
)
def test_what_cannot_be_collated_is_refused_when_it_is_measured(collate: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        batches(sp.Pipeline(texts()).batch(16, collate={"boxes": list, **collate}))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_lists_of_numbers_are_arrays_where_they_are_padded(executor: str) -> None:
    samples = [{"ids": list(range(n % 5)), "box": [(0.5, n)] * (n % 3)} for n in range(4, 40)]
    pipeline = sp.Pipeline(sp.MapSource(samples)).batch(
        6, collate={"ids": sp.Pad(max_shape=4, value=9), "box": sp.Ragged(max_values=12)}
    )
    for batch in batches(pipeline, executor=executor):
        for row, index in enumerate(batch["index"]):
            length = len(samples[index]["ids"])
            assert batch["ids"][row].tolist()[:length] == samples[index]["ids"]
        boxes = [list(box) for index in batch["index"] for box in samples[index]["box"]]
        assert batch["box"].tolist() == boxes


def test_measuring_opens_the_source_once_and_keeps_its_order() -> None:
    opened = []

    class Once(sp.Arrays):
        def open(self) -> Any:
            opened.append(self)
            return super().open()

    left, right = sp.Pipeline(Once(x=np.zeros(50))), sp.Pipeline(Once(x=np.ones(50)))
    pipeline = sp.Pipeline(sp.Mixture({left: 0.5, right: 0.5})).map(lambda sample: sample).batch(8)
    with pipeline.loader(memory=MEMORY, executor="thread") as loader:
        loader.reweigh([0, 1])
        for batch in loader.steps(3):
            assert (batch["x"] == 1).all()
    assert len(opened) == 2


def test_samples_that_wait_are_part_of_the_forecast() -> None:
    spec = {"tokens": sp.ArraySpec((1,), np.dtype(np.uint8))}
    source = sp.MapSource([{"tokens": np.zeros(1, np.uint8)}] * 8, spec=spec)
    forecasts = [
        sp.Pipeline(source)
        .batch(4, collate={"tokens": sp.Pad(max_shape=most)})
        .plan(memory="256MiB", num_workers=1, prefetch=1)
        .forecast.allocated
        for most in (1 << 10, 1 << 20)
    ]
    assert 2 * 2 * 4 * (1 << 20) <= forecasts[1] - forecasts[0] + 2 * 2 * 4 * (1 << 10) <= 17 * (1 << 20)


@st.composite
def fields(draw: st.DrawFn) -> list[np.ndarray]:
    """Samples of any shapes with the same axes."""
    axes = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["u1", "i8", "f4", "f8", "?"]))
    shapes = draw(st.lists(st.tuples(*[st.integers(0, 5)] * axes), min_size=1, max_size=9))
    return [(1 + np.arange(np.prod(shape)) % 100).reshape(shape).astype(dtype) for shape in shapes]


@given(samples=fields(), rows=st.integers(1, 4), multiple=st.integers(1, 4), value=st.sampled_from([0, 1]))
def test_any_shapes_are_padded_as_numpy_pads(
    samples: list[np.ndarray], rows: int, multiple: int, value: int
) -> None:
    axes = samples[0].ndim
    fill = bool(value) if samples[0].dtype == bool else value
    pad = sp.Pad(to_multiple_of=multiple, value=fill, max_shape=(5,) * axes)
    pipeline = sp.Pipeline(sp.MapSource([{"x": sample} for sample in samples]))
    for batch in batches(pipeline.batch(rows, last_batch="partial", collate={"x": pad}), executor="inline"):
        given = [samples[index] for index in batch["index"]]
        shape = [
            -(-max(sides) // multiple) * multiple
            for sides in zip(*(each.shape for each in given), strict=True)
        ]
        expected = [
            np.pad(
                each,
                [(0, to - side) for to, side in zip(shape, each.shape, strict=True)],
                constant_values=value,
            )
            for each in given
        ]
        assert batch["x"].dtype == samples[0].dtype
        assert np.array_equal(batch["x"], np.stack(expected))
        lengths = [each.shape if axes > 1 else len(each) for each in given]
        assert np.array_equal(batch["x_length"], lengths)


@given(samples=fields(), rows=st.integers(1, 4))
def test_any_values_follow_one_another_as_numpy_joins_them(samples: list[np.ndarray], rows: int) -> None:
    sides = samples[0].shape[1:]
    samples = [np.resize(sample, (len(sample), *sides)) for sample in samples]
    pipeline = sp.Pipeline(sp.MapSource([{"x": sample} for sample in samples]))
    pipeline = pipeline.batch(rows, last_batch="partial", collate={"x": sp.Ragged(max_values=20)})
    for batch in batches(pipeline, executor="inline"):
        given = [samples[index] for index in batch["index"]]
        assert np.array_equal(batch["x"], np.concatenate(given))
        assert batch["x"].dtype == samples[0].dtype
        assert batch["x_offsets"].tolist() == np.cumsum([0, *map(len, given)]).tolist()


def test_a_collated_field_keeps_its_slot_as_long_as_it_is_held() -> None:
    pipeline = (
        sp.Pipeline(texts())
        .shuffle(seed=1)
        .batch(16, collate={"tokens": sp.Ragged(max_values=1440), "boxes": list})
    )
    expected = [batch["tokens"] for batch in batches(pipeline)]
    with pipeline.loader(memory=MEMORY, executor="thread") as loader:
        held = [batch["tokens"][:-1] for batch in loader]
    for part, whole in zip(held, expected, strict=True):
        assert np.array_equal(part, whole[:-1])
