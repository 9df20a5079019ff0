"""Evaluation passes in MindSpore, with or without its cache. This script needs MindSpore, but not standpipe.

    python benchmarks/_mindspore_cache.py FOLDER OUTPUT WORKERS PASSES [SESSION PORT]

It reads a folder of class folders in batches of 100, with all operations in one ``map``. With the session and port of
a cache server, the result of the last operation is cached, like in MindSpore's tutorial of its single-node cache.
Prints the seconds of each pass and the number of images as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

import mindspore.dataset as ds
from mindspore.dataset import vision

ROWS = 100
MEAN = [0.485 * 255, 0.456 * 255, 0.406 * 255]
STD = [0.229 * 255, 0.224 * 255, 0.225 * 255]


def main() -> None:
    folder, output, workers, passes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    cache = None
    if len(sys.argv) > 5:
        cache = ds.DatasetCache(int(sys.argv[5]), size=0, spilling=False, port=int(sys.argv[6]))
    images = ds.ImageFolderDataset(folder, num_parallel_workers=1, shuffle=False)
    steps = [vision.Decode(), vision.Resize(256), vision.CenterCrop(224)]
    if output == "float32":
        steps += [vision.Normalize(MEAN, STD), vision.HWC2CHW()]
    images = images.map(steps, input_columns="image", num_parallel_workers=workers, cache=cache)
    batches = images.batch(ROWS, num_parallel_workers=1)
    iterator = batches.create_dict_iterator(output_numpy=True, num_epochs=passes)
    seconds, rows = [], 0
    for _ in range(passes):
        begin, rows = time.perf_counter(), 0
        for batch in iterator:
            rows += len(batch["image"])
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
