"""A small convolutional network on photos, with PyTorch: train and eval loaders, checkpoint, resume.

    standpipe synth photos/train --images 600 --seed 1
    standpipe synth photos/val --images 200 --seed 2
    python examples/train_torch.py photos/train photos/val --checkpoint run.pt

``torch.from_numpy`` shares the batch's memory, so no byte is copied on the way; the tensor keeps the batch's
slot until it is dropped. Stop the run whenever you like, and go on with the same command.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import standpipe as sp

SIDE_PX = 64


def main() -> None:
    args = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
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
    with train.loader(memory="512MiB") as batches, val.loader(memory="512MiB") as val_batches:
        model = network(len(batches.plan.classes or ())).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
        steps = load(args.checkpoint, model, optimizer, batches)
        while batches.epoch < args.epochs:
            epoch = batches.epoch
            model.train()
            for batch in batches:
                images, labels = (torch.from_numpy(batch[name]).to(device) for name in ("image", "label"))
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                if steps % args.save_every == 0:
                    save(args.checkpoint, model, optimizer, batches, steps)
                if steps == args.max_steps:
                    return
            print(
                f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(model, val_batches, device):.3f}"
            )
        save(args.checkpoint, model, optimizer, batches, steps)


def network(classes: int) -> nn.Module:
    """Four times: convolution, normalisation, and half the size."""
    layers: list[nn.Module] = []
    channels = 3
    for wider in (16, 32, 64, 64):
        layers += [
            nn.Conv2d(channels, wider, 3, padding=1),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = wider
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (SIDE_PX // 16) ** 2, classes))


@torch.no_grad()
def accuracy(model: nn.Module, batches: sp.Loader, device: str) -> float:
    """Share of right answers, every row counted once."""
    model.eval()
    right = rows = 0
    for batch in batches:
        guesses = model(torch.from_numpy(batch["image"]).to(device)).argmax(dim=1).cpu().numpy()
        right += int(((guesses == batch["label"]) & batch["valid"]).sum())
        rows += int(batch["valid"].sum())
    return right / rows


def save(path: Path | None, model: nn.Module, optimizer: Any, batches: sp.Loader, steps: int) -> None:
    """Model, optimiser and place in the data, in one file that is complete or absent."""
    if path is None:
        return
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": batches.state_dict(),
        "steps": steps,
    }
    partial = path.with_name(path.name + ".part")
    torch.save(state, partial)
    partial.replace(path)


def load(path: Path | None, model: nn.Module, optimizer: Any, batches: sp.Loader) -> int:
    """Go on where the file was saved, if there is one; the steps made until then."""
    if path is None or not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
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
    parser.add_argument("--rate", type=float, default=0.001, help="learning rate")
    parser.add_argument("--checkpoint", type=Path, help="a file to save to and to go on from")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--max-steps", type=int, help="stop after so many steps, as if interrupted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
