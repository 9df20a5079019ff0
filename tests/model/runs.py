"""Random pipelines and random ways to run them, each a function of one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import standpipe as sp
from model.pictures import LAST
from model.sources import CLASSES, Contents, contents
from standpipe.transform.image import ImageTransform


@dataclass(frozen=True)
class Leg:
    """A part of a run, which begins where the one before it has stopped.

    held     number of batches that the consumer keeps while it takes others
    options  of the loader
    """

    batch_size: int
    rank: int
    world_size: int
    steps: int
    held: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A pipeline without a batch size and ranks, its records, those of them that it selects, and how it runs."""

    pipeline: sp.Pipeline
    batching: Mapping[str, Any]
    records: Sequence[Any]
    chosen: Sequence[int]
    legs: Sequence[Leg]

    def of(self, leg: Leg) -> sp.Pipeline:
        pipeline = self.pipeline.batch(leg.batch_size, **self.batching)
        return pipeline.shard(leg.rank, leg.world_size)


def case(seed: int, folder: Path, *, processes: bool) -> Case:
    """The case of a seed. ``processes``: its Python code runs in worker processes."""
    draw = random.Random(f"model {seed}")
    world, mixes = draw.choice((1, 1, 2, 3)), draw.random() < 0.3
    of = contents(draw, folder, world, mixes=mixes)
    pipeline, chosen = sp.Pipeline(of.source, seed=draw.randrange(100)), [*range(len(of.records))]
    if not of.streams:
        pipeline, chosen = selected(draw, pipeline, chosen, [] if of.is_python else of.records)
        pipeline = shuffled(draw, pipeline)
        pipeline = pipeline.on_error(draw.choice((sp.Raise(), sp.Replace(at_most=1.0))))
    if draw.random() < 0.3:
        truncated, orientation = draw.random() < 0.5, draw.choice(("ignore", "apply"))
        pipeline = pipeline.decode(allow_truncated=truncated, orientation=orientation)
    pipeline = mapped(draw, pipeline, of, certain=processes and not of.is_python)
    if mixes and not any(isinstance(each, sp.Views) for each in pipeline.transforms):
        pipeline = pipeline.map_batch(draw.choice((sp.MixUp, sp.CutMix))(draw.choice((0.2, 1.0)), CLASSES))
    batching: dict[str, Any] = {}
    if any("tokens" in each for each in of.records if isinstance(each, dict)):
        pads = sp.Pad(max_shape=9), sp.Pad(to_multiple_of=4, max_shape=9, value=-1), sp.Pad(length=10)
        batching["collate"] = {"tokens": draw.choice((*pads, sp.Ragged(max_values=100), list))}
    if draw.random() < 0.7:
        tails = ["drop", *(["pad"] if not of.streams else []), *(["partial"] if world == 1 else [])]
        batching["last_batch"] = draw.choice(tails)
    native = all(isinstance(each, ImageTransform) for each in pipeline.transforms)
    python = of.is_python or not native or bool(pipeline.batch_functions)
    executors: tuple[Any, ...] = ("inline", "thread" if python else None)
    parts = legs(
        draw,
        len(chosen) * pipeline.repeats,
        world,
        keeps_world=of.streams or batching.get("last_batch") == "partial",
        executors=("process",) if processes else executors,
    )
    return Case(pipeline, batching, of.records, chosen, [*parts])


