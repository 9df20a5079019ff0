"""Train from TFRecord files where they are, without TensorFlow.

    python examples/tfrecords.py 'imagenet/train-*' image/encoded image/class/label

The names are those of two features of each ``tf.train.Example``: the encoded image and the label. Leave them out, and
the error says which features the files have.
"""

from __future__ import annotations

import hashlib
import json
import sys

import standpipe as sp


def pipeline(files: str, *names: str) -> sp.Pipeline:
    """Read all files: records are shuffled as if each were a file."""
    features = dict(zip(("image", "label"), names, strict=False))
    train = sp.Pipeline(sp.TFRecords(files, **features)).shuffle(seed=7)
    return train.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(32)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    digest = hashlib.sha256()
    with pipeline(*arguments).loader(memory="1GiB", num_workers=2) as loader:
        steps = len(loader)
        for batch in loader:  # batch["image"] is (32, 3, 224, 224) float32, batch["label"] (32,) int64
            digest.update(batch["image"])  # in place of your training step
            break  # the job ends in the middle of the epoch
        state = json.dumps(loader.state_dict())
    with pipeline(*arguments).loader(memory="1GiB", num_workers=1) as loader:
        loader.load_state_dict(json.loads(state))
        for batch in loader:
            digest.update(batch["image"])
    print(f"epoch 0: {steps} steps, SHA-256 {digest.hexdigest()}")
