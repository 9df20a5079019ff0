"""Train on a list of ten million images, in a memory given as a number, and go on where it stopped.

    python examples/ten_million_images.py list.txt --memory 4GiB --workers 8
    python examples/ten_million_images.py

A line of the list is a path and a label. Without a list, a few photos and a list of 2,000 lines that names them again
and again are made in demo/, so that there is something to run.

First comes the proof that every image is read exactly once, in sequence or shuffled, by one rank or by several. Then
the training: a global shuffle, a native crop, what albumentations does to it in worker processes, and a state that is
saved every few steps. Stop it whenever you like: the same command goes on after the last saved step, also with other
--workers or, started by torchrun, with other ranks.

The training step is left out. In its place a sum of all pixels that the rank was given is kept. It comes out the same
however often a run was stopped: not a byte was different.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import standpipe as sp

SIDE_PX = 96
DEMO_PHOTOS, DEMO_LINES = 100, 2_000


def main() -> None:
    args = arguments()
    images = sp.Pipeline(sp.FileList(args.list or demo_list(Path("demo"))))
    prove(images, args)
    train = images.shuffle(seed=7).map(sp.RandomResizedCrop(SIDE_PX)).map(*augmentations()).batch(args.batch)
    settings: dict[str, Any] = {"memory": args.memory, "num_workers": args.workers, "executor": "process"}
    with train.shard().loader(**settings) as loader:  # the launcher says which rank this is
        total = go_on(args.state, loader)
        first = loader.plan.steps.rank == 0
        for step, batch in enumerate(loader.steps(args.steps), 1):
            total += int(batch["image"].sum())
            if first and step % args.save_every == 0:
                save(args.state, {"loader": loader.state_dict(), "total": total})
            if loader.state_dict()["consumed"] == 0:  # that was the epoch's last batch
                print(
                    f"epoch {loader.epoch - 1}: {len(loader)} steps, pixels add up to {total:,}", flush=True
                )


def prove(images: sp.Pipeline, args: argparse.Namespace) -> None:
    """Count what every rank would read, without reading an image."""
    for name, order in (("in sequence", images), ("shuffled", images.shuffle(seed=7))):
        for ranks in (1, args.ranks):
            found = order.map(sp.RandomResizedCrop(SIDE_PX)).batch(args.batch).audit(ranks=ranks, epochs=1)
            steps = f"{found.steps[0]:,} steps each"
            print(f"{name}, ranks={ranks}: {'every image once' if found.ok else found}, {steps}")


def augmentations() -> list[Any]:
    """Return the augmentations of a crop: Python code where albumentations is installed."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # its import would ask the network for a newer one
    try:
        import albumentations
    except ImportError:
        print("albumentations isn't installed: crops are flipped, and nothing else happens to them")
        return [sp.RandomHorizontalFlip()]
    return [
        albumentations.Compose(
            [
                albumentations.HorizontalFlip(p=0.5),
                albumentations.RandomBrightnessContrast(p=0.8),
                albumentations.CoarseDropout(p=0.3),
            ]
        )
    ]


def go_on(state: Path, loader: sp.Loader) -> int:
    """Go on from the saved state, if there is one; the sum of pixels up to there."""
    if not state.exists():
        return 0
    saved = json.loads(state.read_text())
    loader.load_state_dict(saved["loader"])
    print(f"going on after {saved['loader']['consumed']:,} images of epoch {saved['loader']['epoch']}")
    return int(saved["total"])


def save(path: Path, state: dict[str, Any]) -> None:
    """Write it whole or not at all: a kill in the middle leaves the state before."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)


def demo_list(folder: Path) -> Path:
    """A list of photos that are made for it."""
    photos, listed = folder / "few-photos", folder / "list.txt"
    if not listed.exists():
        command = [sys.executable, "-m", "standpipe", "synth", photos, "--images", str(DEMO_PHOTOS)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        paths = sorted(photos.glob("*/*.jpg"))
        lines = [f"{path.relative_to(folder)} {path.parent.name}\n" for path in paths]
        listed.write_text("".join(lines * (DEMO_LINES // len(lines))))
    return listed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", nargs="?", help="a line each: path label")
    parser.add_argument(
        "--memory", default="1GiB", help="of a rank, for all that standpipe takes (default: 1GiB)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="processes of a rank (default: 2)"
    )
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    parser.add_argument("--steps", type=int, default=40, metavar="N", help="of this run (default: 40)")
    parser.add_argument("--save-every", type=int, default=10, metavar="N", help="steps (default: 10)")
    parser.add_argument(
        "--ranks", type=int, default=8, metavar="N", help="that the proof counts (default: 8)"
    )
    parser.add_argument("--state", type=Path, default=Path("ten-million.json"), help="where to save it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
