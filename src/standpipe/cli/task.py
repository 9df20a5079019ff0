"""Arguments that several commands share, and the standard tasks that they run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import standpipe as sp
from standpipe.source.at_path import AnySource, source_at
from standpipe.spec import DtypeName
from standpipe.units import several

TASKS = ("train", "eval")
DTYPES = get_args(DtypeName)
WHERE = (
    "a folder of class folders, a list of files, tar shards such as 'train-{000..146}.tar', TFRecord files, a folder "
    "of MDS shards, Arrow files, a data set that Hugging Face's save_to_disk wrote, or annotations: COCO's JSON file, "
    "a YOLO data.yaml or a Pascal VOC folder"
)


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the standard task and its loader, such as the batch size."""
    add_source_arguments(parser)
    parser.add_argument(
        "--task",
        choices=TASKS,
        default="train",
        help="train: random crop of 224 and flip; eval: resize to 256, centre crop of 224 (default: train)",
    )
    parser.add_argument(
        "--batch", type=int, default=256, metavar="N", help="images in a batch (default: 256)"
    )
    parser.add_argument(
        "--workers",
        type=_number_or_auto,
        default="auto",
        metavar="N",
        help="decoding threads (default: one per CPU at first, then as many as are best)",
    )
    parser.add_argument(
        "--memory", default=None, metavar="SIZE", help="such as 2GiB (default: half of the free memory)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of images (default: float32)")
    parser.add_argument(
        "--decode", choices=("exact", "fast"), default="exact", help="exact: Pillow's pixels (default)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the order and of random transforms (default: 0)",
    )


def add_time_arguments(parser: argparse.ArgumentParser, *, seconds: float, text: str) -> None:
    """Arguments that say how long to run, by default ``seconds``, and what ``take`` does with a batch."""
    parser.add_argument(
        "--seconds", type=float, default=seconds, metavar="S", help=f"{text} (default: {seconds:g})"
    )
    parser.add_argument(
        "--step-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="milliseconds that your training step takes (default: 0, to measure the loader alone)",
    )


def standard_task(args: argparse.Namespace) -> sp.Pipeline:
    """Return the pipeline that the arguments of ``add_task_arguments`` describe.

    Floats are normalised with ImageNet's figures and NCHW, uint8 is as decoded and NHWC.
    """
    pipeline = sp.Pipeline(source_of(args), seed=args.seed)
    if args.task == "train":
        pipeline = pipeline.shuffle(seed=args.seed).map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
    else:
        pipeline = pipeline.map(sp.Resize(256), sp.CenterCrop(224))
    if args.dtype != "uint8":
        pipeline = pipeline.map(sp.Normalize(), sp.ToDtype(args.dtype))
    # Padding, so that a folder smaller than one batch can be measured too.
    return pipeline.decode(args.decode).batch(args.batch, last_batch="pad")


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of measuring a standard task.

    dtype  element type of the images
    """

    plan: sp.Plan
    task: str
    dtype: str

    def headline(self, workers: int) -> str:
        """Return the first line of the text for people: what was measured."""
        many, images = several(workers, "worker"), f"{self.plan.source.num_records:,} images"
        return f"[bold]{self.task}[/bold], {self.dtype}, batch {self.plan.steps.batch}, {many}, {images}\n"

    def facts(self) -> dict[str, Any]:
        """Return what was measured as plain values, for JSON."""
        batch = self.plan.steps.batch
        return {"workers": self.plan.num_workers, "batch": batch, "dtype": self.dtype, "task": self.task}


def endless(loader: sp.Loader) -> Iterator[dict[str, Any]]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def take(batches: Iterator[dict[str, Any]], step_ms: float) -> dict[str, Any]:
    """Return the next batch, after a step of ``step_ms`` milliseconds."""
    batch = next(batches)
    if step_ms:
        time.sleep(step_ms / 1000)
    return batch


def check_times(args: argparse.Namespace) -> None:
    """Raise ``PlanError`` if ``--seconds`` or ``--step-ms`` isn't a valid time."""
    if not 0 < args.seconds < 1e6:
        raise sp.PlanError(f"--seconds must be above 0 and below 1000000, got {args.seconds:g}")
    if not 0 <= args.step_ms < 1e6:
        raise sp.PlanError(f"--step-ms must be from 0 to below 1000000, got {args.step_ms:g}")


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the samples are, which ``source_of`` reads."""
    parser.add_argument("path", metavar="PATH", help=WHERE)
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        type=_field,
        metavar="FIELD=NAME",
        help="what a field is in shards, TFRecord or Arrow files, such as image=image/encoded; may be given again",
    )
    parser.add_argument("--no-labels", action="store_true", help="every line of the list is only a path")
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        help="where relative paths of a list or of COCO's file start (default: at it)",
    )


def source_of(args: argparse.Namespace) -> AnySource:
    """Return the source that the arguments of ``add_source_arguments`` describe."""
    fields = dict(args.field)
    source = source_at(args.path, fields, args.root)
    if isinstance(source, sp.FileList):
        source = replace(source, root=args.root, labels=not args.no_labels)
    elif args.no_labels or (args.root is not None and not isinstance(source, sp.Coco)):
        raise sp.PlanError(
            "--root and --no-labels work with lists, and --root with COCO's file: the labels of a folder are its class "
            "folders, and those of tar shards are their .cls members"
        )
    if fields and not isinstance(source, sp.TarShards | sp.TFRecords | sp.MDS | sp.Arrow):
        raise sp.PlanError(
            "--field works with tar shards, TFRecord files, MDS shards and Arrow files only; leave it out"
        )
    return source


def _field(text: str) -> tuple[str, str]:
    field, _, name = text.partition("=")
    if not field or not name:
        raise argparse.ArgumentTypeError(f"write FIELD=NAME, such as image=image/encoded, got {text!r}")
    return field, name


def _number_or_auto(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of threads, or auto, got {text!r}") from None
