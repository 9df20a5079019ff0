"""Pack a folder of photos into WebDataset's tar shards, and train from the shards where they are.

    python examples/webdataset_shards.py photos/train shards

Any program that reads WebDataset reads these shards too. ``standpipe verify shards`` checks them, and ``standpipe
unpack shards restored`` gives the files back.
"""

from __future__ import annotations

import hashlib
import json
import sys

import standpipe as sp


def pipeline(shards: str) -> sp.Pipeline:
    """Read all shards: records are shuffled as if they were files."""
    train = sp.Pipeline(sp.TarShards(f"{shards}/shard-*.tar")).shuffle(seed=7)
    return train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)


if __name__ == "__main__":
    photos, shards = sys.argv[1:]
    # It goes on if it was interrupted, and does nothing if all shards are there.
    sp.pack_shards(sp.ImageFolder(photos), shards, order="source")
    digest = hashlib.sha256()
    with pipeline(shards).loader(memory="1GiB", num_workers=2) as loader:
        steps = len(loader)
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
            break  # the job ends in the middle of the epoch
        state = json.dumps(loader.state_dict())
    with pipeline(shards).loader(memory="1GiB", num_workers=1) as loader:
        loader.load_state_dict(json.loads(state))
        for batch in loader:
            digest.update(batch["image"])
    print(f"epoch 0: {steps} steps, SHA-256 {digest.hexdigest()}")
