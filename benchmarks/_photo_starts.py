"""Measure seconds to the first batches of a script such as PyTorch's ImageNet example.

``python _photo_starts.py LOADER WORKERS SECONDS FOLDER``: LOADER is ``standpipe`` or ``torch CONTEXT``. SECONDS is the
time in which the script builds its model, between making its two loaders and using them. Workers of torch's ``spawn``
and ``forkserver`` contexts import what this script imports, so it imports standpipe only where it is measured.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils import data

try:
    from torchvision import datasets, transforms
except (ImportError, RuntimeError):  # not installed, or built for another torch
    datasets = None

ROWS = 32
SIDE = 224


class Photos(data.Dataset[Any]):
    """Resized photos of a folder, without torchvision."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(Path(folder).glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.asarray(Image.open(self.files[index]).convert("RGB").resize((SIDE, SIDE)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255, index


def dataset(folder: str, *, train: bool) -> Any:
    """Return the photos with the transforms for training or validation; without torchvision, only resized."""
    if datasets is None:
        return Photos(folder)
    crop = (
        [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip()]
        if train
        else [transforms.Resize(256), transforms.CenterCrop(SIDE)]
    )
    end = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    return datasets.ImageFolder(folder, transforms.Compose([*crop, *end]))


def main(name: str, workers: int, seconds: float, folder: str) -> None:
    """Print the seconds to the first batch of both loaders, without the ``seconds`` in which the model is built."""
    arguments: dict[str, Any] = {"num_workers": workers}
    kind: Any = data.DataLoader
    if name == "standpipe":
        import standpipe.torch

        kind = standpipe.torch.DataLoader
    else:
        arguments["multiprocessing_context"] = name.rpartition(" ")[2]
    photos, others = dataset(folder, train=True), dataset(folder, train=False)
    begin = time.perf_counter()
    train, validate = kind(photos, ROWS, shuffle=True, **arguments), kind(others, ROWS, **arguments)
    made = time.perf_counter()
    while time.perf_counter() < made + seconds:
        torch.randn(100, 100) @ torch.randn(100, 100)
    built = time.perf_counter()
    batches = iter(train)
    next(batches)
    first = time.perf_counter()
    del batches
    again = time.perf_counter()
    next(iter(validate))
    print(
        json.dumps(
            {
                "making both": made - begin,
                "first batch": first - built + made - begin,
                "of the second loader": time.perf_counter() - again,
                "torchvision": datasets is not None,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
