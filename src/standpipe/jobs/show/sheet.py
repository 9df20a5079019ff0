"""The picture of a pipeline's samples: cells in rows and columns, with a title per column and a caption per row."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standpipe.errors import PlanError
from standpipe.spec import UInt8Array
from standpipe.system.files import drafted, image_type

if TYPE_CHECKING:
    from PIL import Image, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MARGIN_PX = 16
GAP_PX = 6
TEXT_PX = 15
LINE_PX = round(TEXT_PX * 1.4)
LEAST_CELL_PX, MOST_CELL_PX = 96, 320  # edge of a cell: smaller images are enlarged, larger ones are reduced
LEAST_COLUMN_PX = 168  # so that titles above small images can be read, such as RandomHorizontalFlip
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


@dataclass(frozen=True, slots=True)
class Row:
    """One sample.

    cells    its pictures, (H, W, 3) uint8, one per column
    caption  text below them
    """

    cells: list[UInt8Array]
    caption: str


def drawn(titles: list[str], rows: list[Row]) -> Sheet:
    """Draw rows under each other, on one sheet.

    titles  text above each column

    Raises ``PlanError`` if the sheet would be too large.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(TEXT_PX)
    largest_px = max(max(cell.shape[:2]) for row in rows for cell in row.cells)
    factor = max(1, LEAST_CELL_PX // largest_px)
    cells = [[_cell(cell, factor) for cell in row.cells] for row in rows]
    widths = [max(LEAST_COLUMN_PX, *(row[column].width for row in cells)) for column in range(len(titles))]
    heights = [max(cell.height for cell in row) for row in cells]
    width = sum(widths) + GAP_PX * (len(widths) - 1) + 2 * MARGIN_PX
    height = sum(heights) + len(rows) * (GAP_PX + LINE_PX + MARGIN_PX) + LINE_PX + GAP_PX + MARGIN_PX
    if width * height > MOST_SHEET_PX:
        raise PlanError(
            f"the sheet would be {width} × {height} pixels, above {MOST_SHEET_PX // 10**6} megapixels: lower n"
        )
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    lefts = [MARGIN_PX + sum(widths[:column]) + GAP_PX * column for column in range(len(widths))]
    for left, title, room_px in zip(lefts, titles, widths, strict=True):
        pen.text((left, MARGIN_PX), _shortened(title, font, room_px), INK, font)
    top = MARGIN_PX + LINE_PX + GAP_PX
    for row, pictures, row_px in zip(rows, cells, heights, strict=True):
        for left, picture in zip(lefts, pictures, strict=True):
            sheet.paste(picture, (left, top))
        top += row_px + GAP_PX
        pen.text((MARGIN_PX, top), _shortened(row.caption, font, width - 2 * MARGIN_PX), FAINT, font)
        top += LINE_PX + MARGIN_PX
    return Sheet(sheet)


def _cell(pixels: UInt8Array, factor: int) -> Image.Image:
    """Return a picture, ``factor`` times as large, or reduced to the largest cell."""
    from PIL import Image

    picture = Image.fromarray(pixels)
    if factor > 1:
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    picture.thumbnail((MOST_CELL_PX, MOST_CELL_PX))
    return picture


def _shortened(text: str, font: Font, room_px: float) -> str:
    """Return ``text`` in one line, or its end behind an ellipsis: a file name's end says most."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    if font.getlength(text) <= room_px:
        return text
    kept = min(len(text), 400)
    while kept > 1 and font.getlength(f"…{text[-kept:]}") > room_px:
        kept -= 1
    return f"…{text[-kept:]}"
