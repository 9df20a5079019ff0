"""The usual loaders of two folders: what they deliver, and that a validation counts every image once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import standpipe as sp
import standpipe.torch

IN_TRAIN, IN_VAL, SIDE = 12, 11, 14
SETTINGS: dict[str, Any] = {"size": SIDE, "memory": "256MiB", "num_workers": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """``train`` and ``val`` of two classes. Each image has a grey of its own."""
    root = tmp_path_factory.mktemp("folders")
    for subset, images in (("train", IN_TRAIN), ("val", IN_VAL)):
        for number in range(images):
            path = root / subset / ("cat", "dog")[number % 2] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (24, 20), (10 * number,) * 3).save(path)
    return root / "train", root / "val"


def made(folders: tuple[Path, Path], *sizes: int, **settings: Any) -> tuple[Any, Any]:
    return standpipe.torch.image_folder_loaders(*folders, *sizes, **{**SETTINGS, **settings})


def numbers(images: torch.Tensor) -> list[int]:
    """Which image each is, by its grey."""
    grey = images[:, 0].mean(dim=(1, 2)).double() * 0.229 + 0.485
    return (grey * 25.5).round().int().tolist()


def test_training_draws_crops_of_a_new_order_each_epoch(folders: tuple[Path, Path]) -> None:
    train, _ = made(folders, 5)
    assert len(train) == 2
    epochs = []
    for _ in range(2):
        seen = []
        for images, labels in train:
            assert (images.shape, images.dtype) == ((5, 3, SIDE, SIDE), torch.float32)
            assert labels.tolist() == [number % 2 for number in numbers(images)]
            seen += numbers(images)
        assert len(set(seen)) == 10
        epochs.append(seen)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"memory": None}])
def test_memory_is_that_of_both_together(folders: tuple[Path, Path], settings: dict[str, Any]) -> None:
    train, val = (each.dataset.loader.plan for each in made(folders, 8, 4, **settings))
    together = train.memory_bytes + val.memory_bytes
    if settings["memory"] is None:
        free = sp.Pipeline(sp.ImageFolder(folders[0])).map(sp.CenterCrop(8)).batch(1).plan().memory_bytes
        assert together < 1.5 * free
    else:
        assert together == 256 << 20
    assert abs(train.memory_bytes - 2 * val.memory_bytes) <= 2


def test_validation_is_the_usual_resize_and_crop(folders: tuple[Path, Path]) -> None:
    _, val = made(folders, 4)
    usual = (
        sp.Pipeline(sp.ImageFolder(folders[1]))
        .map(sp.Resize(16), sp.CenterCrop(SIDE), sp.Normalize())
        .batch(4)
    )
    with usual.loader(memory="256MiB", num_workers=1) as expected:
        for (images, labels, _), batch in zip(val, expected, strict=True):
            np.testing.assert_array_equal(images, batch["image"][: len(images)])
            np.testing.assert_array_equal(labels, batch["label"][: len(labels)])


@pytest.mark.parametrize("batch_size", [1, 4, IN_VAL, IN_VAL + 2])
def test_validation_in_one_process_ends_with_a_shorter_batch(
    folders: tuple[Path, Path], batch_size: int
) -> None:
    _, val = made(folders, 4, batch_size)
    seen: list[int] = []
    for images, _, valid in val:
        assert valid.shape == (len(images),)
        assert valid.all()
        seen += numbers(images)
    assert sorted(seen) == list(range(IN_VAL))


@pytest.mark.parametrize("batch_size", [1, 2, 4, IN_VAL])
def test_validation_in_several_processes_marks_its_padding(
    folders: tuple[Path, Path], batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    steps = set()
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        _, val = made(folders, 4, batch_size)
        steps.add(len(val))
        for images, labels, valid in val:
            assert len(images) == len(labels) == len(valid) == batch_size
            seen += numbers(images[valid])
    assert sorted(seen) == list(range(IN_VAL))
    assert len(steps) == 1


def test_processes_that_are_known_later_change_the_tail(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, val = made(folders, 4)
    assert len(val) == 3
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [valid.tolist() for *_, valid in val] == [[True] * 4, [False] * 4]


def test_dtype_and_memory_format(folders: tuple[Path, Path]) -> None:
    for each in made(folders, 4, dtype=torch.bfloat16, memory_format=torch.channels_last):
        images, labels, *_ = next(iter(each))
        assert (images.dtype, labels.dtype) == (torch.bfloat16, torch.int64)
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_class_folders_that_differ_are_named(folders: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("cat", *(f"owl {number:02}" for number in range(12))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")
    with pytest.raises(
        sp.PlanError, match=r"only train_dir has 'dog'; only val_dir has 'owl 00', .* and 2 more"
    ):
        made((folders[0], tmp_path), 4)
    (tmp_path / "one" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "one" / "cat" / "0.png")
    with pytest.raises(sp.PlanError, match=r"differ.*: only val_dir has 'dog'"):
        made((tmp_path / "one", folders[1]), 1)


@pytest.mark.parametrize(
    ("sizes", "settings", "words"),
    [
        ((0,), {}, "batch_size must be .* got 0"),
        ((4, 0), {}, "val_batch_size must be .* got 0"),
        ((4,), {"size": 0}, "size must be .* got 0"),
        ((4,), {"dtype": torch.int8}, "dtype must be .* got torch.int8"),
        ((4,), {"num_workers": -1}, "num_workers must be .* got -1"),
    ],
)
def test_what_cant_be_asked(
    folders: tuple[Path, Path], sizes: tuple[int, ...], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(sp.PlanError, match=words):
        made(folders, *sizes, **settings)


def test_valid_can_be_asked_of_any_loader() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(10))).batch(4, last_batch="partial")
    made = standpipe.torch.loader(
        pipeline, fields={"x": "x", "mask": "valid"}, memory="256MiB", num_workers=1
    )
    assert [batch["mask"].tolist() for batch in made] == [[True] * 4, [True] * 4, [True] * 2]
