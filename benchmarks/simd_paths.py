"""How fast is each instruction set, and how much CPU does it take per image?

One process, one loader per path, taking turns of a few batches while the others rest. All paths give the same
bytes. The ratio is of CPU time, path by path against the first one, with the interval in which its median lies.
"""

from __future__ import annotations

from _measure import Figure, Turns, median_interval, parser, progress, ratio, report, train_task, with_simd

from penstock.transform import simd_paths


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument("--batches", type=int, default=4, metavar="N", help="of one turn (default: 4)")
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    arguments.add_argument(
        "--paths", default=",".join(simd_paths()), metavar="NAMES", help="which (default: all that run here)"
    )
    args = arguments.parse_args()
    plan = train_task(args.path, args.batch).plan(workers=args.workers)
    turns = {name: Turns(with_simd(plan, name)) for name in args.paths.split(",")}
    wall: dict[str, list[float]] = {name: [] for name in turns}
    cpu: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(args.rounds):
        for name, turn in turns.items():
            progress(f"round {number + 1} of {args.rounds}: {name}")
            seconds, cpu_seconds = turn.turn(args.batches)
            wall[name].append(seconds)
            cpu[name].append(cpu_seconds)
    progress("")
    for turn in turns.values():
        turn.close()
    images = args.batch * args.batches
    first = next(iter(turns))
    rows = []
    for name in turns:
        beside = ratio(cpu[name], cpu[first])
        low, high = median_interval(beside.values)
        rates = Figure([images / seconds for seconds in wall[name]])
        per_image = Figure([1e3 * seconds / images for seconds in cpu[name]], ".3f")
        rows.append([name, rates, per_image, f"{beside.median:.3f}", f"{low:.3f}–{high:.3f}"])
    header = ["path", "images/s", "CPU ms per image", f"CPU ÷ {first}", "95% interval"]
    report(args, header, rows, f"turns of {images:,} images, {args.workers} workers")


if __name__ == "__main__":
    main()
