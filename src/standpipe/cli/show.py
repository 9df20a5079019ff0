"""``standpipe show``: make a contact sheet of augmented samples, which shows what the model will see."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import standpipe as sp
from standpipe import PlanError
from standpipe.cli.task import add_source_arguments, source_of
from standpipe.cli.terminal import print_json, printable, say, verbatim
from standpipe.reports import Sheet
from standpipe.system.files import image_type

if TYPE_CHECKING:
    from numpy.typing import NDArray


HELP = "draw images as training sees them, on one sheet"
DESCRIPTION = (
    "Draw images, spread over their classes, as a training run would see them: one row "
    "per image, one column per epoch, each a RandomResizedCrop and a flip. With --recipe, the transforms of a "
    "pipeline of yours."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_source_arguments(parser)
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
    parser.add_argument(
        "--size",
        type=int,
        metavar="PX",
        help="edge of a crop (default: 224); above 320, pictures are reduced",
    )
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="draw the first epoch of the pipeline in this file, the JSON of pipeline.to_dict()",
    )
    parser.add_argument("--steps", action="store_true", help="one column per transform, instead of per epoch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    _check_arguments(args)
    image_type(Path(args.output).name)  # a wrong ending is said before anything is drawn
    sheet, counts = _sheet(args)
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


def _sheet(args: argparse.Namespace) -> tuple[Sheet, dict[str, int]]:
    """Return the sheet that ``Pipeline.show`` draws of the recipe's pipeline or the default one, and its counts."""
    source = source_of(args)
    if args.recipe is None:
        pipeline = sp.Pipeline(source).map(sp.RandomResizedCrop(args.size or 224), sp.RandomHorizontalFlip())
    else:
        pipeline = sp.Pipeline.from_dict(_recipe(args.recipe), source=source)
    if args.seed is not None:
        pipeline = replace(pipeline, seed=args.seed)
    records = _records(source.open(), args.images)
    # Pipeline.select must come before the order, which the recipe has already set.
    pipeline = replace(pipeline, selections=sp.Pipeline(source).select(records).selections)
    if pipeline.batch_rows is not None or pipeline.budget is not None:
        pipeline = pipeline.batch(len(records), collate=pipeline.collate, last_batch="pad")
    if args.recipe is not None or args.steps:
        return pipeline.show(len(records), steps=args.steps), {"images": len(records)}
    draws = args.draws or 6
    return pipeline.show(len(records), epoch=range(draws)), {"images": len(records), "draws": draws}


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
