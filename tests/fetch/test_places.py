"""Places for fetched bytes: records that are near in an object are near in the ring, and no byte is lent twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from standpipe.engine.fetching import MOST_GAP_BYTES, MOST_RANGE_BYTES, laid_out
from standpipe.fetch.messages import ROW
from standpipe.fetch.process import pieces_of
from standpipe.fetch.ring import PIECE_BYTES, PlacesRing


@pytest.fixture
def ring() -> Iterator[PlacesRing]:
    with closing(PlacesRing(3 * PIECE_BYTES)) as ring:
        yield ring


def ranges(records: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return object, offset and length of the requests for records."""
    rows = np.array(records, np.int64)
    places, size = laid_out(*rows.T)
    assert (np.diff(places) > 0).all()
    assert size == places[-1] + rows[-1, 2]
    data = b"".join(
        ROW.pack(*record, place, -1) for record, place in zip(records, places.tolist(), strict=True)
    )
    pieces = pieces_of(1, data)
    assert sum(len(piece.rows) for piece in pieces) == len(records)
    return [(piece.number, piece.offset, piece.length) for piece in pieces]


def test_neighbours_are_one_request() -> None:
    far = MOST_GAP_BYTES + 1
    assert ranges([(0, 100, 50), (0, 150, 50), (0, 300, 7)]) == [(0, 100, 207)]
    assert ranges([(0, 0, 50), (1, 50, 50)]) == [(0, 0, 50), (1, 50, 50)]
    assert ranges([(0, 0, 50), (0, 50 + far, 50)]) == [(0, 0, 50), (0, 50 + far, 50)]
    assert ranges([(0, 0, 50), (0, 0, 50)]) == [(0, 0, 50), (0, 0, 50)]  # the same record twice
    half = MOST_RANGE_BYTES // 2 + 1
    assert ranges([(0, 0, half), (0, half, half)]) == [(0, 0, half), (0, half, half)]


def test_no_byte_is_lent_twice(ring: PlacesRing) -> None:
    draws, lent = random.Random(1), list[tuple[int, int]]()
    for _ in range(500):
        if lent and draws.random() < 0.5:
            ring.give_back(*lent.pop(draws.randrange(len(lent))))
        size = draws.randrange(1, PIECE_BYTES)
        begin = ring.take(size)
        if begin is not None:
            assert all(begin + size <= other or other + more <= begin for other, more in lent)
            assert begin + size <= ring.size
            lent.append((begin, size))
    for place in lent:
        ring.give_back(*place)
    assert ring.take(ring.size) == 0
    assert ring.take(1) is None


def test_a_part_can_be_kept_free(ring: PlacesRing) -> None:
    assert ring.take(PIECE_BYTES, most=PIECE_BYTES) == 0
    assert ring.take(1, most=PIECE_BYTES) is None
    assert ring.take(1) == PIECE_BYTES
