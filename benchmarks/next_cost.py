"""Measure next() when a batch is ready, for batches from 1 to 4096 rows.

Rows are tiny (16 bytes, from ``Arrays``), and the consumer pauses before each next(), as a training step does, so
that a slot is ready: what is left is the price of handing a batch over. It holds no work per row. Beside it runs a
plain NumPy gather of the same rows into a new array, which does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from _measure import Figure, parser, report

import standpipe as sp

RECORDS = 1 << 16
PAUSE_S = 0.003


def main() -> None:
    arguments = parser(__doc__, rounds=3)  # the photos aren't needed here
    arguments.add_argument(
        "--batches", type=int, default=100, metavar="N", help="of each size (default: 100)"
    )
    args = arguments.parse_args()
    array = np.arange(RECORDS * 16, dtype=np.uint8).reshape(RECORDS, 4, 4, 1)
    rows, medians = [], []
    for batch in (4**power for power in range(7)):
        ours, gather = [], []
        for _ in range(args.rounds):
            ours.append(median_us(handed_over(array, batch), args.batches))
            gather.append(median_us(gathered(array, batch), args.batches))
        rows.append(
            [str(batch), Figure(ours, ".1f"), Figure(gather, ".1f"), f"{median(ours) / median(gather):.2f}"]
        )
        medians.append(median(ours))
    note = f"dearest ÷ cheapest batch size: {max(medians) / min(medians):.2f}"
    report(args, ["rows", "next() µs", "NumPy gather µs", "next ÷ gather"], rows, note)


def handed_over(array: np.ndarray, batch: int) -> Iterator[object]:
    """Batches of a loader, for ever."""
    pipeline = sp.Pipeline(sp.Arrays(image=array)).shuffle(seed=1).batch(batch)
    with pipeline.loader(memory="256MiB", num_workers=1) as loader:
        while True:
            for fields in loader:
                yield fields
                del fields


def gathered(array: np.ndarray, batch: int) -> Iterator[object]:
    """Yield the same rows by indexing, as a hand-written loop would take them."""
    order = np.random.default_rng(1).permutation(len(array))
    while True:
        for start in range(0, len(array) - batch + 1, batch):
            indices = order[start : start + batch]
            yield {"image": array[indices], "index": indices}


def median_us(batches: Iterator[object], count: int) -> float:
    """Median time of one next(), in microseconds."""
    next(batches)
    times = []
    for _ in range(count):
        time.sleep(PAUSE_S)
        begin = time.perf_counter()
        fields = next(batches)
        times.append(time.perf_counter() - begin)
        del fields
    return 1e6 * median(times)


def median(values: list[float]) -> float:
    return Figure(values).median


if __name__ == "__main__":
    main()
