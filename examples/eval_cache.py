"""Train with an evaluation after every epoch; only the first evaluation decodes.

    standpipe synth photos/train --images 600 --seed 1
    standpipe synth photos/val --images 2000 --seed 2
    python examples/eval_cache.py photos/train photos/val
    standpipe cache list

``Resize`` and ``CenterCrop`` aren't random: their result for a photo is the same in each evaluation, in other jobs
and in the next run. So the cache keeps it after them, 150 kB for 224 × 224 pixels, and it is normalised when read.
There is no server, and nothing to create before; a photo that changes is decoded again.

MindSpore's tutorial of its single-node cache evaluates a ResNet-50 on 4 devices this way, through a server. Its
figures, and the loading alone, without a model, of 10,000 photos on two busy cores (benchmarks/eval_cache.py):

    seconds of an evaluation      without a cache   later ones
    MindSpore, as published                 10.59         3.62
    standpipe, loading alone                  16.2         0.51
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

import standpipe as sp
import standpipe.torch


def main() -> None:
    args = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
    train = standpipe.torch.loader(
        sp.Pipeline(sp.ImageFolder(args.train))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(args.size), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch),
        device=device,
        memory="512MiB",
    )
    cache = sp.Cache(args.cache, args.memory, directory=args.directory)
    val = standpipe.torch.loader(
        sp.Pipeline(sp.ImageFolder(args.val))
        .map(sp.Resize(args.size * 256 // 224), sp.CenterCrop(args.size))
        .cache(cache)
        .map(sp.Normalize())
        .batch(args.batch, last_batch="partial"),
        device=device,
        memory="512MiB",
    )
    model = network(len(train.classes or ())).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    decoded = 0
    for epoch in range(args.epochs):
        model.train()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        begin = time.perf_counter()
        share = accuracy(model, val)
        seconds = time.perf_counter() - begin
        before, decoded = decoded, val.stats().cache_misses
        print(
            f"epoch {epoch}: accuracy {share:.3f}, {decoded - before} images decoded for it, {seconds:.2f} s"
        )


def network(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


@torch.no_grad()
def accuracy(model: nn.Module, batches: standpipe.torch.TorchLoader) -> float:
    model.eval()
    right = rows = 0
    for images, labels in batches:
        right += int((model(images).argmax(dim=1) == labels).sum())
        rows += len(labels)
    return right / rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=224, metavar="PX", help="side of an image")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    parser.add_argument("--cache", default="eval", metavar="NAME", help="of the session (default: eval)")
    parser.add_argument("--memory", default="2GiB", help="for kept images (default: 2GiB)")
    parser.add_argument("--directory", help="where they are kept (default: /dev/shm, which is memory)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
