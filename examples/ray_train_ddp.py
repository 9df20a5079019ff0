"""DistributedDataParallel with Ray Train: each rank has a loader, and all ranks share the actors that decode.

    standpipe synth photos --images 600
    python examples/ray_train_ddp.py photos --ranks 2 --actors 2

Needs PyTorch and ``pip install 'ray[train]'``. ``--address auto`` uses a cluster that runs. Every rank has its part of
each step, and every image comes once in an epoch, whatever actors and nodes come and go.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray
import torch
import torch.distributed
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

import standpipe as sp
import standpipe.ray
import standpipe.torch

SIDE_PX = 32


def train_rank(config: dict[str, Any]) -> None:
    """Run one rank, in a process of Ray Train's."""
    # Its rank and the number of ranks come from torch.distributed, which Ray Train has started.
    batches = standpipe.torch.loader(
        config["pipeline"], fields=("image", "label", "index"), fleet=config["actors"], memory="512MiB"
    )
    model = prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE_PX**2, config["classes"])))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(config["epochs"]):
        seen: list[int] = []
        for images, labels, index in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += index.tolist()
        ranks: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(ranks, seen)
        every = [index for rank in ranks for index in rank]
        if torch.distributed.get_rank() == 0:
            print(
                f"epoch {epoch}: {len(every)} images, {len(set(every))} different ones, loss {loss.item():.3f}"
            )


def main() -> None:
    args = arguments()
    ray.init(address=args.address, include_dashboard=None if args.address else False)
    source = sp.ImageFolder(args.photos)
    pipeline = (
        sp.Pipeline(source)
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(SIDE_PX), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch)
    )
    classes = len(pipeline.plan(memory="512MiB").classes or ())
    with standpipe.ray.start(pipeline, args.actors, cpus_per_actor=args.cpus) as actors:
        config = {"pipeline": pipeline, "actors": actors, "classes": classes, "epochs": args.epochs}
        scaling = ScalingConfig(num_workers=args.ranks, resources_per_worker={"CPU": args.cpus})
        TorchTrainer(train_rank, train_loop_config=config, scaling_config=scaling).fit()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", help="a folder of class folders, which all machines have")
    parser.add_argument("--address", help="the cluster: auto, or HOST:PORT")
    for name, default in (("ranks", 2), ("actors", 2), ("epochs", 1), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of an actor, and of a rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
