"""The moves of a batch's images, as the filling thread knows them before the images are made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from painted import painted
from standpipe.engine.moves import Tracer
from standpipe.order import Cursor

ROWS = 7


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tracer() -> Tracer:
    # A random resize and a crop; some rows have one move more than others.
    transforms = [
        sp.RandomResizedCrop(32),
        sp.RandomHorizontalFlip(),
        sp.RandomApply([sp.RandomRotation(30)]),
    ]
    pipeline = sp.Pipeline(sp.Arrays(image=np.zeros((ROWS, 9, 9, 3), np.uint8))).map(*transforms)
    return Tracer.of(pipeline.batch(ROWS).plan(memory="256MiB"))


def test_rows_made_again_have_the_moves_of_their_attempt(tmp_path: Path) -> None:
    traces, source, positions = tracer(), painted(tmp_path, ROWS).open(), np.arange(ROWS)
    records = source.locate(np.arange(ROWS))
    whole = traces.trace(Cursor(1), records, positions, np.zeros(ROWS, np.int64))
    assert whole.moves["image"].shape[::2] == (ROWS, 12)
    assert (whole.moves["image"][:, 0, 9:11] == whole.sizes).all()
    assert (whole.moves["image"][:, -1, 9:11] == 32).all()

    rows, indices, attempts = np.array([1, 5]), np.array([6, 2]), np.array([1, 2])
    again = traces.trace(Cursor(1), source.locate(indices), positions[rows], attempts)
    present = np.array([0, 6, 2, 3, 4, 2, 6])
    expected = traces.trace(Cursor(1), source.locate(present), positions, np.array([0, 1, 0, 0, 0, 2, 0]))
    first = whole.moves["image"]
    assert (expected.sizes[rows] == again.sizes).all()
    assert (expected.moves["image"][rows] == again.moves["image"]).all()
    assert not (expected.moves["image"][rows] == first[rows]).all()
    assert (expected.moves["image"][[0, 2, 3, 4]] == first[[0, 2, 3, 4]]).all()
