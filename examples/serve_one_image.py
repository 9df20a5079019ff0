"""Serve a model with exactly the preprocessing of its evaluation.

    standpipe synth photos --images 600
    python examples/serve_one_image.py photos --train model.pt
    python examples/serve_one_image.py photos/class-0/*.jpg --model model.pt

The checkpoint holds the weights and the recipe of the evaluation pipeline, as plain data. The server makes the
pipeline of it, and applies it to paths, bytes or arrays: it gets the bytes that evaluation got from a loader.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import standpipe as sp


def main() -> None:
    args = arguments()
    if args.train:
        (folder,) = args.paths
        train(Path(folder), Path(args.train))
        return
    saved = torch.load(args.model)
    pipeline = sp.Pipeline.from_dict(saved["recipe"])
    model = network(len(saved["classes"]))
    model.load_state_dict(saved["weights"])
    images = torch.from_numpy(pipeline.apply(args.paths)["image"])
    with torch.no_grad():
        chances = model.eval()(images).softmax(1)
    for path, row in zip(args.paths, chances, strict=True):
        best = int(row.argmax())
        print(f"{path}: {saved['classes'][best]} ({100 * float(row[best]):.0f}%)")


def train(folder: Path, checkpoint: Path) -> None:
    """Train for an epoch, and save weights, classes and the recipe of the evaluation."""
    torch.manual_seed(7)
    evaluation = sp.Pipeline(sp.ImageFolder(folder)).map(sp.Resize(72), sp.CenterCrop(64), sp.Normalize())
    with evaluation.shuffle(seed=7).batch(32).loader(memory="256MiB") as loader:
        classes = list(loader.plan.classes or ())
        model = network(len(classes))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for batch in loader:
            images, labels = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.save(
        {"weights": model.state_dict(), "classes": classes, "recipe": evaluation.to_dict()}, checkpoint
    )
    print(f"saved {checkpoint}, last loss {loss.item():.3f}")


def network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, classes)
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="+", help="images; with --train one folder of class folders")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--train", metavar="FILE", help="train a small model, and save it here")
    what.add_argument("--model", metavar="FILE", help="the model that --train saved")
    return parser.parse_args()


if __name__ == "__main__":
    main()
