"""On a CUDA device: what streams that are threads can't show. Nothing here runs where there is none."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
import standpipe.torch
from painted import painted

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

ROWS, SIDE = 32, 64
SETTINGS: dict[str, Any] = {"memory": "512MiB"}
MIXES = ((), (sp.MixUp(0.4, 1000),), (sp.CutMix(1.0, 1000),), (sp.MixUp(0.4, 1000), sp.CutMix(1.0, 1000)))


def images(batches: int, *mixes: Any) -> sp.Pipeline:
    records = ROWS * batches
    source = sp.Arrays(
        image=np.random.default_rng(0).integers(0, 256, (records, SIDE, SIDE, 3), np.uint8),
        label=np.arange(records) % 1000,
    )
    pipeline = sp.Pipeline(source).shuffle(seed=5).map(sp.RandomHorizontalFlip(), sp.Normalize()).batch(ROWS)
    return pipeline.map_batch(*mixes) if mixes else pipeline


def loader(pipeline: sp.Pipeline, **settings: Any) -> standpipe.torch.TorchLoader:
    return standpipe.torch.loader(pipeline, **{"device": "cuda", **SETTINGS, **settings})


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.synchronize()


@pytest.mark.parametrize("mixes", MIXES, ids=str)
@pytest.mark.parametrize("memory_format", [None, torch.channels_last])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_a_gpu_has_the_hosts_bits(dtype: Any, memory_format: Any, mixes: Any) -> None:
    pipeline, form = images(6, *mixes), {"dtype": dtype, "memory_format": memory_format}
    here, there = loader(pipeline, device="cpu", **form), loader(pipeline, **form)
    for _ in range(2):
        for expected, batch in zip(here, there, strict=True):
            for one, other in zip(expected, batch, strict=True):
                assert other.is_cuda
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                assert torch.equal(one, other.cpu())


def test_what_is_dropped_at_once_is_whole() -> None:
    """A step that lags behind by dozens of batches, while slots and memory go round."""
    pipeline = images(200)
    sums = []
    heavy = torch.randn(2048, 2048, device="cuda")
    for image, label in loader(pipeline):
        heavy = heavy @ heavy / 50
        sums.append((image.double().sum(), label.sum()))
        del image, label
    expected = [(image.double().sum(), label.sum()) for image, label in loader(pipeline, device="cpu")]
    for (image, label), (same_image, same_label) in zip(sums, expected, strict=True):
        assert label.item() == same_label.item()
        assert abs(image.item() - same_image.item()) < 1e-6 * abs(same_image.item()) + 1e-6


def test_host_batches_may_be_sent_and_dropped() -> None:
    """Ten thousand ``.to(device, non_blocking=True)`` of memory that goes back to the workers at once."""
    numbers = np.random.default_rng(0).integers(0, 1 << 30, (ROWS * 100, 1024))
    pipeline = sp.Pipeline(sp.Arrays(x=numbers)).shuffle(seed=5).batch(ROWS)
    made = standpipe.torch.loader(pipeline, fields=("x", "index"), **SETTINGS)
    sums = torch.from_numpy(numbers.sum(axis=1)).to("cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(100):
        for x, index in made:
            sent, which = x.to("cuda", non_blocking=True), index.to("cuda", non_blocking=True)
            del x, index
            wrong += (sent.sum(1) != sums[which]).sum()
    assert wrong.item() == 0


def test_another_stream_gets_whole_batches() -> None:
    expected = [label.tolist() for _, label in loader(images(20), device="cpu")]
    stream = torch.cuda.Stream()
    seen = []
    with torch.cuda.stream(stream):
        for _, label in loader(images(20)):
            seen.append(label.clone())
    stream.synchronize()
    assert [label.tolist() for label in seen] == expected


def test_a_captured_step_reads_one_place() -> None:
    made = loader(images(12), static_buffers=True, dtype=torch.float16)
    batches = iter(made)
    image, label = next(batches)
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        total += image.double().sum() + label.sum()
    total.zero_()
    graph.replay()
    for again, _ in batches:
        assert again.data_ptr() == image.data_ptr()
        graph.replay()
    expected = sum(
        image.double().sum().item() + label.sum().item()
        for image, label in loader(images(12), device="cpu", dtype=torch.float16)
    )
    assert abs(total.item() - expected) < 1e-6 * abs(expected) + 1e-3


@pytest.mark.parametrize("form", ["torchvision", "detr", "yolo", None])
def test_boxes_on_a_gpu_are_the_hosts(form: Any, tmp_path: Path) -> None:
    """Compare each form that detectors take, with images padded to the largest and of another dtype."""
    resized = form == "yolo"
    source = painted(tmp_path, 20, keypoints=True, labels="contiguous" if resized else "category_id")
    pipeline = sp.Pipeline(source).decode(flip_pairs=((1, 2),)).shuffle(seed=3)
    sizes = [sp.Resize((64, 64))] if resized else []
    padded = {} if resized else {"image": sp.Pad(max_shape=(3, 128, 128), to_multiple_of=32)}
    pipeline = pipeline.map(sp.RandomHorizontalFlip(), *sizes, sp.Normalize()).batch(4, collate=padded)
    given = {"fields": None} if form is None else {"targets": form}
    here = loader(pipeline, device="cpu", dtype=torch.bfloat16, **given)
    there = loader(pipeline, dtype=torch.bfloat16, **given)
    for _ in range(2):
        for expected, batch in zip(here, there, strict=True):
            for one, other in zip(leaves(expected), leaves(batch), strict=True):
                if not isinstance(one, torch.Tensor):
                    assert one == other
                    continue
                assert other.is_cuda
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                assert torch.equal(one, other.cpu())


def leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors and other values of a batch, in order."""
    if isinstance(value, dict):
        for name in sorted(value):
            yield from leaves(value[name])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def test_memory_is_the_plans_and_comes_back() -> None:
    made = loader(images(40), dtype=torch.bfloat16)
    plan = made.dataset.loader.plan
    coming, held = plan.device.memory(plan.batch.layout.in_slot, plan.samples.finish)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        for batch in made:
            batch[0].sum()
        del batch
        assert torch.cuda.memory_allocated() - before < 1 << 20
    assert torch.cuda.max_memory_allocated() - before <= coming + 2 * held + (1 << 20)


def test_train_and_validation_take_turns_with_memory() -> None:
    train, val = loader(images(20)), loader(images(8))
    reserved = []
    for _ in range(8):
        for batches in (train, val):
            for batch in batches:
                batch[0].sum()
            del batch
        reserved.append(torch.cuda.memory_reserved())
    assert len(set(reserved[2:])) == 1


def test_slots_are_pinned() -> None:
    made = loader(images(4))
    next(iter(made))
    run: Any = made.dataset.loader._run
    assert run._delivery._device._pins
    assert torch.from_numpy(run._ring.view(0)).is_pinned()


def test_nothing_begins_on_other_devices() -> None:
    """A process that has device 1 has no context on device 0."""
    if torch.cuda.device_count() < 2:
        return
    made = loader(images(4), device="cuda:1")
    for image, _ in made:
        assert image.device.index == 1
    listed = os.popen("nvidia-smi --query-compute-apps=pid,gpu_uuid --format=csv,noheader").read()
    own = {line.split(", ")[1] for line in listed.splitlines() if line.startswith(f"{os.getpid()},")}
    assert len(own) <= 1
