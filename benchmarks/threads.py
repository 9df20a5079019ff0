"""Does a row cost the same CPU time however many workers there are?

One process, one loader per number of workers, taking turns of a few batches while the others rest. Threads that
disturb one another (locks, caches, memory) show as CPU time per row that grows with their number.
"""

from __future__ import annotations

from _measure import Figure, Turns, median_interval, parser, progress, ratio, report, train_task

from penstock.machine import cpu_count


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument("--batches", type=int, default=4, metavar="N", help="of one turn (default: 4)")
    arguments.add_argument(
        "--workers", default=None, metavar="N,N,…", help="default: 1, 2, 4, … CPUs, twice as many"
    )
    args = arguments.parse_args()
    counts = (
        doubling(2 * cpu_count()) if args.workers is None else [int(text) for text in args.workers.split(",")]
    )
    pipeline = train_task(args.path, args.batch)
    turns = {workers: Turns(pipeline.plan(workers=workers, depth=2)) for workers in counts}
    wall: dict[int, list[float]] = {workers: [] for workers in turns}
    cpu: dict[int, list[float]] = {workers: [] for workers in turns}
    for number in range(args.rounds):
        for workers, turn in turns.items():
            progress(f"round {number + 1} of {args.rounds}: {workers} workers")
            seconds, cpu_seconds = turn.turn(args.batches)
            wall[workers].append(seconds)
            cpu[workers].append(cpu_seconds)
    progress("")
    for turn in turns.values():
        turn.close()
    images, first = args.batch * args.batches, counts[0]
    rows = []
    for workers in turns:
        beside = ratio(cpu[workers], cpu[first])
        low, high = median_interval(beside.values)
        rates = Figure([images / seconds for seconds in wall[workers]])
        per_row = Figure([1e3 * seconds / images for seconds in cpu[workers]], ".3f")
        rows.append([str(workers), rates, per_row, f"{beside.median:.3f}", f"{low:.3f}–{high:.3f}"])
    header = ["workers", "images/s", "CPU ms per row", f"CPU ÷ {first} workers'", "95% interval"]
    report(args, header, rows, f"turns of {images:,} rows; this process may use {cpu_count()} CPUs")


def doubling(most: int) -> list[int]:
    """1, 2, 4, … and ``most`` itself."""
    return sorted({*(1 << power for power in range(most.bit_length()) if 1 << power <= most), most})


if __name__ == "__main__":
    main()
