"""The layout of a sheet: pictures in rows and columns, titles above and captions below."""

from __future__ import annotations

import os

import numpy as np
import pytest

from standpipe.jobs.show.sheet import Cell, Row, draw_sheet

INK = (24, 24, 27)


def row(number: int = 6, size: int = 100, label: str = "class-3", name: str = "class-3/00000013.jpg") -> Row:
    """Pictures of one red each, which no grey of a caption has."""
    cells = [np.full((size, size, 3), 20 * (cell + 1), np.uint8) for cell in range(number)]
    for cell in cells:
        cell[..., 0] = 255
    return Row([Cell(each) for each in cells], label, name)


def sheet_of(*rows: Row) -> np.ndarray:
    return np.asarray(draw_sheet([f"epoch {cell}" for cell in range(len(rows[0].cells))], list(rows)).image)


def place_and_pixels(sheet: np.ndarray, tone: int) -> tuple[int, int, int]:
    """First column, first row and number of pixels of a picture."""
    found = np.argwhere((sheet == (255, tone, tone)).all(axis=2))
    return int(found[:, 1].min()), int(found[:, 0].min()), len(found)


def test_pictures_are_side_by_side_and_samples_below_each_other() -> None:
    sheet = sheet_of(row(), row())
    places = [place_and_pixels(sheet, 20 * cell) for cell in range(1, 7)]
    assert [pixels for *_, pixels in places] == [2 * 100 * 100] * 6
    assert [x for x, _, _ in places] == sorted({x for x, _, _ in places})
    assert len({y for _, y, _ in places}) == 1
    one = sheet_of(row())
    assert one.shape[1] == sheet.shape[1]
    assert one.shape[0] < sheet.shape[0] < 2 * one.shape[0]


def test_captions_stay_inside_and_long_names_use_the_room_there_is() -> None:
    sheets = [sheet_of(row(name=name)) for name in ("x.jpg", "deep/" * 60 + "end.jpg", "W" * 5000)]
    assert len({sheet.shape for sheet in sheets}) == 1
    height, width, _ = sheets[0].shape
    ends = [np.argwhere((sheet[height - 40 :] < 200).all(axis=2))[:, 1].max() / width for sheet in sheets]
    assert ends[0] < 0.6
    assert all(0.85 < end < 0.985 for end in ends[1:])


def test_the_class_is_readable_beside_a_name_of_any_length() -> None:
    short, long = (sheet_of(row(1, name=name))[-40:] for name in ("x.jpg", "deep/" * 60 + "end.jpg"))
    inks = [np.argwhere((sheet == INK).all(axis=2)) for sheet in (short, long)]
    assert len(inks[0]) > 15
    assert np.array_equal(*inks)


def test_the_end_of_a_long_name_is_kept() -> None:
    sheets = [sheet_of(row(name="deep/" * 60 + end)) for end in ("one.jpg", "two.jpg")]
    assert not np.array_equal(*sheets)


@pytest.mark.parametrize("name", [os.fsdecode(b"caf\xe9.jpg"), "line\nbreak.jpg", "猫.jpg", "", "\ud800.jpg"])
def test_any_name_can_be_printed(name: str) -> None:
    assert sheet_of(row(name=name, label=name)).shape == sheet_of(row(name="x")).shape


@pytest.mark.parametrize(("number", "size"), [(1, 1), (1, 224), (12, 16)])
def test_small_sheets_have_room_for_captions(number: int, size: int) -> None:
    assert sheet_of(row(number, size)).shape[1] >= 360


def test_rows_of_different_sizes() -> None:
    sheet = sheet_of(row(2, 100), row(2, 130))
    assert place_and_pixels(sheet, 20)[2] == 100 * 100 + 130 * 130
