"""How many positions of a shuffled order can be had per second, on one core?

Ranges of 4,096 positions, as a large batch asks for them, from orders of many lengths. Beside it: a permutation
by NumPy, which must be made and kept as a whole (8 bytes a record) before its first position is known.
"""

from __future__ import annotations

import time

import numpy as np
from _measure import Figure, parser, report

from penstock.order import Shuffled

RANGE = 4096
TURN_S = 0.2
LARGEST_PERMUTATION = 10**7


def main() -> None:
    args = parser(__doc__, rounds=5).parse_args()  # the photos aren't needed here
    rows = []
    for n in (1_000, 1_025, 10**5, 10**7, 10**9, 10**12, 1 << 62):
        ours, theirs = [], []
        for number in range(args.rounds):
            ours.append(shuffled_rate(n, number) / 1e6)
            if n <= LARGEST_PERMUTATION:
                theirs.append(permutation_rate(n, number) / 1e6)
        ratio = f"{Figure(ours).median / Figure(theirs).median:.2f}" if theirs else "—"
        rows.append([f"{n:,}", Figure(ours, ".1f"), Figure(theirs, ".1f") if theirs else "—", ratio])
    header = ["records", "penstock, million/s", "NumPy permutation, million/s", "ratio"]
    report(args, header, rows)


def shuffled_rate(n: int, seed: int) -> float:
    """Positions per second of ``Shuffled``, in ranges that follow one another from a random place."""
    order = Shuffled(n, seed)
    take = min(n, RANGE)
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
