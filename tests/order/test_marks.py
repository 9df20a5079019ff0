"""Numbers of marked records against NumPy, as bits and as tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from standpipe.order import Marks, Table, numbers_of

CHUNK = 1 << 18


def chunks(marks: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    for start in range(0, len(marks), CHUNK):
        yield marks[start : start + CHUNK]


@given(
    n=st.integers(1, 3_000), share=st.sampled_from([0, 0.001, 0.02, 0.5, 0.99, 1]), seed=st.integers(0, 99)
)
def test_every_marked_record_is_found(n: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    marks = random.random(n) < share
    found, expected = Marks.from_chunks(chunks(marks), n), np.flatnonzero(marks)
    assert len(found) == len(expected)
    assert np.concatenate([*found.chunks()]).tolist() == expected.tolist()
    places = random.integers(0, len(expected), 50) if len(expected) else np.empty(0, np.int64)
    assert found.at(places).tolist() == expected[places].tolist()
    for outside in (-1, len(expected)):
        with pytest.raises((IndexError, ValueError)):
            found.at(np.array([outside]))


@pytest.mark.parametrize(
    ("n", "share", "kind"), [(10**6, 0.9, Table), (3 * 10**6, 0.9, Marks), (10**7, 0.1, Table)]
)
def test_the_form_that_is_small_and_quick(n: int, share: float, kind: type) -> None:
    marks = np.random.default_rng(1).random(n) < share
    found, expected = numbers_of(chunks(marks), n), np.flatnonzero(marks)
    assert isinstance(found, kind)
    assert len(found) == len(expected)
    places = np.random.default_rng(2).integers(0, len(expected), 10_000)
    assert np.array_equal(found.at(places), expected[places])


def test_above_2_to_the_26_they_are_a_table() -> None:
    n = (1 << 26) + 5
    marked = np.array([0, 7, CHUNK, n - 6, n - 1])

    def marks() -> Iterator[NDArray[np.bool_]]:
        for start in range(0, n, CHUNK):
            chunk = np.zeros(min(CHUNK, n - start), np.bool_)
            chunk[marked[(marked >= start) & (marked < start + CHUNK)] - start] = True
            yield chunk

    found = numbers_of(marks(), n)
    assert isinstance(found, Table)
    assert found.read(0, len(found)).tolist() == marked.tolist()
