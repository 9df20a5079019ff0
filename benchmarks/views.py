"""Measure what several views of an image cost, beside one view, and beside a pass over the files for each view.

Two views: RandomResizedCrop(224), flip and Normalize, each. Eight views, as DINO's: two of 224 and six of 96 pixels,
with flip, colour jitter, grey and Normalize. All from JPEG files to float32 batches. The files are in the page cache.
"""

from __future__ import annotations

import time
from typing import Any

from _measure import Figure, parser, progress, ratio, report

import standpipe as sp

VIEW = [sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize()]
COLOURS = [
    sp.RandomHorizontalFlip(),
    sp.RandomApply([sp.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
    sp.RandomGrayscale(p=0.2),
    sp.Normalize(),
]
LARGE = [sp.RandomResizedCrop(224, scale=(0.4, 1.0), interpolation="bicubic"), *COLOURS]
SMALL = [sp.RandomResizedCrop(96, scale=(0.05, 0.4), interpolation="bicubic"), *COLOURS]
PIPELINES: dict[str, list[Any]] = {
    "one view": VIEW,
    "two views": [sp.Views(a=VIEW, b=VIEW)],
    "one of 224": LARGE,
    "one of 96": SMALL,
    "eight views": [sp.Views(large=sp.Repeat(2, LARGE), small=sp.Repeat(6, SMALL))],
}


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument(
        "--rows", type=int, default=1000, metavar="N", help="rows of each run (default: 1000)"
    )
    args = arguments.parse_args()
    cpu: dict[str, list[float]] = {name: [] for name in PIPELINES}
    rates: dict[str, list[float]] = {name: [] for name in PIPELINES}
    for number in range(args.rounds):
        progress(f"round {number + 1} of {args.rounds}")
        for name, transforms in PIPELINES.items():
            cpu_us, rate = measured(args, transforms)
            cpu[name].append(cpu_us)
            rates[name].append(rate)
    apart = [2 * large + 6 * small for large, small in zip(cpu["one of 224"], cpu["one of 96"], strict=True)]
    compared = {"two views": (cpu["one view"], "one view"), "eight views": (apart, "eight passes")}
    rows: list[list[Any]] = []
    for name in PIPELINES:
        beside, what = compared.get(name, (None, ""))
        share = "" if beside is None else f"{ratio(cpu[name], beside)} of {what}"
        rows.append([name, Figure(cpu[name]), Figure(rates[name]), share])
    header = ["pipeline", "µs of CPU per image", "images/s", "CPU beside"]
    report(args, header, rows, f"{args.workers} workers, batches of 32 float32")


def measured(args: Any, transforms: list[Any]) -> tuple[float, float]:
    """Return the CPU time per image in microseconds, and the images per second."""
    pipeline = sp.Pipeline(sp.ImageFolder(args.path)).shuffle(seed=7).map(*transforms).batch(32)
    with pipeline.loader(memory="2GiB", num_workers=args.workers) as loader:
        next(iter(loader))
        rows, cpu_s, begin_s = 0, time.process_time(), time.perf_counter()
        while rows < args.rows:
            for batch in loader:
                rows += len(batch["index"])
                if rows >= args.rows:
                    break
        return 1e6 * (time.process_time() - cpu_s) / rows, rows / (time.perf_counter() - begin_s)


if __name__ == "__main__":
    main()
