"""The loader for JAX, on two devices of the CPU. ``test_loader.py`` runs these in a process of its own."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import standpipe as sp
import standpipe.jax

ROWS, STEPS = 8, 6
SETTINGS: dict[str, Any] = {"memory": "64MiB", "num_workers": 2, "executor": "thread"}
MESH = Mesh(np.array(jax.devices()), ("data",))
BY_ROWS = NamedSharding(MESH, PartitionSpec("data"))


def table(records: int = ROWS * STEPS) -> sp.Pipeline:
    image = np.random.default_rng(0).integers(0, 256, (records, 8, 8, 3), np.uint8)
    arrays = sp.Arrays(image=image, label=np.arange(records))
    return sp.Pipeline(arrays).shuffle(seed=5).map(sp.Normalize()).batch(ROWS)


def loader(*arguments: Any, **settings: Any) -> standpipe.jax.JaxLoader:
    return standpipe.jax.loader(*(arguments or (table(),)), **{**SETTINGS, **settings})


def epochs(number: int) -> list[dict[str, np.ndarray]]:
    with table().loader(**SETTINGS) as batches:
        return [
            {name: np.array(value) for name, value in batch.items()}
            for _ in range(number)
            for batch in batches
        ]


def assert_equal(batch: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in batch:
        np.testing.assert_array_equal(batch[name], expected[name])


def test_there_are_two_devices() -> None:
    assert len(jax.devices()) == 2


@pytest.mark.parametrize("sharding", [None, BY_ROWS, jax.sharding.SingleDeviceSharding(jax.devices()[1])])
def test_batches_are_standpipes(sharding: Any) -> None:
    with loader(table(), sharding) as batches:
        assert len(batches) == STEPS
        for batch, expected in zip(batches, epochs(1), strict=True):
            assert set(batch) == {"image", "label"}
            assert all(isinstance(value, jax.Array) for value in batch.values())
            assert_equal(batch, expected)
            where = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
            assert batch["image"].sharding.device_set == where.device_set


def test_what_a_loader_has_this_one_has_too() -> None:
    with loader() as batches:
        assert sum(1 for _ in batches) == STEPS
        assert batches.classes is None
        assert batches.stats().step.rows == STEPS * ROWS
        assert batches.explain().startswith("standpipe plan")
        assert repr(batches).startswith("<JaxLoader of Pipeline(Arrays(")
    assert repr(batches).endswith("closed>")
    options = list(inspect.signature(standpipe.jax.loader).parameters.values())[-1]
    assert options.annotation == "Unpack[RunArguments]"


def test_each_device_has_its_rows() -> None:
    for batch, expected in zip(loader(table(), BY_ROWS), epochs(1), strict=True):
        for shard in batch["image"].addressable_shards:
            assert shard.data.shape == (ROWS // 2, 3, 8, 8)
            np.testing.assert_array_equal(shard.data, expected["image"][shard.index])


def test_fields_with_fewer_axes_take_the_first_of_the_sharding() -> None:
    sharding = NamedSharding(MESH, PartitionSpec("data", None, None, None))
    for batch, expected in zip(loader(table(), sharding), epochs(1), strict=True):
        assert_equal(batch, expected)
        assert batch["label"].sharding.spec == PartitionSpec("data")


def test_an_axis_that_isnt_the_rows_leaves_them_whole() -> None:
    sharding = NamedSharding(MESH, PartitionSpec(None, None, "data"))
    for batch, expected in zip(loader(table(), sharding), epochs(1), strict=True):
        assert_equal(batch, expected)
        assert batch["image"].addressable_shards[0].data.shape == (ROWS, 3, 4, 8)


def test_an_array_is_the_batchs_memory() -> None:
    made = loader()
    batch = next(iter(made.loader))
    array = made._placed(batch)["image"]
    assert array.unsafe_buffer_pointer() == batch["image"].ctypes.data


@pytest.mark.parametrize("sharding", [None, BY_ROWS])
def test_memory_isnt_used_again_while_jax_reads_it(sharding: Any) -> None:
    """Sums of batches that nobody holds, dispatched without waiting, and batches that are held."""
    records = ROWS * 60
    image = np.random.default_rng(1).integers(0, 9, (records, 64, 64), np.int32)
    pipeline = sp.Pipeline(sp.Arrays(image=image)).batch(ROWS)

    @jax.jit
    def slow(x: Any) -> Any:
        """Sums, after work that ends long after the next batches are there."""
        y = x.astype(jnp.float32)
        for _ in range(6):
            y = y @ y / 4096
        return x.sum() + (y[0, 0, 0] * 0).astype(jnp.int32)

    with standpipe.jax.loader(pipeline, sharding, fields=["image"], memory="32MiB", num_workers=2) as batches:
        sums, held = [], []
        for number, batch in enumerate(batches):
            sums.append(slow(batch["image"]))
            if number % 10 == 0:
                held.append((number, batch["image"][:, 1]))
                held.append((number, batch["image"]))
            del batch
    gc.collect()
    expected = image.reshape(-1, ROWS, 64, 64)
    assert [int(each) for each in sums] == expected.sum(axis=(1, 2, 3)).tolist()
    for number, array in held:
        part = expected[number][:, 1] if array.ndim == 2 else expected[number]
        np.testing.assert_array_equal(array, part)


def test_slots_come_back_whatever_is_held() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.zeros((ROWS * 200, 64, 64), np.float32))).batch(ROWS)
    with standpipe.jax.loader(pipeline, fields=("x",), memory="64MiB", num_workers=1) as batches:
        total = jnp.float32(0)
        for batch in batches:
            total += batch["x"].sum()
        assert len(list(batches)) == len(batches) > batches.loader.plan.most_slots // 2
        (slots,) = (owner for owner in batches.loader.memory().owners if owner.name == "slots")
        assert slots.peak <= 5 * batches.loader.plan.batch.layout.stride_bytes


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        (("label",), {"label"}),
        ({"x": "image", "y": "label"}, {"x", "y"}),
        (None, {"image", "label", "index"}),
    ],
)
def test_fields(fields: Any, keys: set[str]) -> None:
    assert set(next(iter(loader(fields=fields)))) == keys


@pytest.mark.parametrize("sharding", [None, BY_ROWS])
def test_a_look_takes_no_batch(sharding: Any) -> None:
    with loader(table(), sharding) as batches:
        for _ in range(5):
            assert_equal(batches.peek(), epochs(1)[0])
        assert isinstance(batches.peek()["image"], jax.Array)
        for batch, expected in zip(batches, epochs(1), strict=True):
            assert_equal(batch, expected)


@pytest.mark.parametrize("fields", [("label",), ("label", "valid"), {"y": "label"}, None])
def test_padding_is_marked_in_every_form(fields: Any) -> None:
    pipeline = sp.Pipeline(sp.Arrays(label=np.arange(70))).batch(64)
    for sharding in (None, BY_ROWS):
        with loader(pipeline, sharding, fields=fields) as batches:
            assert [int(batch["valid"].sum()) for batch in batches] == [64, 6]
    with loader(pipeline.batch(70, last_batch="drop"), fields=("label",)) as batches:
        assert set(next(iter(batches))) == {"label"}


def test_texts_stay_lists() -> None:
    texts = sp.Pipeline(sp.Arrays(x=np.arange(4), name=["a", "b", "c", "d"])).batch(2)
    assert next(iter(loader(texts, fields={"text": "name"})))["text"] == ["a", "b"]
    named = [{"x": np.float32(number), "name": f"number {number}"} for number in range(4)]
    batch = next(iter(loader(sp.Pipeline(sp.MapSource(named)).batch(2), fields=("x", "name"))))
    assert batch["name"] == ["number 0", "number 1"]
    assert isinstance(batch["x"], jax.Array)


def test_epochs_resume_and_set_epoch() -> None:
    expected = epochs(3)
    made, again = loader(), loader()
    for batch, other in zip([*made, *made], expected[: 2 * STEPS], strict=True):
        assert_equal(batch, other)
    half = iter(made)
    for _ in range(2):
        next(half)
    again.load_state_dict(made.state_dict())
    for batch, other in zip(again, expected[2 * STEPS + 2 :], strict=True):
        assert_equal(batch, other)
    again.set_epoch(1)
    assert_equal(next(iter(again)), expected[STEPS])


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ((table(),), {"fields": "image"}, "fields must be names"),
        (
            (table(),),
            {"fields": ("picture",)},
            "there is no field 'picture'. A batch has image, label, index",
        ),
        ((table(), "data"), {}, "sharding must divide the rows.* got 'data'"),
        ((table().batch(5), BY_ROWS), {}, "a batch of 5 rows can't be divided evenly among 2 parts"),
        ((table(19).batch(8, last_batch="partial"), BY_ROWS), {}, "a batch of 3 rows"),
        (
            (
                sp.Pipeline(sp.Arrays(x=np.arange(9), n=np.arange(9))).batch(budget=20, length_column="n"),
                BY_ROWS,
            ),
            {},
            "different numbers of rows",
        ),
    ],
)
def test_what_cant_be_asked(arguments: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(sp.PlanError, match=words):
        loader(*arguments, **settings)


def test_boxes_that_are_not_delivered_are_no_matter() -> None:
    image = np.zeros((16, 12, 12, 3), np.uint8)
    source = sp.Arrays(image=image, label=np.arange(16), boxes=np.zeros((16, 4)))
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(ROWS)
    with loader(pipeline) as batches:
        assert len(list(batches)) == 2
    with pytest.raises(sp.PlanError, match="but not the field 'boxes'"):
        loader(pipeline, fields=None)
