"""The picture of a pipeline's samples: cells in rows and columns, with a title per column and a caption per row."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standpipe.errors import PlanError
from standpipe.jobs.show.overlay import Overlay, fitted
from standpipe.spec import UInt8Array
from standpipe.system.files import drafted, image_type

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

    from standpipe.jobs.show.overlay import Font

MARGIN_PX = 16
GAP_PX = 6
TEXT_PX = 15
LINE_PX = round(TEXT_PX * 1.4)
LEAST_CELL_PX, MOST_CELL_PX = 96, 320  # edge of a cell: smaller images are enlarged, larger ones are reduced
MOST_TITLE_PX = 168  # a column is as wide as its title, up to this, such as RandomHorizontalFlip
LEAST_WIDTH_PX = 360  # so that captions under one small image can be read
MOST_SHEET_PX = 100_000_000
PAPER, INK, FAINT = (255, 255, 255), (24, 24, 27), (113, 113, 122)


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """A picture of samples, which ``Pipeline.show`` returns. Notebooks display it.

    Attributes
    ----------
    image : PIL.Image.Image
        The picture, RGB.

    Examples
    --------
    >>> sheet = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).show(2)
    >>> sheet.save("sheet.png")
    >>> sheet.image.mode
    'RGB'
    """

    image: Image.Image

    def __repr__(self) -> str:
        """Return the picture's size in pixels."""
        return f"Sheet({self.image.width} × {self.image.height})"

    def _repr_png_(self) -> bytes:
        """Return the picture as a PNG file, which notebooks display."""
        file = io.BytesIO()
        self.image.save(file, "PNG")
        return file.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file.

        Parameters
        ----------
        path : path
            The file, whose ending says its type, such as ``"sheet.png"``.

        Raises
        ------
        PlanError
            If Pillow writes no images with this ending.
        StandpipeError
            If the file can't be written.
        """
        kind = image_type(path)
        with drafted(path) as draft:
            self.image.save(draft, format=kind)


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One picture.

    pixels   (H, W, 3) uint8
    overlay  its instances; None without any
    """

    pixels: UInt8Array
    overlay: Overlay | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One sample.

    cells  its pictures, one per column
    label  its class, printed in black below them; may be empty
    name   its record, printed in grey, shortened in the middle if it doesn't fit
    """

    cells: Sequence[Cell]
    label: str
    name: str


def draw_sheet(titles: list[str], rows: list[Row]) -> Sheet:
    """Draw rows under each other, on one sheet.

    titles  text above each column

    Raises ``PlanError`` if the sheet would be too large.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(TEXT_PX)
    largest_px = max(max(cell.pixels.shape[:2]) for row in rows for cell in row.cells)
    factor = max(1, LEAST_CELL_PX // largest_px)
    cells = [[_cell(cell, factor) for cell in row.cells] for row in rows]
    titles_px = [min(math.ceil(font.getlength(title)), MOST_TITLE_PX) for title in titles]
    widths = [max(px, *(row[column].width for row in cells)) for column, px in enumerate(titles_px)]
    heights = [max(cell.height for cell in row) for row in cells]
    text_px = max(LEAST_WIDTH_PX, sum(widths) + GAP_PX * (len(widths) - 1))
    width = text_px + 2 * MARGIN_PX
    height = sum(heights) + len(rows) * (GAP_PX + LINE_PX + MARGIN_PX) + LINE_PX + GAP_PX + MARGIN_PX
    check_area(width * height)
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    lefts = [MARGIN_PX + sum(widths[:column]) + GAP_PX * column for column in range(len(widths))]
    for left, title, room_px in zip(lefts, titles, widths, strict=True):
        pen.text((left, MARGIN_PX), fitted(title, font, room_px), INK, font)
    top = MARGIN_PX + LINE_PX + GAP_PX
    for row, pictures, row_px in zip(rows, cells, heights, strict=True):
        for left, picture in zip(lefts, pictures, strict=True):
            sheet.paste(picture, (left, top))
        top += row_px + GAP_PX
        _write_caption(pen, font, top, row, text_px)
        top += LINE_PX + MARGIN_PX
    return Sheet(sheet)


def check_area(area_px: int) -> None:
    """Raise ``PlanError`` if a sheet of so many pixels is too large."""
    if area_px > MOST_SHEET_PX:
        raise PlanError(
            f"the sheet would have {area_px // 10**6} megapixels, above {MOST_SHEET_PX // 10**6}: draw fewer "
            "samples or epochs"
        )


def _write_caption(pen: ImageDraw.ImageDraw, font: Font, top: int, row: Row, room_px: int) -> None:
    """Write the label, then the name into the room that is left: at least half of it."""
    label = fitted(row.label, font, room_px / 2)
    pen.text((MARGIN_PX, top), label, INK, font)
    used_px = font.getlength(label) + 2 * GAP_PX if label else 0
    pen.text((MARGIN_PX + used_px, top), fitted(row.name, font, room_px - used_px), FAINT, font)


def _cell(cell: Cell, factor: int) -> Image.Image:
    """Return a picture with its overlay, ``factor`` times as large, or reduced to the largest cell."""
    from PIL import Image

    picture = Image.fromarray(cell.pixels)
    whole_px = picture.width
    if factor > 1:
        picture = picture.resize((whole_px * factor, picture.height * factor), Image.Resampling.NEAREST)
    else:
        picture.thumbnail((MOST_CELL_PX, MOST_CELL_PX))
    if cell.overlay is not None:
        cell.overlay.draw(picture, picture.width / whole_px)
    return picture
