"""Measure encoded images from Python datasets beside the same images in files, and beside PyTorch's DataLoader.

All make ImageNet's training crop: a random crop of 224 × 224, a flip, float32, from the photos of the folder in a
random order, with as many workers. All stores hold each photo once, and an epoch has it REPEATS times.

The first table: files, which native threads read; a Hugging Face dataset, whose Arrow files they read in place; and
MapSource over a list of bytes, an LMDB and the same dataset, in worker processes and in threads. They work in turns in
one process; CPU time is that of all processes. The second table: the Hugging Face dataset here, in place and by
MapSource, and in PyTorch's DataLoader, which decodes it with Pillow, as its users write it. Each run is a process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import (
    Figure,
    Turns,
    add_turns,
    column,
    compare_in_turns,
    in_turn,
    last_json,
    parser,
    ratio,
    report,
)
from _peers import MEAN, PX, STD, box

import standpipe as sp

REPEATS = 20
WARM_UP = 6  # batches before the clock starts


class Repeated:
    """A list of (bytes, label), each item REPEATS times."""

    def __init__(self, items: list[tuple[bytes, int]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items) * REPEATS

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.items[index % len(self.items)]


class Database:
    """An LMDB: number → label in two bytes, and the image."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.env: Any = None
        self.size = self.opened().stat()["entries"]

    def opened(self) -> Any:
        import lmdb

        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        return self.env

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "env": None}  # each process opens it

    def __len__(self) -> int:
        return int(self.size * REPEATS)

    def __getitem__(self, index: int) -> tuple[memoryview, int]:
        with self.opened().begin() as transaction:
            value = memoryview(transaction.get(b"%08d" % (index % self.size)))
        return value[2:], int.from_bytes(value[:2], "big")


class Decoded:
    """Make torch's rows of a batch of the Hugging Face dataset, as a transform of it."""

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": list(map(self.row, batch["image"])), "label": batch["label"]}

    def row(self, image: Any) -> Any:
        import random

        import torch
        from PIL import Image

        crop = image.convert("RGB").resize((PX, PX), Image.Resampling.BILINEAR, box(*image.size))
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1).float()
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    add_turns(arguments)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="of each run of the second table (default: 5)"
    )
    arguments.add_argument("--only", help=argparse.SUPPRESS)
    arguments.add_argument("--stores", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.only:
        print(json.dumps({"rate": RUNS[args.only](args)}))
        return
    with tempfile.TemporaryDirectory() as args.stores:
        write_stores(args.path, Path(args.stores))
        beside_files(args)
        beside_torch(args)


def beside_files(args: argparse.Namespace) -> None:
    """Print the first table."""
    turns = {"files": Turns(loader(sp.FileList(f"{args.stores}/list.txt"), args), processes=True)}
    in_place = sp.HuggingFace(hugging_face(args))
    turns["Hugging Face, in place"] = Turns(loader(in_place, args), processes=True)
    for name, make in DATASETS.items():
        source = sp.MapSource(make(args), encoded="image")
        for executor in ("process", "thread"):
            # The CPU time of a probe isn't the loader's.
            made = loader(source, args, executor=executor, check_generators=False)
            turns[f"{name}, {executor}"] = Turns(made, processes=True)
    compare_in_turns(args, "source", turns)


def beside_torch(args: argparse.Namespace) -> None:
    """Print the second table."""
    command = [sys.executable, __file__, args.path, "--stores", args.stores]
    command += ["--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds]
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(last_json, [*command, "--only", name]) for name in RUNS
    }
    results = in_turn(min(args.rounds, 3), runs)
    rates = {name: column(found, "rate") for name, found in results.items()}
    rows = [[name, Figure(values), ratio(values, rates["PyTorch"])] for name, values in rates.items()]
    packages = ["datasets", "lmdb", "torch", "pillow"]
    report(args, ["Hugging Face dataset", "images/s", "÷ PyTorch's"], rows, packages=packages)


def write_stores(folder: str, stores: Path) -> None:
    """Write the photos of a folder into an LMDB and a Hugging Face dataset, and a list of their paths."""
    import datasets
    import lmdb

    paths = [path for each in sorted(Path(folder).iterdir()) for path in sorted(each.iterdir())]
    names = sorted({path.parent.name for path in paths})
    labels = [names.index(path.parent.name) for path in paths]
    lines = [f"{path.resolve()}\t{label}\n" for path, label in zip(paths, labels, strict=True)]
    (stores / "list.txt").write_text("".join(lines * REPEATS))
    size = sum(path.stat().st_size for path in paths)
    with (
        lmdb.open(str(stores / "lmdb"), map_size=2 * size + (64 << 20)) as env,
        env.begin(write=True) as transaction,
    ):
        for number, (path, label) in enumerate(zip(paths, labels, strict=True)):
            transaction.put(b"%08d" % number, label.to_bytes(2, "big") + path.read_bytes())
    images = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    made = datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)
    datasets.disable_progress_bars()
    made.save_to_disk(stores / "arrow")


def hugging_face(args: argparse.Namespace, *, decode: bool = False) -> Any:
    import datasets

    stored = datasets.load_from_disk(f"{args.stores}/arrow").cast_column(
        "image", datasets.Image(decode=decode)
    )
    return datasets.concatenate_datasets([stored] * REPEATS)


def database(args: argparse.Namespace) -> Database:
    return Database(Path(args.stores) / "lmdb")


def in_list(args: argparse.Namespace) -> Repeated:
    paths = Path(args.stores, "list.txt").read_text().splitlines()
    items = [line.split("\t") for line in paths[: len(paths) // REPEATS]]
    return Repeated([(Path(path).read_bytes(), int(label)) for path, label in items])


def loader(source: Any, args: argparse.Namespace, **options: Any) -> sp.Loader:
    pipeline = sp.Pipeline(source).shuffle(seed=0).map(sp.RandomResizedCrop(PX), sp.RandomHorizontalFlip())
    pipeline = pipeline.map(sp.Normalize()).batch(args.batch)
    return pipeline.loader(num_workers=args.workers, memory="2GiB", **options)


def standpipe_rate(args: argparse.Namespace) -> float:
    with loader(sp.MapSource(hugging_face(args), encoded="image"), args) as batches:
        return rate((len(batch["index"]) for batch in batches), args.seconds)


def in_place_rate(args: argparse.Namespace) -> float:
    with loader(sp.HuggingFace(hugging_face(args)), args) as batches:
        return rate((len(batch["index"]) for batch in batches), args.seconds)


def torch_rate(args: argparse.Namespace) -> float:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    dataset = hugging_face(args, decode=True).with_transform(Decoded())
    batches = DataLoader(dataset, args.batch, shuffle=True, num_workers=args.workers)
    return rate((len(batch["label"]) for batch in batches), args.seconds)


def rate(batches: Iterator[int], seconds: float) -> float:
    """Return samples a second, after the first batches."""
    for _ in range(WARM_UP):
        next(batches)
    begin, samples = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + seconds:
        samples += next(batches)
    return samples / (now - begin)


DATASETS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "list of bytes": in_list,
    "LMDB": database,
    "Hugging Face": hugging_face,
}
RUNS = {"standpipe, in place": in_place_rate, "standpipe": standpipe_rate, "PyTorch": torch_rate}

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
