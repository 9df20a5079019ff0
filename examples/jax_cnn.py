"""A small convolutional network on photos, with JAX on every device there is: train, evaluate, checkpoint, resume.

    standpipe synth photos/train --images 600 --seed 1
    standpipe synth photos/val --images 200 --seed 2
    python examples/jax_cnn.py photos/train photos/val --checkpoint run.pkl

Each device gets its rows of a batch, and the weights whole. Several processes, each started with the same command
after ``jax.distributed.initialize()``, would each make their own rows.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import standpipe as sp
import standpipe.jax

SIDE_PX = 32
WIDTHS = (16, 32, 64)


def main() -> None:
    args = arguments()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
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
    with (
        standpipe.jax.loader(train, by_rows, memory="512MiB") as batches,
        standpipe.jax.loader(
            val, by_rows, fields=("image", "label", "valid"), memory="512MiB"
        ) as val_batches,
    ):
        weights = jax.jit(network, static_argnums=1)(jax.random.key(7), len(batches.classes or ()))
        zeros = jax.tree.map(np.zeros_like, weights)
        state = {"weights": weights, "mean": zeros, "square": zeros, "steps": np.int32(0)}
        if args.checkpoint and args.checkpoint.exists():
            saved = pickle.loads(args.checkpoint.read_bytes())  # one's own file: pickle runs what is in it
            batches.load_state_dict(saved.pop("loader"))
            state = saved
            print(f"going on after step {state['steps']}, in epoch {batches.loader.epoch}")
        state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))  # whole on every device
        while (epoch := batches.loader.epoch) < args.epochs:
            for batch in batches:
                state, loss = step(state, batch["image"], batch["label"], args.rate)
                if int(state["steps"]) % args.save_every == 0:
                    save(args.checkpoint, state, batches)
                if int(state["steps"]) == args.max_steps:
                    return
            right = rows = 0
            for batch in val_batches:
                right += correct(state["weights"], batch["image"], batch["label"], batch["valid"])
                rows += batch["valid"].sum()
            print(f"epoch {epoch}: loss {float(loss):.3f}, accuracy {float(right / rows):.3f}")
        save(args.checkpoint, state, batches)


def network(key: Any, classes: int) -> list[Any]:
    """Convolutions of 3 × 3, and a matrix for what is left of the image."""
    shapes = [(out, into, 3, 3) for into, out in zip((3, *WIDTHS[:-1]), WIDTHS, strict=True)]
    keys = jax.random.split(key, len(shapes))
    scaled = [
        jax.random.normal(k, shape) * np.sqrt(2 / np.prod(shape[1:]))
        for k, shape in zip(keys, shapes, strict=True)
    ]
    return [*scaled, jnp.zeros((WIDTHS[-1], classes))]


def logits(weights: list[Any], images: Any) -> Any:
    for kernel in weights[:-1]:
        images = jax.lax.conv(images, kernel, (2, 2), "SAME")
        images = images - images.mean(axis=(2, 3), keepdims=True)
        images = jax.nn.relu(images / (images.std(axis=(1, 2, 3), keepdims=True) + 1e-3))
    return images.mean(axis=(2, 3)) @ weights[-1]


@jax.jit
def step(state: dict[str, Any], images: Any, labels: Any, rate: float) -> tuple[dict[str, Any], Any]:
    """One step of Adam (Kingma and Ba, 2015)."""

    def loss_of(weights: Any) -> Any:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(weights, images)), labels[:, None], axis=1)
        return -chosen.mean()

    loss, gradient = jax.value_and_grad(loss_of)(state["weights"])
    steps = state["steps"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state["square"], gradient)
    rate = rate * jnp.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)
    weights = jax.tree.map(
        lambda w, m, s: w - rate * m / (jnp.sqrt(s) + 1e-8), state["weights"], mean, square
    )
    return {"weights": weights, "mean": mean, "square": square, "steps": steps}, loss


@jax.jit
def correct(weights: Any, images: Any, labels: Any, valid: Any) -> Any:
    """Return the number of right rows, without padding."""
    return ((logits(weights, images).argmax(axis=1) == labels) & valid).sum()


def save(path: Path | None, state: dict[str, Any], batches: standpipe.jax.JaxLoader) -> None:
    """Weights, optimiser and place in the data, in one file that is complete or absent."""
    if path is None or jax.process_index() > 0:
        return
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(pickle.dumps({**jax.device_get(state), "loader": batches.state_dict()}))
    partial.replace(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="rows, a multiple of the devices")
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--checkpoint", type=Path, help="a file to save to and to go on from")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--max-steps", type=int, help="stop after so many steps, as if interrupted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
