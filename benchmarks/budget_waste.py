"""Measure padding and unused budget in batches of records with very different lengths.

Lengths are lognormal with a long tail, cut off at the budget. Batches within a length budget, padded or packed, are
compared with plain shuffled batches. The plain batches have as many rows as keep the mean padded batch at the budget,
or as many as keep the worst one within it. Also measured: the time to plan, and to find the records of a batch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from _measure import Figure, parser, progress, report

from standpipe.order import Budget, BudgetOrder, Chain, Shuffled
from standpipe.spec import Int64Array

BUDGET = 16_384
MEDIAN, SIGMA = 250, 1.0
ASKED = 300  # batches that are measured


@dataclass(frozen=True, slots=True)
class Waste:
    """The figures of one kind of batches.

    batches  number of batches in an epoch
    rows     mean rows per batch
    padding  fraction of rows × longest length that is padding
    full     fraction of the budget that is used
    worst    cost of the largest batch ÷ budget
    """

    batches: int
    rows: float
    padding: float
    full: float
    worst: float


def main() -> None:
    arguments = parser(__doc__, rounds=5)  # the photos aren't used
    arguments.add_argument("--records", type=int, default=1_000_000, metavar="N", help="(default: 1,000,000)")
    args = arguments.parse_args()
    random = np.random.default_rng(0)
    drawn = random.lognormal(np.log(MEDIAN), SIGMA, args.records)
    lengths = np.clip(drawn.astype(np.int64), 1, BUDGET)
    rows: list[list[Any]] = []
    for name, most in (("plain, the mean fits", "mean"), ("plain, the worst fits", "max")):
        waste = plain(lengths, most)
        rows.append([name, *shown(waste), "—", "—"])
    for packing in (False, True):
        plan_s, batch_s = [], []
        for number in range(args.rounds):
            progress(f"round {number + 1} of {args.rounds}: {'packed' if packing else 'bucketed'}")
            begin = time.perf_counter()
            batches = planned(lengths, packing)
            plan_s.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            asked = [batches.records(number, at) for at in range(min(ASKED, batches.num_positions))]
            batch_s.append((time.perf_counter() - begin) / len(asked))
        waste = measured(lengths, asked, batches.num_positions, packing)
        took = [Figure(plan_s, ".2f"), Figure([each * 1e6 for each in batch_s])]
        rows.append(["packed" if packing else "bucketed", *shown(waste), *took])
    progress("")
    header = [
        "batches",
        "number",
        "rows",
        "padding",
        "budget used",
        "worst ÷ budget",
        "plan s",
        "µs per batch",
    ]
    note = f"{args.records:,} records, lognormal(median {MEDIAN}, σ {SIGMA}), at most {BUDGET:,}; budget {BUDGET:,}"
    report(args, header, rows, note)


def planned(lengths: Int64Array, packing: bool) -> BudgetOrder:
    budget = Budget(BUDGET, "length", packing=packing)
    return BudgetOrder.of(budget, lambda start, stop: lengths[start:stop], Chain(len(lengths)), seed=0)


def plain(lengths: Int64Array, most: str) -> Waste:
    """Measure plain shuffled batches with the most rows whose mean or largest padded batch fits the budget."""
    order = Shuffled(len(lengths), 0)
    shuffled = order.indices(0, 0, len(lengths))
    rows = 1
    while True:
        blocks = shuffled[: len(shuffled) // (rows + 1) * (rows + 1)].reshape(-1, rows + 1)
        costs = (rows + 1) * lengths[blocks].max(axis=1)
        if getattr(costs, most)() > BUDGET:
            break
        rows += 1
    blocks = shuffled[: len(shuffled) // rows * rows].reshape(-1, rows)
    return measured(lengths, list(blocks), -(-len(lengths) // rows), packing=False)


def measured(lengths: Int64Array, batches: list[Int64Array], number: int, packing: bool) -> Waste:
    real = np.array([lengths[batch].sum() for batch in batches])
    padded = np.array([len(batch) * lengths[batch].max() for batch in batches])
    costs = real if packing else padded
    return Waste(
        batches=number,
        rows=len(lengths) / number,
        padding=0.0 if packing else 1 - real.sum() / padded.sum(),
        full=float(lengths.sum()) / (number * BUDGET),
        worst=float(costs.max()) / BUDGET,
    )


def shown(waste: Waste) -> list[str]:
    return [
        f"{waste.batches:,}",
        f"{waste.rows:.1f}",
        f"{waste.padding:.1%}",
        f"{waste.full:.1%}",
        f"{waste.worst:.2f}",
    ]


if __name__ == "__main__":
    main()
