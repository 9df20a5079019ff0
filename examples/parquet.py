"""Training from a Parquet file with encoded images, as Hugging Face's hub stores them.

    python examples/parquet.py photos/train train.parquet

The first run makes the file. A worker reads row groups, as Parquet has no single rows, and keeps the last ones. That is
enough, since ``shuffle(block=…, window=…)`` mixes the rows of only ``window`` groups at a time.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import standpipe as sp

GROUP, WINDOW = 64, 4  # rows of a group, and groups that are mixed


class Rows:
    """Rows such as ``{"image": {"bytes": …, "path": …}, "label": 3}``."""

    def __init__(self, path: str) -> None:
        self.path, self.kept = path, dict[int, pa.Table]()
        found = pq.read_metadata(path)
        self.rows, self.group = found.num_rows, found.row_group(0).num_rows  # of each group except the last

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, object]:
        number, row = divmod(index, self.group)
        if number not in self.kept:
            self.kept = dict(list(self.kept.items())[-WINDOW:])
            self.kept[number] = pq.ParquetFile(self.path).read_row_group(number, use_threads=False)
        return self.kept[number].slice(row, 1).to_pylist()[0]


def write(folder: str, path: str) -> None:
    files = sorted(Path(folder).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    labels = [classes.index(file.parent.name) for file in files]
    pq.write_table(pa.table({"image": images, "label": labels}), path, row_group_size=GROUP)


if __name__ == "__main__":
    folder, file = sys.argv[1:]
    if not Path(file).exists():
        write(folder, file)
    train = sp.Pipeline(sp.MapSource(Rows(file), encoded="image")).shuffle(seed=7, block=GROUP, window=WINDOW)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
