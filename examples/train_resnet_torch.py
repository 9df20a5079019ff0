"""A ResNet on folders of photos, with PyTorch: train, evaluate, checkpoint, resume.

    python examples/train_resnet_torch.py imagenet/train imagenet/val --checkpoint run.pt

ResNet-50 is torchvision's; ``--model timm/NAME`` takes one of timm's, and ``--model tiny`` is a network of a few
layers to try the script with, on a CPU:

    standpipe synth photos/train --images 600 --seed 1
    standpipe synth photos/val --images 200 --seed 2
    python examples/train_resnet_torch.py photos/train photos/val --model tiny --size 64 --batch 32 --epochs 3

On a GPU the model computes in bfloat16 and channels_last. Stop the run whenever you like, and go on with the same
command.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import standpipe.torch


def main() -> None:
    args = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kinds: dict[str, Any] = (
        {"dtype": torch.bfloat16, "memory_format": torch.channels_last} if device == "cuda" else {}
    )
    torch.manual_seed(7)
    train, val = standpipe.torch.image_folder_loaders(
        args.train, args.val, args.batch, size=args.size, device=device, seed=7, memory=args.memory, **kinds
    )
    model = network(args.model, len(train.classes or ())).to(device=device)
    if device == "cuda":
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), args.rate, momentum=0.9, nesterov=True, weight_decay=args.decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.rate, total_steps=args.epochs * len(train))
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "train": train}
    steps = load(args.checkpoint, parts)
    while (epoch := train.dataset.next_epoch) < args.epochs:
        model.train()
        for images, labels in train:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            steps += 1
            if steps % args.save_every == 0:
                save(args.checkpoint, parts, steps)
            if steps == args.max_steps:
                return
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(model, val, device):.3f}")
    save(args.checkpoint, parts, steps)


def network(name: str, classes: int) -> nn.Module:
    """Torchvision's of that name, timm's after ``timm/``, or a tiny one."""
    if name == "tiny":
        layers: list[nn.Module] = []
        for into, out in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"), num_classes=classes)  # type: ignore[no-any-return]
    import torchvision

    return torchvision.models.get_model(name, num_classes=classes)  # type: ignore[no-any-return]


@torch.no_grad()
def accuracy(model: nn.Module, batches: standpipe.torch.TorchLoader, device: str) -> float:
    """Share of right answers, every image counted once."""
    model.eval()
    right = rows = torch.zeros((), dtype=torch.int64, device=device)
    for images, labels, valid in batches:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            guesses = model(images).argmax(dim=1)
        right = right + ((guesses == labels) & valid).sum()
        rows = rows + valid.sum()
    return float(right / rows)


def save(path: Path | None, parts: dict[str, Any], steps: int) -> None:
    """Save a run in one file that is complete or absent."""
    if path is None:
        return
    partial = path.with_name(path.name + ".part")
    torch.save({"steps": steps, **{name: part.state_dict() for name, part in parts.items()}}, partial)
    partial.replace(path)


def load(path: Path | None, parts: dict[str, Any]) -> int:
    """Go on where the file was saved, if there is one; the steps made until then."""
    if path is None or not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    print(f"going on after step {state['steps']}, in epoch {parts['train'].dataset.next_epoch}")
    return int(state["steps"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=224, metavar="PX", help="side of an image")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.1, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=5e-5, help="weight decay")
    parser.add_argument("--memory", help="ceiling of both loaders, such as 2GiB")
    parser.add_argument("--checkpoint", type=Path, help="a file to save to and to go on from")
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--max-steps", type=int, help="stop after so many steps, as if interrupted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
