"""Make a training and a validation loader for image classification from two folders."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import torch

import standpipe as sp
from standpipe.answers import answering
from standpipe.torch.batches import BatchDataset, LoaderSettings
from standpipe.torch.loader import TorchLoader
from standpipe.torch.tensors import Form

SCALE_TO_CROP = 256 / 224  # a validation image's shorter side ÷ crop size, as in published recipes
NAMES_SHOWN = 10


@answering
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
    """Return a loader to train with and one to validate with, of two folders with the same classes.

    In training, each epoch has a new order, and ``RandomResizedCrop(size)``, ``RandomHorizontalFlip()`` and
    ``Normalize()`` make the images. A batch is ``(images, labels)``: (batch_size, 3, size, size) float32 or
    ``dtype``, and (batch_size,) int64.

    In validation, ``Resize`` makes the shorter side 256/224 of ``size``, and ``CenterCrop(size)`` and
    ``Normalize()`` follow. A batch is ``(images, labels, valid)``, and every image is valid exactly once. In
    one process the last batch is shorter. In several processes, whose steps must be equal in number, the last
    rows are padding, and ``valid``, (rows,) bool, is False there.

    Parameters
    ----------
    train_dir, val_dir : path
        Folders of class folders.
    batch_size : int
        Images of a process's batch in training. Images that don't fill a whole step are left out, different
        ones in each epoch.
    val_batch_size : int, optional
        Images of a process's batch in validation. Default: ``batch_size``.
    num_workers : int or "auto", default "auto"
        As in ``Pipeline.loader``, for each of the two.
    device, dtype, memory_format, device_prefetch
        As in ``standpipe.torch.loader``.
    size : int, default 224
        Side of an image in pixels.
    seed : int, default 0
        Seed of the order and of the random transforms.
    **settings
        Arguments of ``Pipeline.loader`` for both. ``memory=`` bounds both together; each gets a part in
        proportion to the images of its batches.

    Returns
    -------
    tuple of TorchLoader
        The training loader and the validation loader.

    Raises
    ------
    PlanError
        If the folders have different classes: labels are positions in the sorted list of class names.

    Examples
    --------
    >>> import standpipe.torch
    >>> train, val = standpipe.torch.image_folder_loaders(
    ...     "photos", "photos", batch_size=8, size=32, memory="512MiB", num_workers=1
    ... )
    >>> images, labels, valid = val.peek()
    >>> len(train), images.shape, bool(valid.all())
    (3, torch.Size([8, 3, 32, 32]), True)
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
        TorchLoader(BatchDataset(LoaderSettings(train, pair, True, {**settings, "memory": of_train}))),
        TorchLoader(BatchDataset(LoaderSettings(val, form, True, {**settings, "memory": memory - of_train}))),
    )
    _check_classes(*(each.classes or () for each in made))
    return made


def _check_numbers(batch_size: object, val_batch_size: object, size: object) -> None:
    for name, number in (("batch_size", batch_size), ("val_batch_size", val_batch_size)):
        if not (number is None and name == "val_batch_size") and not _counts(number):
            raise sp.PlanError(f"image_folder_loaders: {name} must be an integer from 1 on, got {number!r}")
    if not _counts(size):
        raise sp.PlanError(
            f"image_folder_loaders: size must be a number of pixels, an integer from 1 on, got {size!r}"
        )


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
            f"the class folders differ, so a label would mean two things: {'; '.join(only)}. Give both folders the "
            "same class folders"
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more
