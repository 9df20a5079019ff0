"""Measure encoded images from Python datasets beside the same images in files.

All make ImageNet's training crop: a random crop of 224 × 224, a flip, float32, from the photos of the folder in a
random order, with as many workers. All stores hold each photo once, and an epoch has it REPEATS times.

MapSource reads a list of bytes, an LMDB and a Hugging Face dataset, in worker processes and in threads. All work in
turns in one process; CPU time is that of all processes. ``shard_formats.py`` measures the dataset in place.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _measure import Turns, add_turns, compare_in_turns, parser
from _peers import PX
from _shard_peers import REPEATS, hugging_face
from beside_torch import listed
from shard_formats import write_dataset, write_list

import standpipe as sp


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


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    add_turns(arguments)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as args.stores:
        write_stores(listed(args.path), Path(args.stores))
        turns = {"files": Turns(loader(sp.FileList(f"{args.stores}/list.txt"), args), processes=True)}
        for name, make in DATASETS.items():
            source = sp.MapSource(make(args), encoded="image")
            for executor in ("process", "thread"):
                # The CPU time of a probe isn't the loader's.
                made = loader(source, args, executor=executor, check_generators=False)
                turns[f"{name}, {executor}"] = Turns(made, processes=True)
        compare_in_turns(args, "source", turns)


def write_stores(photos: Sequence[tuple[str, int]], stores: Path) -> None:
    """Write photos into an LMDB and a Hugging Face dataset, and a list of their paths."""
    import lmdb

    write_list(photos, stores / "list.txt")
    write_dataset(photos, stores / "arrow")
    size = sum(Path(path).stat().st_size for path, _ in photos)
    with (
        lmdb.open(str(stores / "lmdb"), map_size=2 * size + (64 << 20)) as env,
        env.begin(write=True) as transaction,
    ):
        for number, (path, label) in enumerate(photos):
            transaction.put(b"%08d" % number, label.to_bytes(2, "big") + Path(path).read_bytes())


def stored(args: argparse.Namespace) -> Any:
    """Return the Hugging Face dataset, which has bytes instead of images."""
    import datasets

    return hugging_face(f"{args.stores}/arrow").cast_column("image", datasets.Image(decode=False))


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


DATASETS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "list of bytes": in_list,
    "LMDB": database,
    "Hugging Face": stored,
}
if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