def legs(
    draw: random.Random, count: int, world: int, *, keeps_world: bool, executors: Sequence[Any]
) -> Iterator[Leg]:
    """Parts of a run over ``count`` positions. ``keeps_world``: the number of ranks stays."""
    for _ in range(draw.choice((1, 2, 2, 3))):
        world = min(world, count)
        rows = draw.randrange(1, min(count // world, 6) + 1)
        options = {
            "executor": draw.choice(executors),
            "num_workers": draw.randrange(1, 3 if "process" in executors else 5),
            "prefetch": draw.randrange(1, 3),
        }
        steps = draw.randrange(1, 2 + 3 * count // (2 * rows * world))
        yield Leg(rows, draw.randrange(world), world, steps, draw.randrange(3), options)
        if not keeps_world:
            world = draw.choice((1, 2, 3))


def selected(
    draw: random.Random, pipeline: sp.Pipeline, chosen: list[int], records: Sequence[Any]
) -> tuple[sp.Pipeline, list[int]]:
    """A selection of records. ``records``: those of a source whose labels are known before they are read."""
    match draw.choice(("all", "all", "skip", "take", "select", "exclude", "filter")):
        case "skip":
            return pipeline.skip(3), chosen[3:]
        case "take":
            return pipeline.take(7), chosen[:7]
        case "select":
            wanted = draw.sample(chosen, 6)
            return pipeline.select(wanted), wanted
        case "exclude":
            left_out = draw.sample(chosen, 2)
            return pipeline.exclude(left_out), [number for number in chosen if number not in left_out]
        case "filter" if few := [number for number in chosen if records and records[number]["label"] < 6]:
            return pipeline.filter("label < 6"), few
    return pipeline, chosen


def shuffled(draw: random.Random, pipeline: sp.Pipeline) -> sp.Pipeline:
    seed = draw.randrange(100)
    match draw.choice(("no", "yes", "yes", "blocks")):
        case "yes":
            pipeline = pipeline.shuffle(seed=seed)
        case "blocks":
            pipeline = pipeline.shuffle(seed=seed, block=draw.randrange(2, 5), window=draw.randrange(1, 4))
    return pipeline.repeat_each(draw.choice((1, 1, 1, 2)))


# Transforms


def negative(image: Any) -> Any:
    return 255 - image


def speckled(image: Any, rng: np.random.Generator) -> Any:
    return image ^ rng.integers(0, 8, image.shape, np.uint8)


def picky(label: int) -> int:
    """Refuses a label, as the user's code may."""
    if label == CLASSES - 1:
        raise ValueError(label)
    return label


def whole(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "drawn": float(rng.random()), "bright": int(sample["label"]) * 2}


# The last one doesn't get the image: a Pillow image comes to functions in its own mode.
FUNCTIONS = [(whole, None), (negative, "image"), (speckled, "image"), (picky, "label")]


def chain_of(draw: random.Random, *, one_size: bool, masks: bool) -> list[Any]:
    """The native transforms of a pipeline, which may be none if all images have one size."""
    if not masks and draw.random() < 0.2:
        views: dict[str, Any] = {name: [*chain(draw), *ending(draw)] for name in ("a", "b")}
        if draw.random() < 0.5:
            views["b"] = sp.Repeat(2, views["b"])
        return [*([sp.Resize((30, 28))] if draw.random() < 0.5 else []), sp.Views(**views)]
    transforms = chain(draw) if not one_size or draw.random() < 0.8 else []
    return transforms + (ending(draw) if transforms or draw.random() < 0.5 else [])


def mapped(draw: random.Random, pipeline: sp.Pipeline, of: Contents, *, certain: bool) -> sp.Pipeline:
    """``pipeline`` with transforms, and Python functions between them; with one at least if ``certain``."""
    transforms = chain_of(draw, one_size=of.one_size, masks=of.masks)
    functions = FUNCTIONS[-1:] if of.kind == "pillow" else FUNCTIONS
    places = [number for number, each in enumerate(transforms) if not isinstance(each, LAST)]
    chosen = [place for place in (*places, len(places)) if draw.random() < 0.12]
    if certain and not chosen:
        chosen = [0]
    for place, transform in enumerate([*transforms, None]):
        if place in chosen:
            function, name = draw.choice(functions)
            pipeline = pipeline.map(function, field=name)
        pipeline = pipeline if transform is None else pipeline.map(transform)
    return pipeline


def chain(draw: random.Random) -> list[Any]:
    """Transforms after which all images have one size."""
    before = [of_any_size(draw) for _ in range(draw.choice((0, 0, 1, 2)))]
    after = [of_one_size(draw) for _ in range(draw.choice((0, 1, 2, 3)))]
    return [*before, sizing(draw), *after]


def side(draw: random.Random) -> int:
    return draw.randrange(6, 31)


def sizing(draw: random.Random) -> Any:
    size, how = (side(draw), side(draw)), draw.choice(("nearest", "bilinear", "bicubic", "box", "lanczos"))
    match draw.randrange(6):
        case 5:
            return sp.FixedSizeCrop(size, draw.choice((0, (9, 90, 200))))
        case 0 | 1:
            ratio, scale = draw.choice(((3 / 4, 4 / 3), (0.2, 5))), draw.choice(((0.08, 1.0), (0.001, 0.3)))
            return sp.RandomResizedCrop(size, scale, ratio, draw.choice((how, "random")))
        case 2:
            return sp.Resize(size, interpolation=how)
        case 3:
            return sp.CenterCrop(size)
    mode: Any = draw.choice(("constant", "edge", "reflect", "symmetric"))
    padding = draw.choice((None, 3, (1, 4), (0, 2, 5, 1)))
    return sp.RandomCrop(size, padding, draw.random() < 0.8, draw.choice((0, 9, (9, 90, 200))), mode)


def of_any_size(draw: random.Random) -> Any:
    how = draw.choice(("nearest", "bilinear", "bicubic", "hamming"))
    ways = [
        sp.Resize(side(draw), max_size=draw.choice((None, 40)), interpolation=how),
        sp.RandomResize(8, 30, how),
        sp.RandomZoomOut(draw.choice((0, (9, 90, 200))), draw.choice(((1.0, 4.0), (2.0, 2.5)))),
        sp.ScaleJitter((side(draw), side(draw)), draw.choice(((0.1, 2.0), (0.7, 0.8))), how),
        sp.RandomApply(
            [
                sp.RandomShortestSize(draw.choice((side(draw), (8, 20, 23))), draw.choice((None, 30)), how),
                sp.RandomSizeCrop(7, 25),
                sp.RandomHorizontalFlip(),
            ],
            p=0.7,
        ),
        sp.PadImage(draw.choice((2, (1, 3), (0, 1, 2, 3))), draw.choice((0, (9, 90, 200)))),
        sp.RandomHorizontalFlip(),
        sp.RandomVerticalFlip(),
        colour(draw),
    ]
    return draw.choice(ways)


def of_one_size(draw: random.Random) -> Any:
    group = draw.choice((sp.RandomApply, sp.RandomChoice, sp.RandomOrder))
    ways = [
        lambda: sizing(draw),
        lambda: sp.RandomHorizontalFlip(draw.choice((0.5, 0.0, 1.0))),
        lambda: sp.RandomVerticalFlip(),
        lambda: sp.PadImage(2, padding_mode=draw.choice(("constant", "edge", "reflect"))),
        lambda: colour(draw),
        lambda: sp.GaussianBlur(draw.choice((1, 3, 5)), draw.choice((1.0, (0.1, 2.0)))),
        lambda: sp.PillowGaussianBlur(draw.choice((0.7, (0.1, 2.0)))),
        lambda: turn(draw),
        lambda: group([colour(draw), sp.RandomVerticalFlip(), turn(draw), colour(draw)]),
    ]
    return draw.choice(ways)()


def turn(draw: random.Random) -> Any:
    how, degrees = draw.choice(("nearest", "bilinear")), draw.choice((30, (-200, 300), (45, 45)))
    return sp.RandomRotation(degrees, how, fill=draw.choice((0, (9, 90, 200))))


def colour(draw: random.Random) -> Any:
    ways = [
        sp.ColorJitter(0.4, 0.4, 0.4, 0.1),
        sp.ColorJitter(brightness=0.4, saturation=0.9),
        sp.RandomPhotometricDistort(),
        sp.RandomInvert(),
        sp.RandomPosterize(draw.randrange(1, 9)),
        sp.RandomSolarize(draw.randrange(256)),
        sp.RandomAutocontrast(),
        sp.RandomEqualize(),
        sp.RandomGrayscale(0.4),
        sp.RandomAdjustSharpness(draw.choice((0.3, 2.0))),
    ]
    return draw.choice(ways)


def ending(draw: random.Random) -> list[Any]:
    ways: list[list[Any]] = [
        [],
        [sp.ToLayout("NCHW")],
        [sp.Normalize()],
        [sp.Normalize(), sp.ToLayout("NHWC")],
        [sp.Normalize(), sp.ToDtype("float16")],
        [sp.ToDtype("float32", scale=draw.random() < 0.5)],
        [sp.Normalize(), sp.RandomErasing(0.7, value=(0.5, -1.0, 2.25))],
        [sp.RandomErasing(0.7, value=7)],
    ]
    return draw.choice(ways)
