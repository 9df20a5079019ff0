"""Shapes become the pixels that pycocotools says, exactly or within a pixel, and are cut off at pictures' edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shapes import polygon
from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.spec import UInt8Array
from standpipe.transform.shapes import moved_shapes

coco = pytest.importorskip("pycocotools.mask")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools, for NumPy 2
SQUARE = [(2, 2), (8, 2), (8, 8), (2, 8)]


def shape(*rings: Any) -> RaggedRows:
    """Return one shape of rings, all in the same sense of rotation."""
    points = [point for ring in rings for point in [*ring, (np.nan, np.nan)]]
    values = np.array(points, np.float32).reshape(-1, 2)
    _native.turn_alike(values)
    return RaggedRows(values, np.array([len(values)]))


def drawn(
    shapes: RaggedRows, size: tuple[int, int] = (10, 10), ratio: float = 1, layers: Any = 0
) -> UInt8Array:
    """Return one picture of shapes with the numbers 1, 2, …"""
    out = np.full((1, *size), 77, np.uint8)
    numbers = np.arange(len(shapes.ends))
    _native.draw_shapes(
        np.asarray(shapes.values, np.float32),
        shapes.ends,
        0 * numbers,
        numbers + 1,
        0 * numbers + layers,
        ratio,
        out,
    )
    return out[0]


def moves(*parts: Any, size: tuple[int, int] = (10, 10)) -> Any:
    """Return the moves of one row. ``parts``: matrices."""
    found = np.zeros((1, len(parts), 12))
    found[0, :, :9] = [np.ravel(part) for part in parts]
    found[..., 9:11] = size
    return found


def shifted(x: float, y: float) -> Any:
    return [[1, 0, x], [0, 1, y], [0, 0, 1]]


def outlined(runs: Any, height: int, width: int) -> RaggedRows:
    points = _native.outline_of_runs(np.asarray(runs, np.int64), height, width).reshape(-1, 2)
    return RaggedRows(points, np.array([len(points)]))


def noise(random: np.random.Generator, size: tuple[int, int]) -> UInt8Array:
    return (random.random(size) < random.random()).astype(np.uint8)


def blobs(random: np.random.Generator, size: tuple[int, int]) -> UInt8Array:
    coarse = noise(random, (size[0] // 5 + 1, size[1] // 5 + 1))
    return np.kron(coarse, np.ones((5, 5), np.uint8))[: size[0], : size[1]]


@pytest.mark.parametrize("picture", [noise, blobs])
def test_runs_give_back_their_pixels(picture: Callable[..., UInt8Array]) -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        size = height, width = int(random.integers(1, 50)), int(random.integers(1, 50))
        pixels = picture(random, size)
        text = coco.encode(np.asfortranarray(pixels))["counts"]
        runs = _native.run_lengths(text)
        flat = pixels.T.ravel()
        ends = np.flatnonzero(np.diff(flat, prepend=0, append=2))
        assert runs.tolist() == np.diff(ends, prepend=0).tolist()
        found = outlined(runs, height, width)
        assert np.array_equal(drawn(found, size), pixels)
        moved, (hull,) = moved_shapes(found, np.array([0]), moves(np.eye(3), size=size))
        assert np.array_equal(moved.values, found.values, equal_nan=True)
        y, x = np.nonzero(pixels)
        assert hull.tolist() == ([x.min(), y.min(), x.max() + 1, y.max() + 1] if len(x) else [0, 0, 0, 0])


def test_polygons_are_those_of_pycocotools_within_a_pixel() -> None:
    random = np.random.default_rng(1)
    size = height, width = 120, 150
    pixels = differ = 0
    for _ in range(100):
        angles = np.sort(random.random(random.integers(3, 20))) * 2 * np.pi
        radii = random.uniform(20, 70, len(angles))
        ring = np.stack([75 + radii * np.cos(angles), 60 + radii * np.sin(angles)], axis=1)
        ring = ring[:: random.choice([-1, 1])]
        wanted = coco.decode(coco.merge(coco.frPyObjects([ring.ravel().tolist()], height, width)))
        found = drawn(shape(ring), size)
        pixels, differ = pixels + int(wanted.sum()), differ + int((found != wanted).sum())
    assert differ < 0.006 * pixels  # pycocotools fills runs between points of edges, at five times the size


def test_parts_of_a_shape_are_united() -> None:
    other = [(5, 5), (5, 9), (9, 9), (9, 5)]  # turns the other way, and overlaps
    found = drawn(shape(SQUARE, other))
    wanted = np.zeros((10, 10), np.uint8)
    wanted[2:8, 2:8] = wanted[5:9, 5:9] = 1
    assert np.array_equal(found, wanted)


def test_smaller_shapes_are_over_larger_ones() -> None:
    small, large = shape([(3, 3), (5, 3), (5, 5), (3, 5)]), shape(SQUARE)
    for number, order in ((1, (small, large)), (2, (large, small))):
        found = drawn(RaggedRows.merged(order, np.arange(2)))
        assert (found[3:5, 3:5] == number).all()
        assert (found == number).sum() == 4
        assert (found == 3 - number).sum() == 32
        assert (found == 0).sum() == 64


def test_a_ratio_takes_the_middle_of_each_pixel() -> None:
    assert drawn(shape(SQUARE), (2, 2), 4).tolist() == [[1, 1], [1, 1]]
    assert drawn(shape([(0, 0), (6, 0), (6, 1.9), (0, 1.9)]), (2, 2), 4).tolist() == [[0, 0], [0, 0]]
    assert drawn(shape([(0, 0), (6, 0), (6, 2.1), (0, 2.1)]), (2, 2), 4).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize("ratio", [1, 4])
def test_maps_are_the_yolo_familys_within_a_pixel(ratio: int) -> None:
    cv2 = pytest.importorskip("cv2")
    random = np.random.default_rng(2)
    size, side = (320, 320), 320 // ratio
    for _ in range(20):
        # Of clearly different areas: OpenCV counts edges too, and where areas are nearly the same another one is seen.
        ring = np.array(polygon(random, *size)) - 160
        rings = [scale * ring + 160 for scale in (0.4, 1.0, 0.7)]
        wanted = np.zeros((side, side), np.uint8)
        for number in (1, 2, 0):
            filled = np.zeros(size, np.uint8)
            cv2.fillPoly(filled, rings[number][None].astype(np.int32), 1)
            wanted[cv2.resize(filled, (side, side)) > 0] = number + 1
        found = drawn(RaggedRows.merged([shape(ring) for ring in rings], np.arange(3)), (side, side), ratio)
        padded = np.pad(found, 1)
        near = [padded[y : y + side, x : x + side] == wanted for y in range(3) for x in range(3)]
        assert np.any(near, axis=0).all()


def test_moves_cut_shapes_off_for_good() -> None:
    away_and_back = moves(shifted(-5, 3), shifted(5, -3))
    found, (hull,) = moved_shapes(shape(SQUARE), np.array([0]), away_and_back)
    wanted = np.zeros((10, 10), np.uint8)
    wanted[2:7, 5:8] = 1
    assert np.array_equal(drawn(found), wanted)
    assert hull.tolist() == [5, 2, 8, 7]
    _, (whole,) = moved_shapes(shape(SQUARE), np.array([0]), away_and_back, cut=False)
    assert whole.tolist() == [2, 2, 8, 8]
    gone, hulls = moved_shapes(shape(SQUARE), np.array([0]), moves(shifted(20, 0)))
    assert (len(gone.values), gone.ends.tolist(), hulls.tolist()) == (0, [0], [[0, 0, 0, 0]])


def test_a_cut_shape_has_no_box_around_what_is_outside() -> None:
    # A triangle whose corner is inside of the picture, and which is as high as the picture outside of it.
    found, (hull,) = moved_shapes(shape([(8, 5), (20, -30), (20, 40)]), np.array([0]), moves(np.eye(3)))
    left, top, right, bottom = hull.tolist()
    assert (left, right) == (8, 10)
    assert top == pytest.approx(5 - 2 * 35 / 12, abs=0.01) or top == 0
    assert np.array_equal(drawn(found), drawn(shape([(8, 5), (20, -30), (20, 40)])))
    assert bottom <= 10


@given(text=st.binary(max_size=60) | st.text(alphabet=[chr(48 + code) for code in range(64)], max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_text_of_runs_is_pixels_or_refused(text: bytes | str) -> None:
    try:
        runs = _native.run_lengths(text.encode() if isinstance(text, str) else text)
        points = _native.outline_of_runs(runs, 7, 9)
    except ValueError:
        return
    assert runs.min() >= 0
    assert runs.sum() == 63
    assert (
        drawn(RaggedRows(points.reshape(-1, 2), np.array([len(points) // 2])), (7, 9)).sum()
        == runs[1::2].sum()
    )


@given(runs=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40), max_size=12))
@settings(max_examples=300, deadline=None)
def test_runs_that_are_no_picture_are_refused(runs: list[int]) -> None:
    fits = all(run >= 0 for run in runs) and sum(runs) == 63
    for height, width in ((7, 9), (63, 1), (0, 63), (-7, -9), (1 << 40, 1 << 40)):
        if fits and height * width == 63 and height > 0:
            assert drawn(outlined(runs, height, width), (height, width)).sum() == sum(runs[1::2])
        else:
            with pytest.raises(ValueError, match="pixels"):
                outlined(runs, height, width)


def test_wrong_numbers_are_refused() -> None:
    one, out, zero = shape(SQUARE), np.zeros((1, 4, 4), np.uint8), np.array([0])
    points = np.asarray(one.values, np.float32)
    with pytest.raises(ValueError, match="inside points"):
        _native.draw_shapes(points, one.ends + 1, zero, zero, zero, 1, out)
    with pytest.raises(IndexError, match="picture"):
        _native.draw_shapes(points, one.ends, zero + 1, zero, zero, 1, out)
    with pytest.raises(IndexError, match="row"):
        _native.move_shapes(points, one.ends, zero - 1, moves(np.eye(3)), True)
    with pytest.raises(ValueError, match="each shape"):
        _native.left_of_shapes(points, one.ends, zero, np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="rise"):
        _native.left_of_shapes(points, np.array([0, 5]), np.array([1, 0]), np.zeros((2, 2), np.int64))


def test_higher_layers_are_drawn_over_lower_ones_and_take_their_pixels() -> None:
    large, small = rectangle(0, 0, 8, 8), rectangle(2, 1, 6, 4)
    both = RaggedRows(np.concatenate([small, large]), np.array([len(small), len(small) + len(large)]))
    assert (drawn(both)[1:4, 2:6] == 1).all()
    assert (drawn(both, layers=[0, 1])[:8, :8] == 2).all()

    def left(*rectangles: Any, layers: Any) -> list[Any]:
        values = np.concatenate(rectangles)
        sizes = np.full((len(rectangles), 2), 10)
        found = _native.left_of_shapes(
            values, len(values) // len(rectangles) * np.arange(1, len(rectangles) + 1), layers, sizes
        )
        return np.asarray(found).reshape(-1, 4).tolist()

    whole = [-np.inf, -np.inf, np.inf, np.inf]
    below, beside = rectangle(1, 1, 5, 6), rectangle(7, 7, 9, 9)
    assert left(below, beside, rectangle(0, 0, 3, 9), layers=np.array([4, 4, 5])) == [
        [3, 1, 5, 6],
        whole,
        whole,
    ]
    assert left(below, rectangle(2, 2, 4, 4), layers=np.array([0, 1])) == [[1, 1, 5, 6], whole]
    assert left(below, rectangle(0, 0, 10, 10), layers=np.array([0, 1]))[0][0] == np.inf
    assert left(below, rectangle(0, 0, 10, 10), layers=np.array([0, 3])) == [whole, whole]


def rectangle(left: float, top: float, right: float, bottom: float) -> Any:
    """Return the points of one shape."""
    ring = [(left, top), (right, top), (right, bottom), (left, bottom), (np.nan, np.nan)]
    return np.array(ring, np.float32)
