"""Train a small ResNet on CIFAR-10's binary files, and continue where an earlier run stopped.

``python examples/cifar_resnet.py cifar-10-batches-bin`` takes the folder of data_batch_1.bin and test_batch.bin.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import standpipe as sp

NORMALIZE = sp.Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        middle = nn.Sequential(nn.BatchNorm2d(outputs), nn.ReLU())
        self.layers = nn.Sequential(first, middle, second, nn.BatchNorm2d(outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.layers(images) + self.shortcut(images))


def resnet(width: int) -> nn.Sequential:
    blocks = (Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *blocks, head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, default in (("epochs", 20), ("batch", 512), ("width", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--checkpoint", type=Path, default=Path("run.pt"))
    args = parser.parse_args()
    torch.manual_seed(7)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = resnet(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    crop = (sp.RandomCrop(32, padding=4), sp.RandomHorizontalFlip(), NORMALIZE)
    files = sorted(args.folder.glob("data_batch_*.bin"))
    train = sp.Pipeline(sp.FixedRecords.cifar10(*files)).shuffle(seed=7).map(*crop).batch(args.batch)
    test = sp.Pipeline(sp.FixedRecords.cifar10(args.folder / "test_batch.bin"))
    test = test.map(NORMALIZE).batch(args.batch)
    with train.loader(memory="256MiB") as batches, test.loader(memory="256MiB") as tests:
        parts: dict[str, Any] = {"loader": batches, "model": model, "optimizer": optimizer}
        if args.checkpoint.exists():
            for name, saved in torch.load(args.checkpoint, weights_only=True).items():
                parts[name].load_state_dict(saved)
        for epoch in range(batches.state_dict()["epoch"], args.epochs):
            model.train()
            for batch in batches:
                images, labels = (torch.from_numpy(batch[name]).to(device) for name in ("image", "label"))
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
            model.eval()
            right = list[bool]()
            for batch in tests:
                with torch.no_grad():
                    guesses = model(torch.from_numpy(batch["image"]).to(device)).argmax(1).cpu().numpy()
                right += (guesses == batch["label"])[batch["valid"]].tolist()
            print(f"epoch {epoch}: test accuracy {sum(right) / len(right):.3f}")
            torch.save({name: part.state_dict() for name, part in parts.items()}, args.checkpoint)


if __name__ == "__main__":
    main()
