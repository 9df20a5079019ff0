"""Training from a network file system that is asked for each file once.

    python examples/nfs_cache.py /mnt/nfs/train --memory 64GiB --spill /scratch
    standpipe cache list

The cache stands right behind the source, so it keeps files as they are: crops are drawn anew in every epoch. Behind
``RandomResizedCrop`` it would repeat the first epoch's crops, and is refused. What doesn't fit into memory goes to
--spill, a disk of this machine, and what fits nowhere is read again. Other jobs of this machine, other ranks among
them, read what one has kept. A file that was changed before a job started is read anew: for that each job looks once
at each file's size and time (--validate).

MindSpore's tutorial of its single-node cache trains a MobileNetV2 on 4 GPUs this way, through a server:

    seconds of an epoch           the first        later
    without a cache                    1649          458
    with it                            3384          421     it pays after 47 epochs

Here the first epoch reads each file as it would without a cache, and keeps it as it is: some 60 µs of CPU for a photo
that takes 1,600 to decode. benchmarks/slow_open_cache.py measures both, from a file system that takes 5 ms longer for
each open, beside the same files on a local disk.
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
    cache = sp.Cache(
        args.cache, args.memory, spill=args.spill, directory=args.directory, validate=args.validate
    )
    train = standpipe.torch.loader(
        sp.Pipeline(sp.ImageFolder(args.train))
        .cache(cache)
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(args.size), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch),
        device=device,
        memory=args.loader_memory,
    )
    if args.explain:
        print(train.explain())
        return
    model = network(len(train.classes or ())).to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.rate, momentum=0.9)
    read = 0
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - begin
        before, read = read, train.stats().cache_misses
        print(f"epoch {epoch}: loss {loss.item():.3f}, {read - before} files read, {seconds:.1f} s")


def network(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, metavar="PX", help="side of an image")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--cache", default="train", metavar="NAME", help="of the session (default: train)")
    parser.add_argument("--memory", default="4GiB", help="for kept files (default: 4GiB)")
    parser.add_argument("--spill", metavar="FOLDER", help="on a local disk, for those that don't fit")
    parser.add_argument("--directory", help="where they are kept (default: /dev/shm, which is memory)")
    parser.add_argument("--validate", choices=("loader", "epoch", "never"), default="loader")
    parser.add_argument("--loader-memory", default="512MiB", help="the loader's ceiling (default: 512MiB)")
    parser.add_argument("--explain", action="store_true", help="say what is planned, and end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
