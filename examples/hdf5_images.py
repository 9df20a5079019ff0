"""Training from an HDF5 file, with the batches of the folder that it was made from.

    python examples/hdf5_images.py photos/train train.h5         the encoded images, each as uint8 of its own length
    python examples/hdf5_images.py photos/train train.h5 256     pixels of one size: (images, 256, 256, 3) uint8

The first run makes the file. Worker processes call ``Images.__getitem__``. A process must not use a file that another
one opened, so each opens it at first use.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

import standpipe as sp


class Images:
    """The datasets ``image`` and ``label`` of a file."""

    def __init__(self, path: str) -> None:
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.size, self.encoded = len(file["label"]), "image" if file["image"].ndim == 1 else None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[object, object]:
        self.file = self.file or h5py.File(self.path)
        return self.file["image"][index], self.file["label"][index]


def write(folder: str, path: str, px: int = 0) -> None:
    files = sorted(Path(folder).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    shape, kind = ((px, px, 3), "u1") if px else ((), h5py.vlen_dtype("u1"))
    with h5py.File(path, "w") as out:
        out["label"] = [classes.index(file.parent.name) for file in files]
        images = out.create_dataset("image", (len(files), *shape), kind)
        for row, file in enumerate(files):
            images[row] = Image.open(file).convert("RGB").resize((px, px)) if px else np.fromfile(file, "u1")


if __name__ == "__main__":
    folder, file, *px = sys.argv[1:]
    if not Path(file).exists():
        write(folder, file, *map(int, px))
    train = sp.Pipeline(sp.MapSource(images := Images(file), encoded=images.encoded)).shuffle(seed=7)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
