"""One loader on the standard task, in the Python that has it: python benchmarks/_peers.py LOADER TASK FOLDER …

``benchmarks/comparison.py`` starts it. It imports standpipe for the loader ``standpipe`` only. The last line of its
output is a JSON object. Tasks:

- ``rate``: deliver batches for some seconds
- ``save``: take some batches of an epoch, write the state into a file, and print what the next batch is
- ``resume``: read that file, and print what the next batch is
- ``damaged``: deliver every photo once, without shuffling, and print how many came and which error ended it
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import pickle
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # ImageNet's, of bytes
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
PX = 224
SKIPPED_BATCHES = 3  # that aren't timed


class Standpipe:
    """standpipe's own loader. Its state is a small dict."""

    def __init__(self, args: argparse.Namespace) -> None:
        import standpipe as sp

        pipeline = sp.Pipeline(self.source(args.folder))
        if args.task != "damaged":
            pipeline = pipeline.shuffle(seed=7)
        pipeline = pipeline.map(sp.RandomResizedCrop(PX), sp.RandomHorizontalFlip(), sp.Normalize())
        self.loader = pipeline.batch(args.batch).loader(memory=args.memory, num_workers=args.workers)

    def source(self, folder: str) -> Any:
        import standpipe as sp

        return sp.ImageFolder(folder)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.loader:
            rows = int(batch["valid"].sum()) if "valid" in batch else len(batch["label"])
            yield batch["image"][:rows], batch["label"][:rows]

    def state(self) -> Any:
        return self.loader.state_dict()

    def resume(self, state: Any) -> None:
        self.loader.load_state_dict(state)


class Photos:
    """A torch data set that makes the task's rows in Pillow and torch, as torchvision does."""

    def __init__(self, folder: str) -> None:
        self.files = [
            (str(file), label)
            for label, each in enumerate(sorted(Path(folder).iterdir()))
            for file in sorted(each.iterdir())
        ]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch
        from PIL import Image

        path, label = self.files[index]
        with Image.open(path) as image:
            crop = image.convert("RGB").crop(box(*image.size)).resize((PX, PX), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1).float()
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1), label


