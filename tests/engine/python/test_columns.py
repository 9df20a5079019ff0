"""Datasets that give many samples at once, field by field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from preloaded import SERVER

ROWS = 64
SETTINGS: dict[str, Any] = {"memory": "1GiB", "num_workers": 1, "prefetch": 1}


class Squares:
    """Numbers with their squares, at once or one by one; ``bad`` ones can't be made."""

    def __init__(self, bad: frozenset[int] = frozenset()) -> None:
        self.bad = bad
        self.at_once = self.alone = 0

    def __len__(self) -> int:
        return 10 * ROWS

    def square(self, index: int) -> int:
        if index in self.bad:
            raise KeyError(f"no square of {index}")
        return index * index

    def __getcolumns__(self, indices: Iterable[int]) -> dict[str, Any]:
        self.at_once += 1
        squares = [self.square(index) for index in indices]
        return {"square": np.array(squares), "text": [f"{square}" for square in squares]}

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.alone += 1
        return {"square": self.square(index), "text": f"{self.square(index)}"}


class Wider(Squares):
    """At once they are floats, which the slot isn't for."""

    def __getcolumns__(self, indices: Iterable[int]) -> dict[str, Any]:
        found = super().__getcolumns__(indices)
        return {**found, "square": found["square"].astype(np.float64)}


def _pipeline(dataset: Squares) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(dataset)).batch(ROWS)


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
@pytest.mark.parametrize("kind", [Squares, Wider])
def test_batches_are_those_of_one_sample_after_another(executor: str, kind: type[Squares]) -> None:
    with _pipeline(kind()).loader(executor=executor, mp_context=SERVER, **SETTINGS) as loader:
        for batch in loader:
            assert batch["square"].tolist() == (batch["index"] ** 2).tolist()
            assert batch["text"] == [f"{square}" for square in batch["square"]]


def test_no_sample_is_asked_for_alone_but_the_first() -> None:
    dataset = Squares()
    with _pipeline(dataset).loader(executor="inline", **SETTINGS) as loader:
        list(loader)
    assert dataset.alone == 1  # which is measured
    assert dataset.at_once < 10 * ROWS / 4


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_bad_sample_is_named(executor: str) -> None:
    pipeline = _pipeline(Squares(frozenset([ROWS + 5])))
    with pipeline.loader(executor=executor, mp_context=SERVER, **SETTINGS) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(sp.SampleError, match="no square of 69") as failed:
            next(batches)
    assert failed.value.index == ROWS + 5


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_bad_sample_is_replaced(executor: str) -> None:
    pipeline = _pipeline(Squares(frozenset([3, ROWS + 5]))).on_error(sp.Replace(at_most=5))
    with pipeline.loader(executor=executor, mp_context=SERVER, **SETTINGS) as loader:
        squares = np.concatenate([batch["square"] for batch in loader])
        assert [bad.index for bad in loader.bad_samples] == [3, ROWS + 5]
    assert len(squares) == 10 * ROWS
    assert not {9, (ROWS + 5) ** 2} & set(squares.tolist())
