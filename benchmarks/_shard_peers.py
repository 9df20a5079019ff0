"""One loader over stored photos on the standard task: python benchmarks/_shard_peers.py LOADER rate FOLDER …

``benchmarks/shard_formats.py`` writes the folders, and starts this file in the Python that has the loader. It imports
standpipe for standpipe's loaders only. The other arguments and the output are those of ``_peers.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _peers import AREA, MEAN, PX, RATIO, STD, Standpipe, TfData, main, tf_augmented

REPEATS = 100  # of each photo in an epoch
FEATURES: dict[str, Any] = {"image": "image/encoded", "label": "image/class/label"}


def hugging_face(folder: str) -> Any:
    """Return the dataset of a folder, REPEATS times."""
    import datasets

    return datasets.concatenate_datasets([datasets.load_from_disk(folder)] * REPEATS)


class InHuggingFace(Standpipe):
    """standpipe's loader over a Hugging Face dataset, in place."""

    def source(self, folder: str) -> Any:
        import standpipe as sp

        return sp.HuggingFace(hugging_face(folder))


class InTFRecords(Standpipe):
    """standpipe's loader over TFRecord files."""

    def source(self, folder: str) -> Any:
        import standpipe as sp

        return sp.TFRecords(f"{folder}/*", **FEATURES)


class InMDS(Standpipe):
    """standpipe's loader over MDS shards."""

    def source(self, folder: str) -> Any:
        import standpipe as sp

        return sp.MDS(folder)


class TfRecords(TfData):
    """tf.data over TFRecord files, in two threads, with the op that decodes a crop."""

    antialias = True

    def __init__(self, args: argparse.Namespace) -> None:
        import tensorflow as tf

        features = {
            FEATURES["image"]: tf.io.FixedLenFeature([], tf.string),
            FEATURES["label"]: tf.io.FixedLenFeature([], tf.int64),
        }

        def load(record: Any, number: Any) -> tuple[Any, Any]:
            parsed = tf.io.parse_single_example(record, features)
            image = tf_augmented(parsed[FEATURES["image"]], number, antialias=self.antialias)
            return image, parsed[FEATURES["label"]]

        files = sorted(map(str, Path(args.folder).iterdir()))
        records = tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE).shuffle(1_000, seed=7)
        records = tf.data.Dataset.zip((records, tf.data.Dataset.counter()))
        images = records.map(load, num_parallel_calls=args.workers, deterministic=False)
        options = tf.data.Options()
        options.threading.private_threadpool_size = args.workers
        options.threading.max_intra_op_parallelism = 1
        self.images = images.batch(args.batch).prefetch(tf.data.AUTOTUNE).with_options(options)
        self.iterator: Any = None


class TfRecordsWithoutAntialias(TfRecords):
    """tf.data with the resize that tf.image has by default, which is faster and has other pixels."""

    antialias = False


class TorchRows:
    """PyTorch's DataLoader over a data set that decodes with Pillow, and torchvision's transforms of its images."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        torch.set_num_threads(1)
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
        from torchvision_cpu import torchvision  # goes beside any torch

        steps = torchvision.transforms
        mean, std = ([each / 255 for each in values] for values in (MEAN, STD))
        self.augmented = steps.Compose(
            [
                steps.RandomResizedCrop(PX, AREA, RATIO),
                steps.RandomHorizontalFlip(),
                steps.ToTensor(),
                steps.Normalize(mean, std),
            ]
        )
        self.loader = torch.utils.data.DataLoader(
            self.dataset(args), num_workers=args.workers, persistent_workers=True, **self.options(args)
        )

    def dataset(self, args: argparse.Namespace) -> Any:
        raise NotImplementedError

    def options(self, args: argparse.Namespace) -> dict[str, Any]:
        return {"batch_size": args.batch, "shuffle": True}

    def row(self, image: Any) -> Any:
        return self.augmented(image.convert("RGB"))

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.loader:
            yield batch["image"], batch["label"]


class Datasets(TorchRows):
    """A Hugging Face dataset with a transform."""

    def dataset(self, args: argparse.Namespace) -> Any:
        def augmented(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            return {"image": list(map(self.row, batch["image"])), "label": batch["label"]}

        return hugging_face(args.folder).with_transform(augmented)


class Streaming(TorchRows):
    """MosaicML Streaming's dataset, which shuffles by itself."""

    def dataset(self, args: argparse.Namespace) -> Any:
        from streaming import StreamingDataset

        import torchvision_cpu  # noqa: F401 (streaming imports torchvision)

        row = self.row

        class Augmented(StreamingDataset):  # type: ignore[misc]
            def __getitem__(self, at: Any) -> Any:
                sample = super().__getitem__(at)
                return {"image": row(sample["image"]), "label": sample["label"]}

        return Augmented(local=args.folder, shuffle=True, shuffle_seed=7, batch_size=args.batch)

    def options(self, args: argparse.Namespace) -> dict[str, Any]:
        return {"batch_size": args.batch}


LOADERS: dict[str, Any] = {
    "standpipe, HuggingFace": InHuggingFace,
    "datasets": Datasets,
    "standpipe, TFRecords": InTFRecords,
    "tf.data": TfRecords,
    "tf.data, no antialias": TfRecordsWithoutAntialias,
    "standpipe, MDS": InMDS,
    "streaming": Streaming,
}

if __name__ == "__main__":
    main(__doc__, LOADERS)
