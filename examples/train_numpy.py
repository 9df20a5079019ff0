"""Softmax regression on photos, with nothing but NumPy: train and eval loaders, checkpoint, resume.

    standpipe synth photos/train --images 600 --seed 1
    standpipe synth photos/val --images 200 --seed 2
    python examples/train_numpy.py photos/train photos/val --checkpoint run.npz

The colours of synthesised photos say nothing about their class, so the features are directions of edges. A model
this small gets more than half right, where guessing gets a tenth; what it shows is the loop.

Stop it whenever you like. The same command goes on after the last saved step and ends with the weights that an
uninterrupted run gives, bit for bit, also with other --workers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import standpipe as sp

SIDE_PX = 64
CELL_PX = 8
DIRECTIONS = 8


def main() -> None:
    args = arguments()
    train = (
        sp.Pipeline(sp.ImageFolder(args.train))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(SIDE_PX, scale=(0.5, 1.0)), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch)
    )
    val = (
        sp.Pipeline(sp.ImageFolder(args.val))
        .map(sp.Resize(SIDE_PX), sp.CenterCrop(SIDE_PX), sp.Normalize())
        .batch(args.batch)  # not shuffled, so the last batch is padded and "valid" says which rows count
    )
    workers = args.workers or "auto"
    with (
        train.loader(memory="256MiB", num_workers=workers) as batches,
        val.loader(memory="256MiB", num_workers=workers) as val_batches,
    ):
        model = Softmax(len(batches.plan.classes or ()))
        steps = load(args.checkpoint, model, batches)
        while batches.epoch < args.epochs:
            epoch = batches.epoch
            for batch in batches:
                loss = model.step(batch["image"], batch["label"], args.rate)
                steps += 1
                if steps % args.save_every == 0:
                    save(args.checkpoint, model, batches, steps)
                if steps == args.max_steps:
                    return
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model, val_batches):.3f}")
        save(args.checkpoint, model, batches, steps)


class Softmax:
    """Linear scores of features; ``weights`` (features, classes) and ``bias`` (classes,), float32."""

    def __init__(self, classes: int) -> None:
        self.weights = np.zeros(((SIDE_PX // CELL_PX) ** 2 * DIRECTIONS, classes), np.float32)
        self.bias = np.zeros(classes, np.float32)

    def scores(self, images: np.ndarray) -> np.ndarray:
        """(rows, classes) float32."""
        return edge_directions(images) @ self.weights + self.bias

    def step(self, images: np.ndarray, labels: np.ndarray, rate: float) -> float:
        """One step of gradient descent; the mean loss before it."""
        rows = np.arange(len(labels))
        features = edge_directions(images)
        scores = features @ self.weights + self.bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        loss = float(-np.log(chances[rows, labels]).mean())
        chances[rows, labels] -= 1
        chances *= np.float32(rate / len(labels))
        self.weights -= features.T @ chances
        self.bias -= chances.sum(axis=0)
        return loss


def edge_directions(images: np.ndarray) -> np.ndarray:
    """Return the strength of edges of each direction in each cell, (rows, features) float32.

    images  (rows, 3, SIDE_PX, SIDE_PX) float32
    """
    down, right = np.gradient(images.mean(axis=1), axis=(1, 2))
    direction = (np.arctan2(down, right) % np.pi * (DIRECTIONS / np.pi)).astype(int) % DIRECTIONS
    strength = np.hypot(down, right)[..., None] * (direction[..., None] == np.arange(DIRECTIONS))
    cells = SIDE_PX // CELL_PX
    cells_of = strength.reshape(len(images), cells, CELL_PX, cells, CELL_PX, DIRECTIONS).sum(axis=(2, 4))
    cells_of /= np.linalg.norm(cells_of, axis=3, keepdims=True) + 0.1
    features = np.sqrt(cells_of).reshape(len(images), -1)
    return (features - features.mean(axis=1, keepdims=True)).astype(np.float32)


def accuracy(model: Softmax, batches: sp.Loader) -> float:
    """Share of right answers, every row counted once."""
    right = rows = 0
    for batch in batches:
        guesses = model.scores(batch["image"]).argmax(axis=1)
        right += int(((guesses == batch["label"]) & batch["valid"]).sum())
        rows += int(batch["valid"].sum())
    return right / rows


def save(path: Path | None, model: Softmax, batches: sp.Loader, steps: int) -> None:
    """Model and place in the data, in one file that is complete or absent."""
    if path is None:
        return
    state = json.dumps({"steps": steps, "loader": batches.state_dict()})
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        np.savez(file, weights=model.weights, bias=model.bias, state=state)
    partial.replace(path)


def load(path: Path | None, model: Softmax, batches: sp.Loader) -> int:
    """Go on where the file was saved, if there is one; the steps made until then."""
    if path is None or not path.exists():
        return 0
    with np.load(path) as saved:
        model.weights, model.bias = saved["weights"], saved["bias"]
        state = json.loads(str(saved["state"]))
    batches.load_state_dict(state["loader"])
    print(f"going on after step {state['steps']}, in epoch {batches.epoch}")
    return int(state["steps"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate")
    parser.add_argument("--workers", type=int, help="decoding threads; one per CPU unless given")
    parser.add_argument("--checkpoint", type=Path, help="an .npz file to save to and to go on from")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--max-steps", type=int, help="stop after so many steps, as if interrupted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
