"""The loader for PyTorch: a real DataLoader around standpipe's batches."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import standpipe as sp
import standpipe.torch
from samples import Samples

ROWS, STEPS = 4, 8
SETTINGS: dict[str, Any] = {"memory": "256MiB", "num_workers": 2, "executor": "thread"}


def table(records: int = ROWS * STEPS) -> sp.Pipeline:
    random = np.random.default_rng(0)
    return (
        sp.Pipeline(
            sp.Arrays(
                image=random.integers(0, 256, (records, 8, 8, 3), np.uint8),
                label=np.arange(records),
                x=random.random((records, 3), np.float32),
            )
        )
        .shuffle(seed=5)
        .batch(ROWS)
    )


def loader(pipeline: sp.Pipeline | None = None, **settings: Any) -> standpipe.torch.TorchLoader:
    return standpipe.torch.loader(pipeline or table(), **{**SETTINGS, **settings})


def labels(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def epochs(number: int) -> list[list[int]]:
    """All labels of the first epochs, as standpipe's own loader gives them."""
    with table().loader(**SETTINGS) as batches:
        return [batch["label"].tolist() for _ in range(number) for batch in batches]


def test_it_is_a_dataloader_of_torch() -> None:
    made = loader()
    assert isinstance(made, DataLoader)
    assert isinstance(made.dataset, IterableDataset)
    assert (made.batch_size, made.num_workers, len(made), len(made.dataset)) == (None, 0, STEPS, STEPS)


def test_sizes_change_by_step() -> None:
    size: Any = sp.PerStep([4, 6], multiple_of=1)
    resized = table().map(sp.RandomResizedCrop(size), sp.Normalize())
    with resized.loader(**SETTINGS) as arrays:
        expected = [batch["image"].copy() for batch in arrays]
    found = [image for image, _ in loader(resized)]
    assert {image.shape for image in found} == {(ROWS, 3, 4, 4), (ROWS, 3, 6, 6)}
    assert all(np.array_equal(image, other) for image, other in zip(found, expected, strict=True))


def test_batches_are_standpipes() -> None:
    with table().loader(**SETTINGS) as arrays:
        for (image, label), array in zip(loader(), arrays, strict=True):
            assert image.dtype == torch.uint8
            np.testing.assert_array_equal(image.numpy(), array["image"])
            np.testing.assert_array_equal(label.numpy(), array["label"])


def test_a_look_has_the_form_of_a_batch_and_takes_none() -> None:
    made = loader(dtype=torch.float64, fields=("x", "label", "valid"))
    shown = made.peek()
    assert made.state_dict()["consumed"] == 0
    x, label, valid = next(iter(made))
    assert all(map(torch.equal, shown, (x, label, valid)))
    assert (x.dtype, len(shown)) == (torch.float64, 3)


def test_tensors_share_the_batchs_memory_and_keep_it() -> None:
    made = loader(table(ROWS * 64), fields="label")
    kept = [batch[1:] for batch in made]  # slices: views of views
    gc.collect()
    assert torch.cat(kept).unique().numel() == 3 * 64
    memory = made.dataset.loader.memory()
    assert memory is not None
    iterator = iter(made.dataset.loader)
    batch = next(iterator)
    assert made.dataset._order.form.batch(batch).data_ptr() == batch["label"].ctypes.data


@pytest.mark.parametrize("memory_format", [None, torch.channels_last])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("transforms", [(), (sp.ToDtype("float16"),), (sp.ToLayout("NHWC"),)])
def test_native_code_writes_what_is_wanted(dtype: Any, memory_format: Any, transforms: Any) -> None:
    """No tensor is converted or copied; its bits are as if it were."""
    pipeline = table().map(sp.Normalize(), *transforms)
    with pipeline.loader(**SETTINGS) as arrays:
        made = loader(pipeline, dtype=dtype, memory_format=memory_format, fields="image")
        for image, array in zip(made, arrays, strict=True):
            expected = torch.from_numpy(array["image"]).to(dtype)
            if memory_format is not None:
                expected = expected.contiguous(memory_format=memory_format)
            assert torch.equal(image, expected)
            assert (image.dtype, image.shape) == (expected.dtype, expected.shape)
            if not transforms:
                assert image.stride() == expected.stride()
            if dtype is not torch.float64 and not (memory_format and transforms):
                assert "1 lent" in made.dataset.loader.memory()["slots"].note
        assert made.dataset.loader.plan.digest == arrays.plan.digest


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        (("x", "label"), "tuple of 2"),
        (["x"], "tuple of 1"),
        ("x", "Tensor"),
        ({"inputs": "x"}, "dict of inputs"),
        (None, "dict of image, index, label, x"),
    ],
)
def test_forms_of_a_batch(fields: Any, shape: str) -> None:
    batch = next(iter(loader(fields=fields)))
    if isinstance(batch, tuple):
        assert f"tuple of {len(batch)}" == shape
    elif isinstance(batch, dict):
        assert f"dict of {', '.join(sorted(batch))}" == shape
    else:
        assert type(batch).__name__ == shape


def test_dtype_and_memory_format() -> None:
    pipeline = table().map(sp.Normalize())
    image, x, label = next(
        iter(
            loader(
                pipeline,
                fields=("image", "x", "label"),
                dtype=torch.bfloat16,
                memory_format=torch.channels_last,
            )
        )
    )
    assert (image.dtype, x.dtype, label.dtype) == (torch.bfloat16, torch.bfloat16, torch.int64)
    assert image.shape == (ROWS, 3, 8, 8)
    assert image.is_contiguous(memory_format=torch.channels_last)
    exact, _ = next(iter(loader(pipeline)))
    torch.testing.assert_close(image, exact.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fields": ("picture", "label")}, "A batch has image, label, x, index"),
        ({"fields": ()}, "fields must be names"),
        ({"fields": 3}, "fields must be names"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"dtype": torch.int32}, "a floating-point dtype"),
        ({"dtype": "bfloat16"}, "a floating-point dtype"),
        ({"memory_format": "channels_last"}, r"torch\.channels_last"),
        ({"num_workers": 0}, "num_workers must be .* got 0"),
    ],
)
def test_what_cant_be_asked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(sp.PlanError, match=words):
        loader(**settings)


