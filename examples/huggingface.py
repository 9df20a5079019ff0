"""Training from a Hugging Face dataset, whose images native code decodes.

    python examples/huggingface.py photos/train              a folder of class folders
    python examples/huggingface.py ethz/food101              a dataset of the hub

``Image(decode=False)`` makes the dataset return the bytes of images, or their paths, instead of decoding them with
Pillow. Worker processes get them from the dataset and decode them. Arrow files are mapped, so all workers share them.
``decode(orientation="apply")`` turns photos as their EXIF data say, as ``Image()`` does.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from datasets import Image, load_dataset

import standpipe as sp

if __name__ == "__main__":
    (name,) = sys.argv[1:]
    if Path(name).is_dir():
        photos = load_dataset("imagefolder", data_dir=name, split="train")
    else:
        photos = load_dataset(name, split="train")
    photos = photos.cast_column("image", Image(decode=False))
    train = sp.Pipeline(sp.MapSource(photos, encoded="image")).decode(orientation="apply").shuffle(seed=7)
    train = train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)
    with train.loader(memory="1GiB", num_workers=2) as loader:
        digest = hashlib.sha256()
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
        print(f"epoch 0: {len(loader)} steps, SHA-256 {digest.hexdigest()}")
