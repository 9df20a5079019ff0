"""A row in the batch is written only by a program whose stages make its size."""

from typing import Any

import numpy as np
import pytest

from standpipe import _native
from standpipe.engine.watchdog.board import new_heartbeat
from standpipe.spec import UInt8Array

KEY = (0, 0, 0, 0)


def no_pillow(*_: object) -> tuple[UInt8Array, bool]:
    raise AssertionError("pixels need no decoder")


def written(height: int, width: int, **format_of: Any) -> tuple[str, bytes]:
    """Return the error for a picture of 5 × 7 pixels whose row has another size, and the row."""
    stage = _native.GeometryStage()
    stage.window(place=0, size=(5, 7))
    head = _native.Head(0, [stage], _native.RowFormat.uint8(height, width, **format_of))
    program = _native.Program([_native.Input(0, 3, 1, 0, False, 1 << 20, 100)], [head])
    maker = _native.RowMaker(_native.SideArena(1 << 20), 1 << 20, new_heartbeat(), no_pillow)
    room = np.full(1000, 9, np.uint8)  # more than a row, so that a failure breaks nothing else
    row = room[: 3 * height * width]
    wrong = maker.make(program, 0, np.ones((5, 7, 3), np.uint8), *KEY, [row])
    return wrong, room.tobytes()


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("size", [(4, 7), (6, 7), (5, 6), (5, 8), (7, 5), (1, 35)])
def test_a_row_of_another_size_is_refused(size: tuple[int, int], planar: bool) -> None:
    wrong, room = written(*size, planar=planar)
    assert wrong == "the result has another size than its row in the batch"
    assert room == bytes([9]) * 1000


def test_a_row_of_its_size_is_written() -> None:
    assert written(5, 7, planar=False) == ("", bytes([1]) * 105 + bytes([9]) * 895)