def test_fields_of_python_code_are_known_with_the_first_batch() -> None:
    pipeline = table().map(lambda x: x + 1, field="x")
    with pytest.raises(sp.PlanError, match="A batch has"):
        next(iter(loader(pipeline, fields="y")))


def test_epochs_advance_by_themselves() -> None:
    made = loader(fields="label")
    assert labels(made) + labels(made) == epochs(2)


def test_epochs_follow_set_epoch() -> None:
    made = loader(fields="label")
    expected = epochs(3)
    made.set_epoch(2)
    assert labels(made) == expected[2 * STEPS :]
    made.dataset.set_epoch(0)
    made.set_epoch(0)
    assert labels(made) == expected[:STEPS]


@pytest.mark.parametrize("delivered", range(2 * STEPS + 1))
def test_it_goes_on_from_its_state(delivered: int) -> None:
    expected = epochs(3)
    first, second = loader(fields="label"), loader(fields="label")
    seen: list[list[int]] = []
    while len(seen) < delivered:
        for batch in first:
            seen.append(batch.tolist())
            if len(seen) == delivered:
                break
    second.load_state_dict(first.state_dict())
    second.set_epoch(delivered // STEPS)  # as frameworks do that count epochs
    assert seen + labels(second) == expected[: delivered - delivered % STEPS + STEPS]


def test_an_epoch_that_contradicts_a_state_is_an_error() -> None:
    first, second = loader(), loader()
    list(first)
    next(iter(first))
    second.load_state_dict(first.state_dict())
    with pytest.raises(sp.PlanError, match=r"set_epoch\(0\) comes after load_state_dict\(\) of epoch 1"):
        second.dataset.set_epoch(0)
    second.set_epoch(1)
    assert len(list(second)) == STEPS - 1
    second.set_epoch(0)
    assert len(list(second)) == STEPS


def test_it_travels_with_where_it_stands() -> None:
    made = loader(fields="label")
    iterator = iter(made)
    seen = [next(iterator).tolist() for _ in range(3)]
    copy = pickle.loads(pickle.dumps(made.dataset))
    assert seen + labels(DataLoader(copy, batch_size=None)) == epochs(1)


def test_a_loader_of_torch_around_the_dataset_gives_the_same() -> None:
    assert labels(DataLoader(loader(fields="label").dataset, batch_size=None)) == epochs(1)


def test_worker_processes_of_torch_are_refused() -> None:
    dataset = loader(fields="label").dataset
    with pytest.raises(sp.PlanError, match="every batch 2 times"):
        list(DataLoader(dataset, batch_size=None, num_workers=2))


def test_each_rank_of_a_launcher_gets_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        parts.append(labels(loader(fields="label")))
        assert len(parts[rank]) == STEPS // 2
        assert labels(loader(fields="label", shard=False)) == epochs(1)
        assert labels(loader(table().shard(1, 4), fields="label")) == labels(
            loader(table().shard(1, 4), fields="label")
        )
        assert len(loader(table().shard(1, 4))) == STEPS // 4
    together = [label for part in parts for batch in part for label in batch]
    assert sorted(together) == list(range(ROWS * STEPS))


def test_a_rank_that_changes_after_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loader(fields="label")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(made) == STEPS // 2  # nothing was made yet
    next(iter(made))
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(sp.PlanError, match="was rank 1 of 2 when"):
        iter(made)


def test_close_ends_its_threads() -> None:
    made = loader()
    next(iter(made))
    made.close()
    with pytest.raises(sp.StandpipeError, match="closed"):
        iter(made)


def test_boxes_that_are_not_delivered_are_no_matter() -> None:
    sample = {"image": np.zeros((12, 12, 3), np.uint8), "label": 1, "target": {"boxes": np.zeros((2, 4))}}
    pipeline = sp.Pipeline(sp.MapSource(Samples(lambda _: sample))).map(sp.CenterCrop(8)).batch(ROWS)
    assert len(list(loader(pipeline))) == 2
    assert len(list(loader(pipeline, fields={"pixel_values": "image"}))) == 2
    for fields in (None, ("image", "target")):
        with pytest.raises(sp.PlanError, match=r'moves .* but not the field target\["boxes"\]'):
            next(iter(loader(pipeline, fields=fields)))
    renamed = pipeline.map_batch(lambda batch: {**batch, "label": batch["target"]})
    with pytest.raises(sp.PlanError, match=r'moves .* but not the field target\["boxes"\]'):
        next(iter(loader(renamed)))


def test_torchs_profiler_shows_the_waiting_as_it_shows_torchs_dataloader() -> None:
    around_batches = DataLoader(loader().dataset, batch_size=None)
    found = []
    for batches in (loader(), around_batches):
        with torch.autograd.profiler.profile() as profile:
            delivered = sum(1 for _ in batches)
        found += [
            (each.key.partition("#")[0], each.key.rpartition(".")[2], each.count, delivered)
            for each in profile.key_averages()
            if "DataLoader" in each.key
        ]
    assert found == [("enumerate(DataLoader)", "__next__", STEPS + 1, STEPS)] * 2
