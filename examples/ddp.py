"""Training with DistributedDataParallel: each process its own rows, and a validation that counts every image once.

    torchrun --nproc-per-node=2 examples/ddp.py photos/train photos/val --checkpoint run.pt

There is no sampler and nothing about ranks but the process group: steps are equally many in all processes, and the
last ones of a validation are padded, which ``valid`` marks. Go on with the same command, also with another number of
processes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import standpipe.torch


def main() -> None:
    args = arguments()
    on_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    device = f"cuda:{distributed.get_rank() % torch.cuda.device_count()}" if on_gpu else "cpu"
    torch.manual_seed(7)
    train, val = standpipe.torch.image_folder_loaders(
        args.train, args.val, args.batch, size=args.size, device=device, seed=7, memory="512MiB"
    )
    plain = network(len(train.classes or ())).to(device)
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.AdamW(model.parameters(), args.rate)
    if args.checkpoint and args.checkpoint.exists():
        state = torch.load(args.checkpoint, weights_only=True, map_location=device)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        train.load_state_dict(state["train"])
    while (epoch := train.dataset.next_epoch) < args.epochs:
        model.train()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right, rows = counted(plain, val, device)
        if distributed.get_rank() == 0:
            print(f"epoch {epoch}: {len(train)} steps, {rows} images validated, accuracy {right / rows:.3f}")
            if args.checkpoint:
                parts = {"model": plain, "optimizer": optimizer, "train": train}
                torch.save({name: part.state_dict() for name, part in parts.items()}, args.checkpoint)
    distributed.destroy_process_group()


def network(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


@torch.no_grad()
def counted(model: nn.Module, batches: standpipe.torch.TorchLoader, device: str) -> tuple[int, int]:
    """Right answers and images, of all processes together."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels, valid in batches:
        guesses = model(images).argmax(dim=1)
        counts += torch.stack([((guesses == labels) & valid).sum(), valid.sum()])
    distributed.all_reduce(counts)
    right, rows = counts.tolist()
    return right, rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="images of one process")
    parser.add_argument("--size", type=int, default=64, metavar="PX", help="side of an image")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    parser.add_argument("--checkpoint", type=Path, help="a file to save to and to go on from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
