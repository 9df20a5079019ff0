"""Measure the speed and CPU time per image of each instruction set.

One process, one loader per path, taking turns of a few batches while the others rest. All paths give the same
bytes. The ratio is of CPU time, path by path against the first one, with the interval in which its median
lies.
"""

from __future__ import annotations

from dataclasses import replace

from _measure import Turns, add_turns, compare_in_turns, parser, train_task

import standpipe as sp
from standpipe.transform import simd_paths


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    add_turns(arguments)
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    arguments.add_argument(
        "--paths", default=",".join(simd_paths()), metavar="NAMES", help="which (default: all that run here)"
    )
    args = arguments.parse_args()
    plan = train_task(args.path, args.batch).plan(num_workers=args.workers)
    turns = {
        name: Turns(sp.Loader(replace(plan, samples=replace(plan.samples, simd=name))))
        for name in args.paths.split(",")
    }
    compare_in_turns(args, "path", turns)


if __name__ == "__main__":
    main()
