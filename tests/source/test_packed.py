"""A packed list reads as the list that it was made of."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import standpipe as sp

LISTS: list[list[Any]] = [
    ["", "a", "ä€𝄞", "\udcff of a file's name", "\0"],
    [b"", b"\xff\0", b"ab"],
    [1, -(2**63), 2**63 - 1],
    [0.5, -1e300],
    [("a", 1, b"x"), ("", 2, b""), ("b", -3, b"y")],
]


@pytest.mark.parametrize("items", LISTS, ids=lambda items: type(items[0]).__name__)
def test_a_packed_list_reads_as_a_list(items: list[Any]) -> None:
    packed = sp.share_list(items)
    size = len(items)
    for index in [*range(-size, size), np.int64(1), np.int64(-1), True]:
        assert packed[index] == items[index]
        assert type(packed[index]) is type(items[index])
    assert packed[1:] == items[1:]
    assert packed[::-1] == items[::-1]
    assert list(packed) == items == list(pickle.loads(pickle.dumps(packed)))


@pytest.mark.parametrize("items", LISTS, ids=lambda items: type(items[0]).__name__)
@pytest.mark.parametrize("beyond", [0, 1, 1 << 40, -1, -(1 << 40)])
def test_there_is_nothing_beyond_a_packed_list(items: list[Any], beyond: int) -> None:
    packed = sp.share_list(items)
    with pytest.raises(IndexError):
        packed[len(items) + beyond if beyond >= 0 else beyond - len(items)]
