"""Actors of a Ray cluster decode the photos; this process trains, and goes on without them if it must.

    standpipe synth photos --images 600
    ray start --head                                # and on other machines: ray start --address=HOST:6379
    python examples/ray_remote_workers.py photos --address auto --actors 4

The first epoch's batches come from actors. The state is saved in the middle of it, as a trainer saves it with its
weights. Then the actors are given back, and this process's own workers make the rest: the same batches, byte for byte.
Without ``--address``, Ray starts a cluster on this machine for this run.
"""

from __future__ import annotations

import argparse

import numpy as np
import ray

import standpipe as sp
import standpipe.ray

SIDE_PX = 32


def main() -> None:
    args = arguments()
    ray.init(address=args.address, include_dashboard=None if args.address else False, log_to_driver=False)
    train = (
        sp.Pipeline(sp.ImageFolder(args.photos))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(SIDE_PX), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch)
    )
    model = Softmax(SIDE_PX * SIDE_PX * 3)
    with standpipe.ray.loader(train, args.actors, cpus_per_actor=args.cpus, memory="512MiB") as batches:
        print(next(line.strip() for line in batches.explain().splitlines() if "travel per batch" in line))
        loss = 0.0
        for batch in batches.steps(len(batches) // 2):
            loss = model.step(batch["image"], batch["label"])
        print(f"{len(batches) // 2} batches of actors, loss {loss:.3f}")
        state = batches.state_dict()
    ray.shutdown()

    with train.loader(memory="512MiB") as batches:
        batches.load_state_dict(state)
        rest = [model.step(batch["image"], batch["label"]) for batch in batches]
        print(f"{len(rest)} batches without Ray, loss {rest[-1]:.3f}")


class Softmax:
    """A linear classifier of two classes, in NumPy."""

    def __init__(self, inputs: int) -> None:
        self.weights = np.zeros((inputs, 2), np.float32)

    def step(self, images: np.ndarray, labels: np.ndarray, rate: float = 1e-4) -> float:
        """Take a step of gradient descent, and return the loss before it."""
        inputs = images.reshape(len(images), -1)
        scores = np.exp(inputs @ self.weights)
        odds = scores / scores.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels)), labels % 2
        loss = -np.log(odds[rows]).mean()
        odds[rows] -= 1
        self.weights -= rate * inputs.T @ odds
        return float(loss)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", help="a folder of class folders, which the actors' machines have too")
    parser.add_argument("--address", help="the cluster: auto, or HOST:PORT")
    parser.add_argument("--actors", type=int, default=2, help="number of actors")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of an actor")
    parser.add_argument("--batch", type=int, default=25, help="rows of a batch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
