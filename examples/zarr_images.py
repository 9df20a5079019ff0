"""Training from a Zarr group with pixels of one size, (images, height, width, 3) uint8.

    python examples/zarr_images.py photos/train train.zarr 256

The first run makes the group, in Zarr's format 3. Each image is a chunk, and a file has 256 of them, so only the image
is read. Worker processes call ``Images.__getitem__``. Each opens the array at first use: Zarr has threads of its own.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import zarr
from PIL import Image

import standpipe as sp


class Images:
    """The arrays ``image`` and ``label`` of a group."""

    def __init__(self, path: str) -> None:
        self.path, self.images = path, None
        self.labels = zarr.open_group(path, mode="r")["label"][:]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[object, object]:
        if self.images is None:
            self.images = zarr.open_array(self.path, path="image", mode="r")
        return self.images[index], self.labels[index]


def write(folder: str, path: str, px: int, per_file: int = 256) -> None:
    files = sorted(Path(folder).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    group = zarr.create_group(path)
    group.create_array("label", data=np.array([classes.index(file.parent.name) for file in files]))
    shape, chunks, shards = ((first, px, px, 3) for first in (len(files), 1, per_file))
    images = group.create_array("image", shape=shape, dtype="u1", chunks=chunks, shards=shards)
    for start in range(0, len(files), per_file):
        part = [Image.open(file).convert("RGB").resize((px, px)) for file in files[start : start + per_file]]
        images[start : start + len(part)] = np.stack(part)


if __name__ == "__main__":
    folder, path, px = sys.argv[1:]
    if not Path(path).exists():
        write(folder, path, int(px))
    train = sp.Pipeline(sp.MapSource(Images(path))).shuffle(seed=7)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
