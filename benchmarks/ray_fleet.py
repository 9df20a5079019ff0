"""Measure duplicate work, recovery and the trainers' wait in a large fleet, by simulation.

``standpipe.engine.remote.pulling``, the code that decides in a run which actor makes which batch, runs here in
simulated time, once for each trainer. Simulated are the actors, their failures, and trainers that take their steps at
the same time, as DDP does. An actor makes the batches of all trainers one after another. Times have a log-normal
distribution with a mean of one second. Times between failures have an exponential one. ``--seed`` decides all of
them, and the same seed gives the same table.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from _fleet import Counts, Fleet, Simulation
from _measure import parser, progress, report

LAST = "all of these"


def scenarios(fleet: Fleet) -> Iterator[tuple[str, Fleet]]:
    """Yield fleets to simulate, and what goes wrong in each."""
    yield "nothing", fleet
    yield "times vary as much as their mean", replace(fleet, variation=1.0)
    yield "2% of the batches 10 × slow", replace(fleet, slow_batches=0.02)
    yield "5% of the actors 10 × slow", replace(fleet, slow_actors=0.05)
    yield "an actor fails every 5 minutes", replace(fleet, fails_after_s=300.0)
    yield "a node leaves for a minute", replace(fleet, node_every_s=200.0)
    yield "all leave for a minute", replace(fleet, all_every_s=300.0)
    yield LAST, everything(fleet)


def everything(fleet: Fleet) -> Fleet:
    """Return a fleet in which everything goes wrong."""
    return replace(
        fleet,
        variation=0.5,
        slow_batches=0.01,
        slow_actors=0.02,
        fails_after_s=600.0,
        node_every_s=600.0,
        all_every_s=1800.0,
    )


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--actors", type=int, default=64, metavar="N", help="actors (default: 64)")
    arguments.add_argument("--trainers", type=int, default=8, metavar="N", help="trainers (default: 8)")
    arguments.add_argument("--steps", type=int, default=2000, metavar="N", help="steps (default: 2000)")
    arguments.add_argument(
        "--last", type=int, default=12500, metavar="N", help="steps of the last row (default: 12500)"
    )
    arguments.add_argument(
        "--load", type=float, default=0.7, metavar="X", help="fraction of the actors' rate (default: 0.7)"
    )
    arguments.add_argument(
        "--prefetch",
        type=int,
        default=0,
        metavar="N",
        help="batches ahead (default: as in a run, two per actor)",
    )
    arguments.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    args = arguments.parse_args()  # the photos aren't needed here
    ahead = args.prefetch or 2 * args.actors
    fleet = Fleet(actors=args.actors, trainers=args.trainers, load=args.load, prefetch=ahead)
    rows, batches, begin = [], 0, time.process_time()
    for name, each in scenarios(fleet):
        progress(name)
        counts = Simulation(each, args.last if name == LAST else args.steps, args.seed).run()
        rows.append([name, *columns(counts)])
        batches += counts.made
    progress("")
    header = [
        "what goes wrong",
        "steps",
        "failures",
        "duplicates",
        "trainers wait",
        "longest wait, s",
        "recovery, s",
    ]
    header += ["queue of an actor", "messages under way", "entries of a trainer"]
    each_us = 1e6 * (time.process_time() - begin) / batches
    report(
        args,
        header,
        rows,
        f"{args.actors:,} actors, {args.trainers} trainers, {ahead:,} batches ahead; an actor takes 1 s for a batch",
        "recovery: median and 99th percentile; entries and messages: most in each half of the steps",
        f"{each_us:.0f} µs of CPU time per batch, of the simulation and all trainers together",
    )


def columns(counts: Counts) -> list[Any]:
    times = counts.recoveries
    return [
        f"{counts.steps:,}",
        counts.failures,
        f"{counts.duplicates:.2%}",
        f"{counts.idle:.1%}",
        f"{max(counts.waits):.1f}",
        f"{statistics.median(times):.1f}, {largest_but(0.01, times):.1f}" if times else "—",
        counts.queue,
        halves(counts.under_way),
        halves(counts.entries),
    ]


def largest_but(share: float, values: list[float]) -> float:
    """Return the value that a share of the values exceeds."""
    return sorted(values)[math.ceil(len(values) * (1 - share)) - 1]


def halves(most: list[int]) -> str:
    """Return the most of the first and the second five tenths of the steps."""
    return f"{max(most[:5]):,}, {max(most[5:]):,}"


if __name__ == "__main__":
    main()
