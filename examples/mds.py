"""Train from MosaicML Streaming's shards where they are, without streaming.

    python examples/mds.py mds/train x y

``x`` and ``y`` are the columns of images and labels, as in ``MDSWriter(columns={"x": "jpeg", "y": "int"})``.
Compressed shards are unpacked once, by the command that the error names.
"""

from __future__ import annotations

import hashlib
import sys

import standpipe as sp


def pipeline(folder: str, image: str, label: str) -> sp.Pipeline:
    """Read the folder's shards: samples are shuffled as if each were a file."""
    train = sp.Pipeline(sp.MDS(folder, image=image, label=label)).shuffle(seed=7)
    return train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)


if __name__ == "__main__":
    digest = hashlib.sha256()
    with pipeline(*sys.argv[1:]).loader(memory="1GiB", num_workers=2) as loader:
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