def box(width: int, height: int) -> tuple[int, int, int, int]:
    """Return a random crop as (left, top, right, bottom), as torchvision's RandomResizedCrop chooses it."""
    for _ in range(10):
        area = width * height * random.uniform(*AREA)
        ratio = math.exp(random.uniform(*map(math.log, RATIO)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


class Torch:
    """PyTorch's DataLoader; to resume, torchdata's StatefulDataLoader, which has the same arguments."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        kind: Any = torch.utils.data.DataLoader
        if args.task in ("save", "resume"):
            from torchdata.stateful_dataloader import StatefulDataLoader

            kind = StatefulDataLoader
        torch.set_num_threads(1)
        torch.manual_seed(7)
        self.loader = kind(
            Photos(args.folder),
            args.batch,
            shuffle=args.task != "damaged",
            num_workers=args.workers,
            persistent_workers=True,
        )

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for images, labels in self.loader:
            yield images.numpy(), labels.numpy()

    def state(self) -> Any:
        return self.loader.state_dict()

    def resume(self, state: Any) -> None:
        self.loader.load_state_dict(state)


class Dali:
    """NVIDIA DALI's pipeline for CPUs, with the antialiasing that torchvision and standpipe have."""

    def __init__(self, args: argparse.Namespace) -> None:
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(
            batch_size=args.batch, num_threads=args.workers, device_id=None, seed=7, enable_checkpointing=True
        )  # type: ignore[untyped-decorator]
        def train() -> Any:
            encoded, label = fn.readers.file(
                file_root=args.folder, random_shuffle=args.task != "damaged", name="reader"
            )
            image = fn.decoders.image_random_crop(
                encoded, device="cpu", output_type=types.RGB, random_area=AREA, random_aspect_ratio=RATIO
            )
            image = fn.resize(image, size=(PX, PX), interp_type=types.INTERP_LINEAR, antialias=True)
            mirror = fn.random.coin_flip()
            return fn.crop_mirror_normalize(
                image, mirror=mirror, dtype=types.FLOAT, output_layout="CHW", mean=MEAN, std=STD
            ), label

        self.make: Any = train
        self.pipeline: Any = None

    def batches(self) -> Iterator[tuple[Any, Any]]:
        if self.pipeline is None:
            self.pipeline = self.make()
        self.pipeline.build()
        size = self.pipeline.epoch_size("reader")
        for _ in range(0, size, self.pipeline.max_batch_size):
            images, labels = self.pipeline.run()
            yield images.as_array(), labels.as_array().ravel()

    def state(self) -> Any:
        assert self.pipeline is not None
        return self.pipeline.checkpoint()

    def resume(self, state: Any) -> None:
        self.pipeline = self.make(checkpoint=state)


class MindSpore:
    """MindSpore Dataset. It has no state: to resume, the batches that were seen are skipped."""

    def __init__(self, args: argparse.Namespace) -> None:
        import mindspore.dataset as ds
        from mindspore.dataset import vision

        ds.config.set_seed(7)
        ds.config.set_prefetch_size(2)
        images = ds.ImageFolderDataset(
            args.folder, num_parallel_workers=1, shuffle=args.task != "damaged", extensions=[".jpg", ".JPEG"]
        )
        steps = [
            vision.RandomCropDecodeResize(PX, scale=AREA, ratio=RATIO),
            vision.RandomHorizontalFlip(0.5),
            vision.Normalize(list(MEAN), list(STD)),
            vision.HWC2CHW(),
        ]
        images = images.map(operations=steps, input_columns="image", num_parallel_workers=args.workers)
        self.images = images.batch(args.batch, num_parallel_workers=1)
        self.skip = args.skip if args.task == "resume" else 0

    def batches(self) -> Iterator[tuple[Any, Any]]:
        images = self.images.skip(self.skip) if self.skip else self.images
        for batch in images.create_dict_iterator(output_numpy=True, num_epochs=1):
            yield batch["image"], batch["label"]

    def state(self) -> Any:
        return None

    def resume(self, state: Any) -> None:
        pass


def tf_augmented(encoded: Any, number: Any, *, antialias: bool) -> Any:
    """Return TensorFlow's image of an encoded one, in the graph of tf.data."""
    import tensorflow as tf

    seed = tf.stack([tf.constant(7, tf.int64), number])  # an iterator with stateful ops can't be saved
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=RATIO,
        area_range=AREA,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.resize(image, [PX, PX], antialias=antialias)
    return (tf.image.stateless_random_flip_left_right(image, seed) - tf.constant(MEAN)) / tf.constant(STD)


class TfData:
    """tf.data, with the op that decodes a crop, and AUTOTUNE. Batches are NHWC."""

    def __init__(self, args: argparse.Namespace) -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        tf.random.set_seed(7)
        files = Photos(args.folder).files

        def load(file: tuple[Any, Any], number: Any) -> tuple[Any, Any]:
            path, label = file
            return tf_augmented(tf.io.read_file(path), number, antialias=True), label

        paths, labels = zip(*files, strict=True)
        images = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
        if args.task != "damaged":
            images = images.shuffle(len(files), seed=7)
        images = tf.data.Dataset.zip((images, tf.data.Dataset.counter()))
        images = images.map(load, num_parallel_calls=tf.data.AUTOTUNE)
        self.images = images.batch(args.batch).prefetch(tf.data.AUTOTUNE)
        self.iterator: Any = None
        self.state_file = args.state

    def batches(self) -> Iterator[tuple[Any, Any]]:
        self.iterator, iterator = None, self.iterator or iter(self.images)
        self.current = iterator
        for images, labels in iterator:
            yield images.numpy(), labels.numpy()

    def state(self) -> Any:
        import tensorflow as tf

        folder = f"{self.state_file}-variables"
        return tf.train.Checkpoint(iterator=self.current).save(folder)

    def resume(self, state: Any) -> None:
        import tensorflow as tf

        self.iterator = iter(self.images)
        tf.train.Checkpoint(iterator=self.iterator).restore(state)


LOADERS: dict[str, Any] = {
    "standpipe": Standpipe,
    "torch": Torch,
    "DALI": Dali,
    "MindSpore": MindSpore,
    "tf.data": TfData,
}


def rate(loader: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Deliver batches for some seconds, epoch after epoch; the last batch of an epoch may be smaller."""
    batches = itertools.chain.from_iterable(loader.batches() for _ in itertools.count())
    next(batches)
    first_batch_s = time.time() - args.began
    for _ in range(SKIPPED_BATCHES):
        next(batches)
    begin, used, rows = time.perf_counter(), cpu_s(), 0
    while (elapsed := time.perf_counter() - begin) < args.seconds:
        rows += len(next(batches)[1])
    cpu_ms = 1e3 * (cpu_s() - used) / rows
    return {"images_per_s": rows / elapsed, "cpu_ms_per_image": cpu_ms, "first_batch_s": first_batch_s}


def cpu_s() -> float:
    """Return the CPU seconds of this process and its workers."""
    processes = [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def save(loader: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Write the state after ``skip`` batches, and print what comes next."""
    batches = loader.batches()
    for _ in range(args.skip):
        next(batches)
    Path(args.state).write_bytes(pickle.dumps(loader.state()))
    return seen(next(batches))


def resume(loader: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Continue from a state, and print the next batch and the seconds until it came."""
    loader.resume(pickle.loads(Path(args.state).read_bytes()))
    batch = next(loader.batches())
    return {"resume_s": time.time() - args.began, **seen(batch)}


def seen(batch: tuple[Any, Any]) -> dict[str, Any]:
    images, labels = batch
    digest = hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
    return {"labels": [int(label) for label in labels], "pixels": digest}


def damaged(loader: Any, _args: argparse.Namespace) -> dict[str, Any]:
    """Deliver every photo once; print the number of rows and the error that ended it."""
    rows = 0
    try:
        for _, labels in loader.batches():
            rows += len(labels)
    except Exception as error:
        return {"rows": rows, "error": f"{type(error).__name__}: {error}"}
    return {"rows": rows, "error": ""}


def main(doc: str | None, loaders: dict[str, Any]) -> None:
    arguments = argparse.ArgumentParser(description=doc)
    arguments.add_argument("loader", choices=loaders)
    arguments.add_argument("task", choices=("rate", "save", "resume", "damaged"))
    arguments.add_argument("folder")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--batch", type=int, default=256)
    arguments.add_argument("--memory", default="1GiB")
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--skip", type=int, default=0)
    arguments.add_argument("--state", default="")
    arguments.add_argument("--began", type=float, default=time.time(), help="seconds since 1970")
    args = arguments.parse_args()
    tasks = {"rate": rate, "save": save, "resume": resume, "damaged": damaged}
    print(json.dumps(tasks[args.task](loaders[args.loader](args), args)), flush=True)
    os._exit(0)  # without waiting for the loader's threads, so that every loader is timed alone


if __name__ == "__main__":
    main(__doc__, LOADERS)
