"""Measure seconds from making a DataLoader to its first batch: ``python _starts.py LOADER WORKERS``.

The script imports torch and no other package, since torch's ``forkserver`` workers import what this script imports.
"""

import gc
import json
import statistics
import sys
import time

import torch
from torch.utils import data

LATER = 2  # number of loaders after the first one
ROWS = 50


def main(name: str, workers: int) -> None:
    """Make several loaders one after another, and print the start times of the first and of the later ones."""
    arguments: dict[str, object] = {"num_workers": workers}
    if name == "standpipe":
        import standpipe.torch

        kind: type[data.DataLoader[object]] = standpipe.torch.DataLoader
    else:
        kind, arguments["multiprocessing_context"] = data.DataLoader, name.rpartition(" ")[2]
    dataset = data.TensorDataset(torch.rand(12 * ROWS, 8), torch.arange(12 * ROWS))
    seconds = []
    for _ in range(1 + LATER):
        begin = time.perf_counter()
        loader = kind(dataset, ROWS, **arguments)  # type: ignore[arg-type]
        batches = iter(loader)
        next(batches)
        seconds.append(time.perf_counter() - begin)
        del loader, batches
        gc.collect()
    print(json.dumps({"first": seconds[0], "later": statistics.median(seconds[1:])}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
