"""The usual loaders of a classification task, from two folders, in one call."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import torch

import standpipe as sp
from standpipe.torch.batches import Batches, Order
from standpipe.torch.loader import TorchLoader
from standpipe.torch.tensors import Form

SCALE_TO_CROP = 256 / 224  # of a validation image's shorter side, as every published recipe has it
NAMES_SHOWN = 10


def image_folder_loaders(
    train_dir: str | PathLike[str],
    val_dir: str | PathLike[str],
    batch_size: int,
    val_batch_size: int | None = None,
    *,
    num_workers: int | Literal["auto"] = "auto",
    device: torch.device | str | int = "cpu",
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    size: int = 224,
    seed: int = 0,
    device_prefetch: int = 1,
    **settings: Any,
) -> tuple[TorchLoader, TorchLoader]:
    """A loader to train with and one to validate with, of two folders with the same class folders.

    train_dir, val_dir  folders of class folders
    batch_size          images of a process's batch in training. Those that fill no whole step are left out, others
                        each epoch
    val_batch_size      images of a process's batch in validation, any number; default: ``batch_size``
    num_workers         as of ``Pipeline.loader``, for each of the two
    device, dtype, memory_format, device_prefetch
                        as of ``loader``
    size                side of an image in pixels
    seed                of the order and of what is drawn
    settings            of both, as of ``Pipeline.loader``; ``memory=`` is the ceiling of both together, shared out by
                        the images of their batches

    In training: a new order each epoch, ``RandomResizedCrop(size)``, ``RandomHorizontalFlip()``, ``Normalize()``. A
    batch is ``(images, labels)``: (batch_size, 3, size, size) float32 or ``dtype``, and (batch_size,) int64.

    In validation: ``Resize`` of the shorter side to 256/224 of ``size``, ``CenterCrop(size)``, ``Normalize()``. A batch
    is ``(images, labels, valid)``, in one process and in several, and every image is valid exactly once: in one process
    the last batch is shorter and all of ``valid`` is True; in several, whose steps have to be equally many, rows at the
    end are padding, where ``valid``, (rows,) bool, is False.

    Raises ``PlanError`` when the folders' classes differ, with their names: labels are places in the sorted list of
    names, so they would stand for other classes.
    """
    _check_numbers(batch_size, val_batch_size, size)
    form = Form.of(("image", "label", "valid"), device, dtype, memory_format)
    settings = {**settings, "num_workers": num_workers, "device": form.place(prefetch=device_prefetch)}
    crop = sp.RandomResizedCrop(size), sp.RandomHorizontalFlip(), sp.Normalize()
    train = sp.Pipeline(sp.ImageFolder(train_dir)).shuffle(seed=seed).map(*crop).batch(batch_size)
    middle = sp.Resize(round(size * SCALE_TO_CROP)), sp.CenterCrop(size), sp.Normalize()
    val = sp.Pipeline(sp.ImageFolder(val_dir)).map(*middle).batch(val_batch_size or batch_size)
    memory = val.plan(**settings).memory_bytes
    of_train = memory * batch_size // (batch_size + (val_batch_size or batch_size))
    pair = replace(form, fields=("image", "label"))
    made = (
        TorchLoader(Batches(Order(train, pair, True, {**settings, "memory": of_train}))),
        TorchLoader(Batches(Order(val, form, True, {**settings, "memory": memory - of_train}, exact=True))),
    )
    _check_classes(*(each.dataset.loader.plan.classes or () for each in made))
    return made


def _check_numbers(batch_size: object, val_batch_size: object, size: object) -> None:
    for name, number in (("batch_size", batch_size), ("val_batch_size", val_batch_size)):
        if not (number is None and name == "val_batch_size") and not _counts(number):
            raise sp.PlanError(f"image_folder_loaders({name}={number!r}): an integer from 1")
    if not _counts(size):
        raise sp.PlanError(f"image_folder_loaders(size={size!r}): pixels, an integer from 1")


def _counts(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _check_classes(train: tuple[str, ...], val: tuple[str, ...]) -> None:
    only = [
        f"only {place} has {_listed(sorted(names))}"
        for place, names in (("train_dir", set(train) - set(val)), ("val_dir", set(val) - set(train)))
        if names
    ]
    if only:
        raise sp.PlanError(
            f"the class folders differ, and with them what a label stands for: {'; '.join(only)}. Give both folders "
            "the same ones"
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more
