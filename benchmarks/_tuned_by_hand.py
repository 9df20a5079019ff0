"""The training task for some seconds, in MindSpore after a step of tuning by hand, or in standpipe with its defaults.

    python benchmarks/_tuned_by_hand.py FOLDER standpipe|STEP SECONDS

Step 0 is MindSpore's default with 12 workers in each ``map``, or one per CPU if there are fewer CPUs. Each further
step keeps the changes before it. The script needs MindSpore or standpipe, not both. It prints the rate, the CPU time
and the memory of this process, in which both run all their threads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS = 32
WORKERS = min(
    12, os.cpu_count() or 1
)  # in each map: the pipeline that was tuned by hand had 12; MindSpore accepts no more than CPUs
MEAN = [0.485 * 255, 0.456 * 255, 0.406 * 255]
STD = [0.229 * 255, 0.224 * 255, 0.225 * 255]
WARM_UP = 8  # batches
LOOKS = 20  # measurements of memory during a run
PREFETCH, SOURCE, MAP, BATCH, MERGED = range(1, 6)


def by_standpipe(folder: str) -> Callable[[], Iterable[Any]]:
    """Return a function that gives an epoch of standpipe with its default settings."""
    import standpipe as sp

    images = sp.Pipeline(sp.ImageFolder(folder)).shuffle(seed=1)
    loader = (
        images.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()).batch(ROWS).loader()
    )
    return lambda: loader


def by_mindspore(folder: str, step: int) -> Callable[[], Iterable[Any]]:
    """Return a function that gives an epoch of MindSpore after ``step`` steps of tuning."""
    import mindspore.dataset as ds
    from mindspore.dataset import vision

    if step >= PREFETCH:
        ds.config.set_prefetch_size(2)
    source = {"num_parallel_workers": 1} if step >= SOURCE else {}
    images = ds.ImageFolderDataset(folder, shuffle=True, **source)
    operations = [
        vision.RandomCropDecodeResize(224, scale=(0.08, 1.0), ratio=(0.75, 1.333)),
        vision.RandomHorizontalFlip(),
        vision.Normalize(MEAN, STD),
        vision.HWC2CHW(),
    ]
    workers = 1 if step >= MAP else WORKERS
    for some in [operations] if step >= MERGED else [[each] for each in operations]:
        images = images.map(some, input_columns="image", num_parallel_workers=workers)
    batch = {"num_parallel_workers": 1} if step >= BATCH else {}
    images = images.batch(ROWS, drop_remainder=True, **batch)
    return lambda: images.create_dict_iterator(output_numpy=True, num_epochs=1)


def memory_mib() -> dict[str, float]:
    """Return the resident (RSS) and proportional (PSS) memory of this process, in MiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return {"rss_mib": kib["Rss"] / 1024, "pss_mib": kib["Pss"] / 1024}


def endless(epoch: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    while True:
        yield from epoch()


def main() -> None:
    folder, who, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    batches = endless(by_standpipe(folder) if who == "standpipe" else by_mindspore(folder, int(who)))
    for _ in range(WARM_UP):
        next(batches)
    begin, cpu, rows = time.perf_counter(), time.process_time(), 0
    looks: list[dict[str, float]] = []
    while (took := time.perf_counter() - begin) < seconds:
        rows += len(next(batches)["image"])
        if took >= len(looks) * seconds / LOOKS:
            looks.append(memory_mib())
    found = {name: max(look[name] for look in looks) for name in looks[0]}
    cpu = time.process_time() - cpu
    print(json.dumps({"images_per_s": rows / took, "cpu_percent": 100 * cpu / took, **found}), flush=True)


if __name__ == "__main__":
    main()
