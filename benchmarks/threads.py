"""Does a row cost the same CPU time however many workers there are?

One process, one loader per number of workers, taking turns of a few batches while the others rest. Threads that
disturb one another (locks, caches, memory) show as CPU time per row that grows with their number.
"""

from __future__ import annotations

from _measure import Turns, add_turns, compare_in_turns, parser, train_task

from standpipe.system.machine import cpu_count


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    add_turns(arguments)
    arguments.add_argument("--workers", metavar="N,N,…", help="default: 1, 2, 4, … up to twice the CPUs")
    args = arguments.parse_args()
    counts = (
        doubling(2 * cpu_count()) if args.workers is None else [int(text) for text in args.workers.split(",")]
    )
    pipeline = train_task(args.path, args.batch)
    turns = {str(workers): Turns(pipeline.loader(num_workers=workers, prefetch=1)) for workers in counts}
    compare_in_turns(args, "workers", turns)


def doubling(most: int) -> list[int]:
    """1, 2, 4, … and ``most`` itself."""
    return sorted({*(1 << power for power in range(most.bit_length()) if 1 << power <= most), most})


if __name__ == "__main__":
    main()
