"""Measure next() when a batch is ready, for batches from 1 to 4096 rows.

Rows are tiny (16 bytes, from ``Arrays``), and the consumer pauses before each next(), as a training step does, so
that a slot is ready: what is left is the price of handing a batch over. It holds no work per row. Beside it runs a
plain NumPy gather of the same rows into a new array, which does.

The last figure is for one consumer at scale: 256 batches of 512 tiny images a second, and how much of a core the
consumer and the filling thread take for them. Decoding threads make the rows and count elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _measure import Figure, parser, report

import standpipe as sp

RECORDS = 1 << 16
PAUSE_S = 0.003
RATE_HZ, ROWS, WARM_UP, SECONDS = 256, 512, 20, 4.0  # at scale
COUNTED = ("MainThread", "standpipe-fill")


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
    cores = [at_scale() for _ in range(args.rounds)]
    rate = f"{RATE_HZ} batches of {ROWS} rows a second"
    scale = f"{rate}: consumer and filling thread take {Figure(cores, '.2f')} of a core"
    report(args, ["rows", "next() µs", "NumPy gather µs", "next ÷ gather"], rows, note, scale)


def at_scale() -> float:
    """Return the part of a core that the consumer and the filling thread take at ``RATE_HZ`` batches a second."""
    images = np.zeros((RECORDS, 4, 4, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=images)).shuffle(seed=1).map(sp.CenterCrop(4)).batch(ROWS)
    with pipeline.loader(memory="256MiB", num_workers=2) as loader:
        batches = (batch for _ in iter(int, 1) for batch in loader)
        for _ in range(WARM_UP):
            next(batches)
        threads = [thread.native_id for thread in threading.enumerate() if thread.name in COUNTED]
        begin, cpu = time.perf_counter(), sum(map(cpu_s, threads))
        steps = 0
        while (passed := time.perf_counter() - begin) < SECONDS:
            time.sleep(max(steps / RATE_HZ - passed, 0))
            next(batches)
            steps += 1
        if steps < 0.98 * RATE_HZ * SECONDS:
            raise SystemExit(
                f"{steps} steps in {SECONDS} s: this machine doesn't reach {RATE_HZ} batches a second"
            )
        return (sum(map(cpu_s, threads)) - cpu) / passed


def cpu_s(thread: int | None) -> float:
    """Return the CPU seconds of a thread of this process."""
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


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
