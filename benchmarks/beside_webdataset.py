"""Compare tar shards read by standpipe with the same shards read by WebDataset in PyTorch's loader.

The task: RandomResizedCrop(224), a flip with probability 1/2, ImageNet's normalisation, NCHW float32. WebDataset
shuffles its shards and a buffer of 1,000 samples, and makes the crops in Pillow and torch. Both have the same number of
workers, and the shards are in the page cache. Beside rate, memory and start:

- *neighbours*: pairs of records that are neighbours in the shards and neighbours in an epoch too, as a fraction of all
- *cut shard*: how many samples of an epoch come if the last shard ends in the middle, and which error
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from beside_torch import PillowImages, measured
from tar_shards import packed

import standpipe as sp
from standpipe.cli.bench import PeakMemory

BUFFER = 1000  # samples that WebDataset shuffles
LOADERS = ("standpipe", "webdataset")


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument("--batch", type=int, default=128, metavar="N", help="rows (default: 128)")
    arguments.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    arguments.add_argument("--shards", type=int, default=4, metavar="N", help="shards (default: 4)")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child is not None:
        print(json.dumps(run(args, *json.loads(args.child))))
        return
    with tempfile.TemporaryDirectory() as folder:
        shards = packed(args.path, Path(folder, "shards"), args.shards)
        cut = packed(args.path, Path(folder, "cut"), args.shards)
        with Path(cut[-1]).open("r+b") as file:
            file.truncate(Path(cut[-1]).stat().st_size // 2)
        command = [sys.executable, __file__, *sys.argv[1:], "--child"]

        def child(loader: str, what: str) -> dict[str, Any]:
            return last_json([*command, json.dumps([loader, what, cut if what == "cut" else shards])])

        rates = in_turn(args.rounds, {loader: partial(child, loader, "rate") for loader in LOADERS})
        rows: list[list[Any]] = []
        for loader in LOADERS:
            order, damaged = child(loader, "order"), child(loader, "cut")
            rows.append(
                [
                    loader,
                    Figure(column(rates[loader], "images_per_s"), ".0f"),
                    Figure(column(rates[loader], "peak_pss_mib"), ".0f"),
                    Figure(column(rates[loader], "first_batch_s"), ".2f"),
                    f"{order['neighbours']:.1%}",
                    f"{damaged['samples']} of {order['samples']}: {damaged['error']}",
                ]
            )
        faster = ratio(*(column(rates[loader], "images_per_s") for loader in LOADERS))
    header = ["", "images/s", "peak PSS MiB", "first batch s", "neighbours", "cut shard"]
    notes = (
        f"standpipe ÷ webdataset: {faster}",
        f"float32, batch {args.batch}, {args.workers} workers, {args.shards} shards",
        "resume: standpipe continues at the next batch in any process; WebDataset starts the epoch anew",
    )
    report(args, header, rows, *notes, packages=("webdataset", "torch", "pillow"))


def run(args: argparse.Namespace, loader: str, what: str, shards: list[str]) -> dict[str, Any]:
    """Run one loader in this process; return its figures."""
    memory = PeakMemory()
    make = ours if loader == "standpipe" else partial(theirs, repeats=what == "rate")
    if what == "rate":
        return measured(make(args, shards), memory, max(args.workers, 1), args.seconds)
    found, error = list[int](), "no error"
    try:
        for _, numbers in make(args, shards):
            found += numbers
    except Exception as caught:  # whatever a loader raises is the answer
        error = f"{type(caught).__name__}: {str(caught).strip().splitlines()[-1][-60:]}"
    steps = [abs(second - first) == 1 for first, second in pairwise(found)]
    return {"samples": len(found), "error": error, "neighbours": sum(steps) / max(len(steps), 1)}


class Pairs:
    """Batches as (images, record numbers)."""

    def __init__(self, loader: sp.Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[Any, list[int]]]:
        for batch in self._loader:
            yield batch["image"], batch["index"].tolist()


def ours(args: argparse.Namespace, shards: list[str]) -> Pairs:
    pipeline = sp.Pipeline(sp.TarShards(shards)).shuffle(seed=7)
    pipeline = pipeline.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize())
    loader = pipeline.batch(args.batch, last_batch="partial").loader(memory="1GiB", num_workers=args.workers)
    return Pairs(loader)


def theirs(args: argparse.Namespace, shards: list[str], *, repeats: bool) -> Any:
    """Return WebDataset's samples in torch's loader, with each record's place in the shards."""
    import torch
    import webdataset

    torch.set_num_threads(1)
    crops = PillowImages([])
    keys = {key: number for number, key in enumerate(keys_of(shards))}

    def sample(parts: tuple[str, Any]) -> tuple[Any, int]:
        return crops.transformed(parts[1]), keys.get(parts[0], -1)

    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False).shuffle(BUFFER)
    dataset = dataset.decode("pil").to_tuple("__key__", "jpg;jpeg;png").map(sample)
    if repeats:
        dataset = dataset.repeat()
    return webdataset.WebLoader(dataset, batch_size=args.batch, num_workers=args.workers, collate_fn=collated)


def keys_of(shards: list[str]) -> Iterator[str]:
    """Yield the keys of all records, in the shards' order."""
    import tarfile

    for shard in shards:
        with tarfile.open(shard) as tar:
            try:
                for member in tar:
                    if not member.name.endswith(".cls"):
                        yield member.name.partition(".")[0]
            except tarfile.ReadError:  # the shard that was cut
                return


def collated(samples: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
    import torch

    return torch.stack([image for image, _ in samples]), [number for _, number in samples]


if __name__ == "__main__":
    main()
