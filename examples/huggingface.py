"""Training from a Hugging Face dataset, whose images are read in place from its Arrow files.

    python examples/huggingface.py photos/train              a folder of class folders
    python examples/huggingface.py ethz/food101              a dataset of the hub

Native threads read images from the files that ``load_dataset`` mapped, and decode them: there are no worker processes.
Photos are turned as their EXIF data say, as ``Image()`` does.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from datasets import load_dataset

import standpipe as sp

if __name__ == "__main__":
    (name,) = sys.argv[1:]
    if Path(name).is_dir():
        photos = load_dataset("imagefolder", data_dir=name, split="train")
    else:
        photos = load_dataset(name, split="train")
    train = sp.Pipeline(sp.HuggingFace(photos)).shuffle(seed=7)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
