"""The Hugging Face Trainer with standpipe's loaders: train, evaluate, and go on from a checkpoint inside an epoch.

    python examples/hf_trainer.py photos/train photos/val --folder runs
    python examples/hf_trainer.py photos/train photos/val --folder runs --resume

A tiny ResNet starts from random weights here; ``from_pretrained`` takes its place.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import standpipe as sp
import standpipe.torch

FIELDS = {"pixel_values": "image", "labels": "label"}  # what the model's forward() calls them


class OurTrainer(Trainer):
    """A Trainer whose batches standpipe makes."""

    def __init__(self, *arguments: Any, train: sp.Pipeline, evaluation: sp.Pipeline, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.pipelines = (train, evaluation)

    def get_train_dataloader(self) -> Any:
        batches = standpipe.torch.loader(self.pipelines[0], fields=FIELDS, memory="512MiB")
        return self.accelerator.prepare(batches)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        # Several processes pad the last batch, so that all make equally many steps.
        fields = {**FIELDS, "valid": "valid"}
        batches = standpipe.torch.loader(self.pipelines[1], fields=fields, memory="512MiB")
        return self.accelerator.prepare(batches)

    def prediction_step(self, model: Any, inputs: dict[str, Any], *arguments: Any, **more: Any) -> Any:
        # The Trainer leaves padding out of the metrics. Labels of -100 leave it out of a batch's loss too.
        inputs["labels"] = inputs["labels"].masked_fill(~inputs.pop("valid"), -100)
        return super().prediction_step(model, inputs, *arguments, **more)


def accuracy(predicted: Any) -> dict[str, float]:
    right = predicted.predictions.argmax(axis=1) == predicted.label_ids
    return {"accuracy": float(np.mean(right)), "images": len(right)}


def main() -> None:
    args = arguments()
    train = (
        sp.Pipeline(sp.ImageFolder(args.train))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(args.size, scale=(0.5, 1.0)), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(args.batch)
    )
    evaluation = (
        sp.Pipeline(sp.ImageFolder(args.val))
        .map(sp.Resize(args.size), sp.CenterCrop(args.size), sp.Normalize())
        .batch(args.val_batch or args.batch)
    )
    classes = train.plan(memory="512MiB").classes or ()
    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64],
        depths=[1, 1, 1],
        layer_type="basic",
        num_labels=len(classes),
    )
    settings = TrainingArguments(
        str(args.folder),
        num_train_epochs=args.epochs,
        max_steps=args.max_steps,
        learning_rate=args.rate,
        save_steps=args.save_every,
        per_device_eval_batch_size=args.val_batch
        or args.batch,  # as the loader has it: losses are weighted by it
        use_cpu=args.cpu,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        average_tokens_across_devices=False,  # each process's loss is of its own rows: they may differ in number
        seed=7,
    )
    trainer = OurTrainer(
        ResNetForImageClassification(config),
        settings,
        compute_metrics=accuracy,
        train=train,
        evaluation=evaluation,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    found = trainer.evaluate()
    print(f"{trainer.state.global_step} steps, {found['eval_images']} images evaluated")
    print(f"accuracy {found['eval_accuracy']:.3f}, loss {found['eval_loss']:.5f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", metavar="TRAIN", help="a folder of class folders")
    parser.add_argument("val", metavar="VAL", help="another one with the same classes")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where checkpoints go")
    parser.add_argument("--resume", action="store_true", help="go on from the last one there")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=-1, help="stop after so many steps")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--val-batch", type=int, help="images evaluated at once (default: as --batch)")
    parser.add_argument("--size", type=int, default=64, metavar="PX", help="side of an image")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    parser.add_argument("--cpu", action="store_true", help="don't use a GPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
