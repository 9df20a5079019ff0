"""``standpipe show``: make a contact sheet of augmented samples, which shows what the model will see."""

from __future__ import annotations

import argparse
import bisect
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import standpipe as sp
from standpipe import PlanError
from standpipe.cli.task import WHERE, source_at
from standpipe.reports import Sheet
from standpipe.system.files import image_type

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image, ImageDraw, ImageFont

    from standpipe.cli.terminal import Subparsers

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

MARGIN_PX = 16
GAP_PX = 6
CAPTION_PX = 15
LINE_PX = round(CAPTION_PX * 1.4)
MOST_SHEET_PX = 100_000_000
LEAST_WIDTH_PX = 240  # so that captions under one small image can still be read
PAPER, INK, FAINT = (255, 255, 255), (24, 24, 27), (113, 113, 122)


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One record on the sheet.

    draws  (draws, H, W, 3) uint8 RGB: the record in several epochs
    label  its class, printed in black; may be empty
    name   its file, printed in grey, shortened in the middle if it doesn't fit
    """

    draws: NDArray[np.uint8]
    label: str
    name: str


def contact_sheet(rows: list[ShownRow]) -> Image.Image:
    """Lay rows out under each other, each with its caption below, on one RGB image.

    Raises ``PlanError`` when there is no row, or one that isn't (draws, H, W, 3) uint8.
    """
    from PIL import Image, ImageDraw, ImageFont

    _check(rows)
    font = ImageFont.load_default(CAPTION_PX)
    most_draws = max(len(row.draws) for row in rows)
    cell_px = max(row.draws.shape[2] for row in rows) + GAP_PX
    height, width = _sheet_px([row.draws.shape[1] for row in rows], most_draws, cell_px)
    text_px = width - 2 * MARGIN_PX
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    y = MARGIN_PX
    for draw in range(most_draws):
        title = _first_that_fits((f"epoch {draw}", str(draw)), font, cell_px - GAP_PX)
        pen.text((MARGIN_PX + draw * cell_px, y), title, FAINT, font)
    y += LINE_PX + GAP_PX
    for row in rows:
        for draw, pixels in enumerate(row.draws):
            sheet.paste(Image.fromarray(pixels), (MARGIN_PX + draw * cell_px, y))
        y += row.draws.shape[1] + GAP_PX
        _caption(pen, font, y, row, text_px)
        y += LINE_PX + MARGIN_PX
    return sheet


def _sheet_px(heights: list[int], draws: int, cell_px: int) -> tuple[int, int]:
    """Return (height, width) in pixels of a sheet with rows of these heights, and ``draws`` images
    ``cell_px`` apart.
    """
    height = sum(heights) + len(heights) * (LINE_PX + MARGIN_PX + GAP_PX) + LINE_PX + 2 * MARGIN_PX
    return height, max(LEAST_WIDTH_PX, draws * cell_px - GAP_PX) + 2 * MARGIN_PX


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand and its arguments to the parser."""
    parser = subparsers.add_parser(
        "show",
        help="draw augmented samples on a contact sheet",
        description="Draw images of a folder, spread over its classes, as a training run would see them: one row "
        "per image, one column per epoch, each a RandomResizedCrop and a flip. With --recipe, the transforms of a "
        "pipeline of yours.",
    )
    parser.add_argument("path", metavar="PATH", help=WHERE)
    parser.add_argument("--output", required=True, metavar="FILE", help="the image to write, e.g. sheet.png")
    parser.add_argument("--images", type=int, default=8, metavar="N", help="rows (default: 8)")
    parser.add_argument(
        "--draws", type=int, metavar="N", help="versions of each image, one per epoch (default: 6)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="another seed gives other versions (default: 0, or the recipe's)",
    )
    parser.add_argument("--size", type=int, metavar="PX", help="edge of a crop (default: 224)")
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="draw the first epoch of the pipeline in this file, the JSON of pipeline.to_dict()",
    )
    parser.add_argument("--steps", action="store_true", help="one column per transform, instead of per epoch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from standpipe.cli.terminal import print_json, printable, say, verbatim

    _check_arguments(args)
    image_type(Path(args.output).name)  # a wrong ending is said before anything is drawn
    if args.recipe is not None or args.steps:
        sheet, counts = _sheet_of_pipeline(args)
    else:
        args.draws, args.size, args.seed = args.draws or 6, args.size or 224, args.seed or 0
        rows = _drawn(args)
        sheet, counts = Sheet(contact_sheet(rows)), {"images": len(rows), "draws": args.draws}
    sheet.save(args.output)
    width, height = sheet.image.size
    if args.json:
        print_json({"path": args.output, "width": width, "height": height} | counts)
        return 0
    say(f"[bold]{verbatim(printable(args.output))}[/bold]: {width} × {height}")
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    """Raise ``PlanError`` for numbers below 1, and for arguments that have no effect together."""
    for name in ("images", "draws", "size"):
        if (given := getattr(args, name)) is not None and given < 1:
            raise PlanError(f"--{name} must be at least 1, not {given}")
    if args.draws is not None and (args.recipe is not None or args.steps):
        raise PlanError("--draws has no effect with --recipe or --steps, which draw one epoch: leave it out")
    if args.size is not None and args.recipe is not None:
        raise PlanError(
            "--size has no effect with --recipe, whose transforms have sizes of their own: leave it out"
        )


def _sheet_of_pipeline(args: argparse.Namespace) -> tuple[Sheet, dict[str, int]]:
    """Return the sheet that ``Pipeline.show`` draws of the recipe's pipeline or the default one, and its counts."""
    source = source_at(args.path)
    if args.recipe is None:
        pipeline = sp.Pipeline(source).map(sp.RandomResizedCrop(args.size or 224), sp.RandomHorizontalFlip())
    else:
        pipeline = sp.Pipeline.from_dict(_recipe(args.recipe), source=source)
    if args.seed is not None:
        pipeline = replace(pipeline, seed=args.seed)
    records = _records(source.open(), args.images)
    # Pipeline.select must come before the order, which the recipe has already set.
    pipeline = replace(pipeline, selections=sp.Pipeline(source).select(records).selections)
    if pipeline.batch_size is not None or pipeline.budget is not None:
        pipeline = pipeline.batch(len(records), collate=pipeline.collate, last_batch="pad")
    return pipeline.show(len(records), steps=args.steps), {"images": len(records)}


def _recipe(path: str) -> Any:
    """Return the value in a JSON file. Raises ``PlanError`` if it can't be read, or isn't JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"can't read the recipe {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise PlanError(
            f"the recipe {path} isn't JSON ({error}). Write it with json.dump(pipeline.to_dict(), file)"
        ) from error


def _records(opened: Any, images: int) -> NDArray[np.int64]:
    """Return the numbers of ``images`` records of an opened source, or of all if it has fewer, of all classes."""
    images = min(images, opened.num_records)
    known = "label" in opened.columns
    return spread(opened.column("label", 0, opened.num_records), images) if known else np.arange(images)


def _drawn(args: argparse.Namespace) -> list[ShownRow]:
    """Return records of all classes, ``args.images`` together, each in ``args.draws`` epochs."""
    augmented = (sp.RandomResizedCrop(args.size), sp.RandomHorizontalFlip())
    source = source_at(args.path)
    opened = source.open()
    images = min(args.images, opened.num_records)
    _check_size(images, args.draws, args.size)
    records = _records(opened, images)
    pipeline = sp.Pipeline(source, seed=args.seed).select(records).map(*augmented).batch(images)
    drawn = np.empty((images, args.draws, args.size, args.size, 3), np.uint8)
    with pipeline.loader() as loader:
        for draw in range(args.draws):
            batch = next(iter(loader))
            drawn[:, draw] = batch["image"]
            indices = batch["index"].tolist()
            labels = batch["label"].tolist() if "label" in batch else [None] * images
            del batch  # its slot is for the next
        name, classes = loader.plan.source.name, loader.plan.classes
        return [
            ShownRow(draws, _label(classes, label), name(index) or "")
            for draws, label, index in zip(drawn, labels, indices, strict=True)
        ]


def spread(labels: NDArray[Any], number: int) -> NDArray[np.int64]:
    """Return ``number`` records of as many classes as possible, ascending: the first ones of each class.

    labels  (n,) class of each record
    """
    order = np.argsort(labels, kind="stable")
    in_order = labels[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    within = np.empty(len(labels), np.int64)  # how many of its class come before a record
    within[order] = np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels)))
    if number < len(starts):
        return np.sort(order[starts[np.arange(number) * len(starts) // number]])
    return np.sort(np.lexsort((labels, within))[:number])


def _check_size(images: int, draws: int, size_px: int) -> None:
    """Raise ``PlanError`` before any work if the sheet would be too large."""
    height, width = _sheet_px([size_px] * images, draws, size_px + GAP_PX)
    if height * width > MOST_SHEET_PX:
        raise PlanError(
            f"the sheet would be {width} × {height} pixels, above {MOST_SHEET_PX // 10**6} megapixels; "
            "lower --size, --images or --draws"
        )


def _label(classes: tuple[str, ...] | None, label: int | None) -> str:
    """Return the name of a record's class; an empty text if the record has none."""
    if label is None:
        return ""
    return str(label) if classes is None else classes[label]


def _check(rows: list[ShownRow]) -> None:
    if not rows:
        raise PlanError("a contact sheet needs at least one row")
    for row in rows:
        shape, dtype = row.draws.shape, row.draws.dtype
        if len(shape) != 4 or shape[3] != 3 or 0 in shape or dtype != "uint8":
            raise PlanError(f"a row's images must be (draws, H, W, 3) uint8, not {shape} {dtype}: {row.name}")


def _caption(pen: ImageDraw.ImageDraw, font: Font, y: int, row: ShownRow, text_px: int) -> None:
    """The label in black, then the name in grey in what room is left, which is at least half."""
    from standpipe.cli.terminal import printable

    label = _shorten(printable(row.label), font, text_px / 2)
    pen.text((MARGIN_PX, y), label, INK, font)
    used_px = font.getlength(label) + 2 * GAP_PX if label else 0
    pen.text((MARGIN_PX + used_px, y), _shorten(printable(row.name), font, text_px - used_px), FAINT, font)


def _shorten(text: str, font: Font, room_px: float) -> str:
    """``text``, or its beginning and its end around an ellipsis: a file name's end says most."""

    def keeping(letters: int) -> str:
        head = letters // 3
        return f"{text[:head]}…{text[len(text) - (letters - head) :]}"

    if font.getlength(text) <= room_px:
        return text
    fitting = bisect.bisect(
        range(1, len(text)), room_px, key=lambda letters: font.getlength(keeping(letters))
    )
    return keeping(max(1, fitting))


def _first_that_fits(texts: tuple[str, ...], font: Font, room_px: float) -> str:
    return next((text for text in texts if font.getlength(text) <= room_px), "")
