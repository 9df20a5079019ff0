"""Measure positions of an order per second, on one core.

Ranges of 4,096 positions, as a large batch asks for them, from shuffles of many lengths; then every kind of order
over a billion records, in ranges of 256 too; then orders that look something up, over half a million records (tables
in memory) and ten million (tables in files). Beside it: a permutation by NumPy, which must be made and kept as a
whole (8 bytes a record) before its first position is known.
"""

from __future__ import annotations

import time

import numpy as np
from _measure import Figure, parser, report

import standpipe as sp
from standpipe.contracts import Order
from standpipe.order import BlockShuffled, Chain, Mixed, Repeated, Selected, Sequential, Shuffled, Split
from standpipe.plan.order import order_of

RANGE, SMALL_RANGE = 4096, 256
MANY = 10**9
LOOKED_UP = (500_000, 10**7)
TURN_S = 0.2
LARGEST_PERMUTATION = 10**7


def main() -> None:
    args = parser(__doc__, rounds=5).parse_args()  # the photos aren't needed here
    rows = []
    for n in (1_000, 1_025, 10**5, 10**7, MANY, 10**12, 1 << 62):
        ours, theirs = [], []
        for number in range(args.rounds):
            ours.append(rate(Shuffled(n, number), RANGE, number) / 1e6)
            if n <= LARGEST_PERMUTATION:
                theirs.append(permutation_rate(n, number) / 1e6)
        ratio = f"{Figure(ours).median / Figure(theirs).median:.2f}" if theirs else "—"
        rows.append(
            ["shuffle", f"{n:,}", Figure(ours, ".1f"), Figure(theirs, ".1f") if theirs else "—", ratio]
        )
    for name, order in kinds().items():
        for take in (SMALL_RANGE, RANGE):
            ours = [rate(order, take, number) / 1e6 for number in range(args.rounds)]
            rows.append([f"{name}, {take:,} at once", f"{MANY:,}", Figure(ours, ".1f"), "—", "—"])
    for n in LOOKED_UP:
        for name, order in of_columns(n).items():
            for take in (SMALL_RANGE, RANGE):
                ours = [rate(order, take, number) / 1e6 for number in range(args.rounds)]
                rows.append([f"{name}, {take:,} at once", f"{n:,}", Figure(ours, ".1f"), "—", "—"])
    header = ["order", "records", "standpipe, million/s", "NumPy permutation, million/s", "ratio"]
    report(args, header, rows)


def kinds() -> dict[str, Order]:
    """One order of each kind, over about a billion records."""
    share = Split(0.9, 1, "first")
    parts = tuple(Shuffled(n, 1) for n in (10**8, 10**9, 10**7))
    return {
        "mixture of 3": Mixed.over(parts, np.zeros(3, np.int64), [0.5, 0.3, 0.2], MANY, 1),
        "sequential": Sequential(MANY),
        "shuffle": Shuffled(MANY, 1),
        "blocks of 1,000, 64 mixed": BlockShuffled(MANY, 1, 1000, 64),
        "a split, shuffled": Selected(Shuffled(share.count(MANY), 1), Chain(MANY, (share,))),
        "shuffle, repeated 3 times": Repeated(Shuffled(MANY, 1), 3),
    }


def of_columns(n: int) -> dict[str, Order]:
    """One order of each kind that looks at columns, over ``n`` records."""
    random = np.random.default_rng(0)
    source = sp.Arrays(label=random.integers(0, 1000, n, np.int16), weight=random.random(n, np.float32))
    pipeline = sp.Pipeline(source)
    kinds = {
        "a filter, shuffled": pipeline.filter("label < 900").shuffle(seed=1),
        "a split by groups, shuffled": pipeline.split(0.9, seed=1, by="label")[0].shuffle(seed=1),
        "weighted": pipeline.sample(seed=1, weights="weight"),
        "1,000 classes balanced": pipeline.sample(seed=1, balance="label"),
    }
    opened = source.open()
    return {name: order_of(kind, opened) for name, kind in kinds.items()}


def rate(order: Order, most: int, seed: int) -> float:
    """Positions per second, in ranges that follow one another from a random place."""
    n = order.num_positions
    take = min(n, most)
    start = int(np.random.default_rng(seed).integers(0, n - take + 1))
    positions, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < TURN_S:
        order.indices(positions // n, start, start + take)
        positions += take
        start = (start + take) % (n - take + 1)
    return positions / elapsed


def permutation_rate(n: int, seed: int) -> float:
    """Positions per second of a whole permutation by NumPy, repeated until it took long enough."""
    random = np.random.default_rng(seed)
    positions, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < TURN_S:
        random.permutation(n)
        positions += n
    return positions / elapsed


if __name__ == "__main__":
    main()
