"""Train a model of timm with timm's own augmentation recipe, run by native code.

    pip install timm
    standpipe synth photos --images 600
    python examples/timm_recipe.py photos

``create_transform`` makes the recipe as timm's train.py does: crops with a random filter, RandAugment with random
magnitudes, and random erasing.
``sp.from_timm`` turns it into native transforms, and its report says if a part stays Python.
"""

from __future__ import annotations

import argparse

import timm.data
import timm.optim
import torch

import standpipe as sp
import standpipe.torch


def main() -> None:
    args = arguments()
    torch.manual_seed(7)
    recipe = timm.data.create_transform(
        args.size,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="random",
        re_prob=0.25,
        re_mode="pixel",
    )
    converted = sp.from_timm(recipe)
    print(converted)
    train = standpipe.torch.loader(
        sp.Pipeline(sp.ImageFolder(args.folder)).shuffle(seed=7).map(*converted).batch(args.batch),
        memory="512MiB",
    )
    classes = len(train.classes or ())
    model = timm.create_model(args.model, pretrained=False, num_classes=classes)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=args.lr)
    model.train()
    for epoch in range(args.epochs):
        total = count = 0.0
        for images, labels in train:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch}: loss {total / count:.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="a folder of class folders of photos")
    parser.add_argument("--model", default="resnet10t", help="default: resnet10t")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--batch", type=int, default=32, help="rows (default: 32)")
    parser.add_argument("--size", type=int, default=64, help="side of the crops in pixels (default: 64)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: 0.001)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
