"""Training from an LMDB of encoded images, with the batches of the folder that it was made from.

    python examples/lmdb_images.py photos/train train.lmdb

The first run makes the database. Worker processes call ``Images.__getitem__`` and decode its bytes with native code.
A process must not use a database that another one opened, so each opens it at first use. This file isn't called
lmdb.py: ``import lmdb`` would then find this file instead of the package.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import lmdb

import standpipe as sp


class Images:
    """The records of a database: ``b"00000012"`` → two bytes with the label, and the bytes of an image file."""

    def __init__(self, path: str) -> None:
        self.path, self.env = path, None
        with lmdb.open(path, readonly=True, lock=False) as env:
            self.size = env.stat()["entries"]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.env = self.env or lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as transaction:
            record = memoryview(transaction.get(b"%08d" % index))
        return record[2:], int.from_bytes(record[:2], "big")


def write(folder: str, path: str) -> None:
    files = sorted(Path(folder).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    with lmdb.open(path, map_size=1 << 40) as env, env.begin(write=True) as transaction:
        for number, file in enumerate(files):
            label = classes.index(file.parent.name).to_bytes(2, "big")
            transaction.put(b"%08d" % number, label + file.read_bytes())


if __name__ == "__main__":
    folder, database = sys.argv[1:]
    if not Path(database).exists():
        write(folder, database)
    train = sp.Pipeline(sp.MapSource(Images(database), encoded="image")).shuffle(seed=7)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
