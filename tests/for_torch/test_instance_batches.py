"""Test what torch's loader makes of pipelines whose batches have instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import standpipe as sp
import standpipe.torch
from painted import painted

LARGEST = (3, 120, 120)


@pytest.fixture
def pipeline(tmp_path: Path) -> sp.Pipeline:
    return sp.Pipeline(painted(tmp_path, 6)).map(sp.Normalize())


def first(pipeline: sp.Pipeline, **options: Any) -> Any:
    return next(iter(standpipe.torch.loader(pipeline, num_workers=1, memory="256MiB", **options)))


def test_images_in_a_list_are_tensors(pipeline: sp.Pipeline) -> None:
    images, targets = first(
        pipeline.batch(4, collate={"image": list}), targets="torchvision", dtype=torch.bfloat16
    )
    assert [image.dtype for image in images] == [torch.bfloat16] * 4
    assert len({image.shape for image in images}) > 1
    assert targets[3]["boxes"].shape == (3, 4)


def test_only_images_get_another_dtype(pipeline: sp.Pipeline) -> None:
    padded = pipeline.batch(4, collate={"image": sp.Pad(max_shape=LARGEST)})
    batch = first(padded, fields=None, dtype=torch.bfloat16)
    assert batch["image"].dtype == torch.bfloat16
    assert batch["boxes"].dtype == torch.float32
    assert batch["to_original"].dtype == torch.float64


def test_a_partial_last_batch_keeps_all_other_settings(pipeline: sp.Pipeline) -> None:
    batched = pipeline.batch(4, collate={"image": list}, instances=sp.Pad(length=7), group_by="aspect_ratio")
    with batched.loader(memory="256MiB", num_workers=1) as loader:
        expected = next(iter(loader))
        index, shape = expected["index"].tolist(), expected["boxes"].shape
        del expected
    batch = first(batched, fields=None)
    assert batch["index"].tolist() == index
    assert batch["boxes"].shape == shape


@pytest.mark.parametrize("form", ["torchvision", "detr"])
def test_targets_say_which_rows_are_padding(pipeline: sp.Pipeline, form: Any) -> None:
    padded = pipeline.batch(4, last_batch="pad", collate={"image": sp.Pad(max_shape=LARGEST)})
    *_, last = standpipe.torch.loader(padded, targets=form, num_workers=1, memory="256MiB")
    assert [bool(target["valid"]) for target in last[-1]] == [True, True, False, False]
