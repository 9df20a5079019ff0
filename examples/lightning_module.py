"""A LightningModule with standpipe's loaders: fit, validate every epoch, and go on from a checkpoint inside an epoch.

    python examples/lightning_module.py photos/train photos/val --folder runs
    python examples/lightning_module.py photos/train photos/val --folder runs --resume runs/last.ckpt

The state of the training loader is in Lightning's checkpoints by itself. With several devices Lightning starts a
process for each, and each gets its own rows; ``use_distributed_sampler`` finds nothing to change.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import standpipe.torch


class Photos(lightning.LightningDataModule):
    """Two folders of class folders."""

    def __init__(self, train: str, val: str, batch: int, size: int) -> None:
        super().__init__()
        self.train, self.val = standpipe.torch.image_folder_loaders(
            train, val, batch, size=size, seed=7, memory="512MiB"
        )

    @property
    def classes(self) -> int:
        return len(self.train.classes or ())

    def train_dataloader(self) -> standpipe.torch.TorchLoader:
        return self.train

    def val_dataloader(self) -> standpipe.torch.TorchLoader:
        return self.val


class Classifier(lightning.LightningModule):
    """A few layers, and what happens with a batch."""

    def __init__(self, classes: int, rate: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for into, out in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
        self.rate = rate

    def training_step(self, batch: Any, _number: int) -> Any:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def on_validation_epoch_start(self) -> None:
        self.counts = torch.zeros(2, device=self.device)

    def validation_step(self, batch: Any, _number: int) -> None:
        images, labels, valid = batch
        guesses = self.network(images).argmax(dim=1)
        self.counts += torch.stack([((guesses == labels) & valid).sum(), valid.sum()])

    def on_validation_epoch_end(self) -> None:
        right, rows = self.all_gather(self.counts).reshape(-1, 2).sum(dim=0).tolist()
        self.log("accuracy", right / rows, rank_zero_only=True)
        self.print(f"epoch {self.current_epoch}: {rows:.0f} images validated, accuracy {right / rows:.3f}")

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), self.rate)


def main() -> None:
    args = arguments()
    lightning.seed_everything(7, verbose=False)
    photos = Photos(args.train, args.val, args.batch, args.size)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        max_steps=args.max_steps,
        accelerator=args.accelerator,
        callbacks=[ModelCheckpoint(args.folder, every_n_train_steps=args.save_every, save_last=True)],
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if args.resume:
        print("going on from", args.resume)
    trainer.fit(Classifier(photos.classes, args.rate), photos, ckpt_path=args.resume, weights_only=False)
    print(f"{trainer.global_step} steps")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where checkpoints go")
    parser.add_argument("--resume", type=Path, help="one of them to go on from")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=-1, help="stop after so many steps")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, metavar="PX", help="side of an image")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    parser.add_argument("--accelerator", default="auto", help="as Lightning's")
    return parser.parse_args()


if __name__ == "__main__":
    main()
