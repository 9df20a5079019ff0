"""The digest of an epoch depends on its rows alone, not on how they are made."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture, write_list, write_photos

ROWS = 23


@pytest.fixture
def photos(tmp_path: Path) -> sp.Pipeline:
    train = sp.Pipeline(write_photos(tmp_path, ROWS)).shuffle(seed=3)
    return train.map(sp.RandomResizedCrop(16), sp.RandomHorizontalFlip()).batch(3, last_batch="pad")


def sha256(pipeline: sp.Pipeline, **options: Any) -> str:
    found = sp.digest_epoch(pipeline, memory="256MiB", **{"num_workers": 1, **options})
    assert found.rows == ROWS
    return found.sha256


@pytest.mark.parametrize(
    "options",
    [
        *({"num_workers": workers} for workers in range(2, 6)),
        {"executor": "inline"},
        {"executor": "process", "num_workers": 2},
        {"ranks": 3},
        {"stop_at": [1, 5]},
        {"stop_at": [8]},  # the last step: nothing is left
        {"stop_at": [2, 3], "ranks": [2, 1, 3]},
    ],
    ids=repr,
)
def test_it_is_the_same_however_rows_are_made(photos: sp.Pipeline, options: dict[str, Any]) -> None:
    assert sha256(photos, **options) == sha256(photos)


@pytest.mark.parametrize(
    "options",
    [
        {"executor": "inline"},
        {"executor": "thread", "num_workers": 4},
        {"executor": "process", "num_workers": 2, "ranks": [2, 1], "stop_at": [3]},
    ],
    ids=repr,
)
def test_encoded_images_of_a_dataset_are_as_in_files(
    photos: sp.Pipeline, options: dict[str, Any], tmp_path: Path
) -> None:
    files = sorted(tmp_path.glob("*.jpg"))
    samples = [{"image": file.read_bytes(), "label": number} for number, file in enumerate(files)]
    dataset = sp.MapSource(samples, encoded="image")
    assert sha256(replace(photos, source=dataset), **options) == sha256(photos)


def test_padding_and_the_batch_size_do_not_count(photos: sp.Pipeline) -> None:
    assert sha256(photos.batch(5, last_batch="partial")) == sha256(photos)


def test_it_differs_where_a_row_does(photos: sp.Pipeline, tmp_path: Path) -> None:
    found = {sha256(photos), sha256(photos, epoch=1), sha256(photos.shuffle(seed=4))}
    found.add(sha256(photos.map(sp.ToDtype("float32"))))
    pictures = [encoded(picture(seed)) for seed in range(ROWS)]
    (tmp_path / "other").mkdir()
    pictures[7] = encoded(255 - picture(7))
    other = write_list(tmp_path / "other", pictures)
    moved = sp.Pipeline(other).shuffle(seed=3).map(sp.RandomResizedCrop(16), sp.RandomHorizontalFlip())
    found.add(sha256(moved.batch(3, last_batch="pad")))
    assert len(found) == 5


def test_it_is_what_anybody_computes() -> None:
    """SHA-256 of the fields' digests, which are of dtype and shape of a row, and of the rows in order."""
    numbers = sp.Arrays(x=np.arange(6, dtype=np.int16).reshape(3, 2))
    found = sp.digest_epoch(sp.Pipeline(numbers).batch(2, last_batch="pad"))
    x = hashlib.sha256(b"<i2 (2,);" + np.arange(6, dtype="<i2").tobytes()).hexdigest()
    index = hashlib.sha256(b"<i8 ();" + np.arange(3, dtype="<i8").tobytes()).hexdigest()
    whole = hashlib.sha256(f"epoch 1, 3 rows;'index' {index};'x' {x};".encode()).hexdigest()
    assert (found.sha256, found.rows, found.steps) == (whole, 3, 2)


class Samples:
    """Python samples of text and numbers."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"text": f"number {index}", "parts": [index, None, b"x"], "value": np.float32(index)}


def test_python_samples(photos: sp.Pipeline) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Samples())).shuffle(seed=1)
    pipeline = pipeline.batch(4, last_batch="partial", collate={"text": list, "parts": list})
    assert sha256(pipeline, executor="process", num_workers=2) == sha256(
        pipeline, executor="inline", stop_at=[3]
    )
    with pytest.raises(sp.PlanError, match="the field 'parts' has a set, which has no digest"):
        sha256(pipeline.map(lambda parts: {1}, field="parts"), executor="thread")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stop_at": [9]}, "the epoch has only 8 steps"),
        ({"stop_at": [3, 3]}, "must be increasing"),
        ({"stop_at": [0]}, "must be increasing"),
        ({"ranks": 0}, "must be an integer from 1 to 1024, or one for each of 1 parts"),
        ({"ranks": [1, 2]}, "one for each of 1 parts"),
    ],
)
def test_what_cant_be_asked_for(photos: sp.Pipeline, options: dict[str, Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sha256(photos, **options)
