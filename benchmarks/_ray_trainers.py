"""Trainers for ``beside_ray_data.py``: each takes an epoch and prints the numbers of the photos in each batch.

Run as a program: ``python _ray_trainers.py KIND ADDRESS PATH STATE``. KIND is ``standpipe`` or ``data``. STATE is a
file for the state of the run, which is loaded if it exists; ``-`` is none.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray

BATCH = 50
MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


def standpipe(path: str, state: Path | None) -> Iterator[list[int]]:
    """Yield the numbers of each batch that actors of standpipe make."""
    import standpipe as sp
    import standpipe.ray

    task = sp.Pipeline(sp.ImageFolder(path)).shuffle(seed=0)
    task = task.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(BATCH)
    with standpipe.ray.loader(
        task, 2, memory="512MiB", cpus_per_actor=1, memory_per_actor="256MiB", fallback="wait"
    ) as loader:
        if state is not None and state.exists():
            loader.load_state_dict(json.loads(state.read_text()))
        for batch in loader:
            if state is not None:
                state.write_text(json.dumps(loader.state_dict()))
            yield batch["index"].tolist()


def data(path: str, state: Path | None) -> Iterator[list[int]]:
    """Yield the numbers of each batch that Ray Data makes. Its iterator has no state, so the epoch begins again."""
    import ray.data

    files = [
        {"path": str(file), "index": number} for number, file in enumerate(sorted(Path(path).glob("*/*")))
    ]
    ray.data.DataContext.get_current().enable_progress_bars = False
    photos = ray.data.from_items(files, override_num_blocks=len(files) // BATCH).random_shuffle(seed=0)
    for batch in photos.map(load).iter_torch_batches(batch_size=BATCH, prefetch_batches=4):
        yield np.asarray(batch["index"]).tolist()


def load(row: dict[str, Any]) -> dict[str, Any]:
    """Return a photo after RandomResizedCrop, RandomHorizontalFlip and Normalize, as torchvision does them."""
    from PIL import Image

    random = np.random.default_rng()
    image = Image.open(row["path"]).convert("RGB")
    for _ in range(10):
        area = image.width * image.height * random.uniform(0.08, 1)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        width, height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < width <= image.width and 0 < height <= image.height:
            break
    else:
        width = height = min(image.size)
    left = int(random.integers(0, image.width - width + 1))
    top = int(random.integers(0, image.height - height + 1))
    image = image.crop((left, top, left + width, top + height)).resize((224, 224), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
    return {"image": (pixels - MEAN) / STD, "index": row["index"]}


def main() -> None:
    kind, address, path, state = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    begin = time.monotonic()
    for numbers in {"standpipe": standpipe, "data": data}[kind](path, None if state == "-" else Path(state)):
        print("batch", round(time.monotonic() - begin, 3), *numbers, flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main()
