"""Measure training from each stored form beside loose files, and beside the libraries that wrote it.

The photos of the folder are written as tar shards, TFRecord files, MDS shards and a Hugging Face dataset. All train
ImageNet's crop: a random crop of 224 × 224, a flip, float32, in a random order. An epoch has each photo REPEATS times,
by links to the shards, so that all is read from memory.

The first table: CPU time per image, in turns in one process. The second: how fast each is indexed, and the SHA-256 of
the first batches, which must be equal. The third: images a second beside the library of each form, with the same
transforms: ``datasets`` in this Python, tf.data and MosaicML Streaming in those that ``--python tf.data=PATH`` and
``--python streaming=PATH`` name. Each run is a process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _measure import (
    Figure,
    Turns,
    add_pythons,
    add_turns,
    column,
    compare_in_turns,
    in_turn,
    last_json,
    parser,
    progress,
    pythons,
    ratio,
    report,
)
from _peers import PX
from _shard_peers import FEATURES, REPEATS, hugging_face
from beside_torch import listed
from tar_shards import packed

import standpipe as sp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import record_files

DIGESTED = 1_000  # images
PEERS = Path(__file__).with_name("_shard_peers.py")
BESIDE = {  # a form: standpipe's loader of _shard_peers.py, and its peers with the Python that has them
    "arrow": ("standpipe, HuggingFace", {"datasets": "datasets"}),
    "tfrecord": (
        "standpipe, TFRecords",
        {"tf.data": "tf.data", "tf.data, no antialias": "tf.data"},
    ),
    "mds": ("standpipe, MDS", {"streaming": "streaming"}),
}


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    add_turns(arguments)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="of each run of the third table (default: 5)"
    )
    add_pythons(arguments, ["tf.data", "streaming"])
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="standpipe-forms-") as folder:
        stores = Path(folder)
        write_stores(listed(args.path), args.path, stores)
        made = sources(stores)
        for source in made.values():
            source.open()  # so that the indexes are there, and all files in memory
        beside_files(args, made)
        indexed(args, stores)
        beside_peers(args, stores)


def write_stores(photos: Sequence[tuple[str, int]], folder: str, stores: Path) -> None:
    """Write the photos in each form, as REPEATS links to a shard."""
    write_list(photos, stores / "list.txt")
    write_dataset(photos, stores / "arrow")
    images = [(Path(path).read_bytes(), label) for path, label in photos]
    repeat(Path(*packed(folder, stores / "tar", 1)))
    (stores / "tfrecord").mkdir()
    records = [
        record_files.example({FEATURES["image"]: image, FEATURES["label"]: [label]})
        for image, label in images
    ]
    repeat(record_files.tfrecord(stores / "tfrecord" / "photos.tfrecord", records))
    samples = [{"image": image, "label": label} for image, label in images]
    about = record_files.mds(stores / "mds", {"image": "jpeg", "label": "int"}, samples) / "index.json"
    content = json.loads(about.read_text())
    (shard,) = content["shards"]
    names = repeat(stores / "mds" / shard["raw_data"]["basename"])
    content["shards"] = [shard | {"raw_data": shard["raw_data"] | {"basename": name}} for name in names]
    about.write_text(json.dumps(content))


def repeat(path: Path) -> list[str]:
    """Link a shard under REPEATS names instead of its own, and return them."""
    names = [f"{path.stem}-{number:03}{path.suffix}" for number in range(REPEATS)]
    for name in names:
        path.with_name(name).hardlink_to(path)
    path.unlink()
    return names


def write_list(photos: Sequence[tuple[str, int]], path: Path) -> None:
    """Write a list of the photos, each REPEATS times."""
    path.write_text("".join(f"{Path(file).resolve()}\t{label}\n" for file, label in photos) * REPEATS)


def write_dataset(photos: Sequence[tuple[str, int]], folder: Path) -> None:
    """Save a Hugging Face dataset of the photos."""
    import datasets

    datasets.disable_progress_bars()
    images = [{"bytes": Path(path).read_bytes(), "path": Path(path).name} for path, _ in photos]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    labels = [label for _, label in photos]
    datasets.Dataset.from_dict({"image": images, "label": labels}, features=features).save_to_disk(folder)


def sources(stores: Path, **index: Any) -> dict[str, Any]:
    """Return a source of each form. ``index`` names another file for their indexes."""
    return {
        "loose files": sp.FileList(stores / "list.txt", **index),
        "tar": sp.TarShards(f"{stores}/tar/*.tar", **index),
        "TFRecord": sp.TFRecords(f"{stores}/tfrecord/*", **(FEATURES | index)),
        "MDS": sp.MDS(stores / "mds", **index),
        "Hugging Face": sp.HuggingFace(hugging_face(str(stores / "arrow"))),
    }


def task(args: argparse.Namespace, records: sp.Pipeline) -> sp.Pipeline:
    # Hugging Face's images are turned as EXIF says, and loose files aren't.
    train = records.decode(orientation="ignore").shuffle(seed=0)
    train = train.map(sp.RandomResizedCrop(PX), sp.RandomHorizontalFlip(), sp.Normalize())
    return train.batch(args.batch, last_batch="pad")


def beside_files(args: argparse.Namespace, made: dict[str, Any]) -> None:
    """Print the first table."""
    turns = {
        name: Turns(task(args, sp.Pipeline(source)).loader(num_workers=args.workers, memory="1GiB"))
        for name, source in made.items()
    }
    compare_in_turns(args, "source", turns)


def indexed(args: argparse.Namespace, stores: Path) -> None:
    """Print the second table."""
    seconds: dict[str, list[float]] = {name: [] for name in sources(stores)}
    rounds = min(args.rounds, 5)
    for number in range(rounds):
        for name, source in sources(stores, index=stores / f"index-{number}").items():
            progress(f"round {number + 1} of {rounds}: index of {name}")
            begin = time.perf_counter()
            opened = source.open()
            seconds[name].append(time.perf_counter() - begin)
            (stores / f"index-{number}").unlink(missing_ok=True)
    size = sum(Path(path).stat().st_size for path, _ in listed(args.path)) * REPEATS
    rows = []
    for name, source in sources(stores).items():
        progress(f"digest of {name}")
        first = task(args, sp.Pipeline(source).take(DIGESTED))
        digest = sp.digest_epoch(first, num_workers=args.workers, memory="1GiB")
        rates = [[of / each for each in seconds[name]] for of in (opened.num_records / 1e3, size / 1e9)]
        rows.append([name, Figure(rates[0]), Figure(rates[1], ".1f"), digest.sha256[:16]])
    progress("")
    note = f"{opened.num_records:,} records of {size / 1e6:,.0f} MB; a Hugging Face dataset needs no index"
    report(args, ["index", "records/s, thousand", "GB/s of images", "SHA-256 of batches"], rows, note)
    if len({row[-1] for row in rows}) > 1:
        raise SystemExit("the batches differ")


def beside_peers(args: argparse.Namespace, stores: Path) -> None:
    """Print the third table."""
    settings = ["--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds]
    known = {"datasets": sys.executable} | pythons(args)
    for form, (ours, peers) in BESIDE.items():
        runs = {ours: sys.executable} | {name: known[of] for name, of in peers.items() if of in known}
        if len(runs) == 1:
            continue
        commands = {
            name: [python, PEERS, name, "rate", stores / form, *settings] for name, python in runs.items()
        }
        found = in_turn(
            min(args.rounds, 3), {name: partial(last_json, each) for name, each in commands.items()}
        )
        rates = {name: column(each, "images_per_s") for name, each in found.items()}
        rows = [[name, Figure(each), ratio(rates[ours], each)] for name, each in rates.items()]
        report(args, [form, "images/s", "standpipe ÷ it"], rows, packages=("datasets", "torch", "pillow"))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
