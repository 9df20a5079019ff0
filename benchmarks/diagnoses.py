"""Measure whether a diagnosis names the right limit, and whether its first advice brings the predicted rate.

Each case is a pipeline with one known limit. It runs for some seconds, and then again with the advice followed. A
diagnosis without a predicted rate may give an upper limit instead; the rate is then compared with that. The training
loop takes a few milliseconds per step. Only the case of the interpreter's lock needs more than one core.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _functions import BATCH, Waits, computes, numbers
from _measure import parser, report

import standpipe as sp
from standpipe.cli.task import endless
from standpipe.device import HostMemory
from standpipe.observe import Diagnosis
from standpipe.system.faults import install_faults

STEP_S = 0.008
SETTINGS: dict[str, Any] = {"memory": "1GiB", "num_workers": 2}


@dataclass(frozen=True)
class Case:
    """A pipeline with one limit.

    place    the place that the diagnosis should name
    limited  makes the loader with the limit
    fixed    makes the loader after the advice was followed
    step_s   seconds of the training steps, repeated in this order
    """

    place: str
    limited: Callable[[], sp.Loader]
    fixed: Callable[[], sp.Loader]
    step_s: Sequence[float] = (STEP_S,)


class SlowCopy(HostMemory):
    """A device to which copying a batch takes two steps' time."""

    def open(self, fields: Mapping[str, Any], finish: Any) -> SlowCopy:
        return self

    def take(self, *arguments: Any) -> Mapping[str, Any]:
        time.sleep(2 * STEP_S)
        return super().take(*arguments)


def photos(folder: Path, side: int) -> sp.Pipeline:
    return sp.Pipeline(sp.ImageFolder(folder / str(side))).map(sp.Resize((32, 32))).batch(BATCH)


def write_photos(folder: Path, side: int, number: int = 256) -> None:
    from PIL import Image

    (folder / str(side) / "a").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (side // 8, side // 8, 3), np.uint8)
    image = Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)
    for each in range(number):
        image.save(folder / str(side) / "a" / f"{each}.jpg", quality=90)


def cases(folder: Path) -> dict[str, Case]:
    for side in (32, 1024):
        write_photos(folder, side)
    cache = sp.Cache("diagnoses", "64MiB", directory=folder)

    def slow_storage() -> sp.Loader:
        install_faults("read.open=delay:30ms")
        return photos(folder, 32).loader(**SETTINGS)

    def quick_storage() -> sp.Loader:
        install_faults("")
        return photos(folder, 32).loader(**SETTINGS)

    def cached() -> sp.Loader:
        kept = sp.Pipeline(sp.ImageFolder(folder / "1024")).map(sp.Resize((32, 32))).cache(cache).batch(BATCH)
        sp.fill_cache(kept)
        return kept.loader(**SETTINGS)

    def plain(*functions: Callable[[Any], Any], **more: Any) -> Callable[[], sp.Loader]:
        return lambda: numbers(*functions).loader(**{**SETTINGS, **more})

    def copied_slowly() -> sp.Loader:
        return sp.Loader(replace(numbers().plan(**SETTINGS), device=SlowCopy()))

    uneven = (*[STEP_S / 8] * 20, 40 * STEP_S)
    return {
        "slow storage": Case("read", slow_storage, quick_storage),
        "slow native decode": Case("transform", lambda: photos(folder, 1024).loader(**SETTINGS), cached),
        "a function that waits": Case(
            "transform", plain(Waits(0.001)), plain(Waits(0.001), num_workers=4), (STEP_S / 4,)
        ),
        "a function that computes, in threads": Case(
            "transform", plain(computes), plain(computes, executor="process"), (STEP_S / 8,)
        ),
        "a slow loop": Case("step", plain(lambda x: x), plain(lambda x: x, num_workers=4), (4 * STEP_S,)),
        "a slow copy": Case("device", copied_slowly, plain()),
        "no room to work ahead": Case(
            "slots", plain(Waits(0.0002), prefetch=1), plain(Waits(0.0002), prefetch=23), uneven
        ),
        "one slow worker": Case(
            "worker",
            plain(Waits(0.0005), Waits(0.01, only=1), executor="process"),
            plain(Waits(0.0005), executor="process"),
        ),
    }


def run(loader: sp.Loader, seconds: float, step_s: Sequence[float]) -> tuple[Diagnosis, float]:
    """Run a loader for ``seconds``; return its diagnosis and its rows per second."""
    with loader:
        batches = endless(loader)
        for _ in range(len(step_s)):
            next(batches)
        before, begin, number = loader.stats(), time.perf_counter(), 0
        while time.perf_counter() - begin < seconds or number % len(step_s):
            time.sleep(step_s[number % len(step_s)])
            next(batches)
            number += 1
        found = loader.diagnose(before)
    return found, found.rows_per_s


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument(
        "--seconds", type=float, default=4.0, metavar="S", help="seconds per run (default: 4)"
    )
    arguments.add_argument("--only", metavar="WORDS", help="run cases whose names contain this")
    args = arguments.parse_args()
    header = ["limit", "diagnosis", "", "rows/s", "predicted", "at most", "after", "predicted ÷ after"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(Path(folder)).items():
            if args.only and args.only not in name:
                continue
            found, now = run(case.limited(), args.seconds, case.step_s)
            _, after = run(case.fixed(), args.seconds, case.step_s)
            foretold, most = found.fixed_rows_per_s, found.upper_rows_per_s
            right = "right" if found.place == case.place else f"WRONG, should be {case.place}"
            rows.append(
                [
                    name,
                    found.place,
                    right,
                    round(now),
                    "" if foretold is None else round(foretold),
                    "" if most is None else round(most),
                    round(after),
                    "" if foretold is None else f"{foretold / after:.2f}",
                ]
            )
    report(args, header, rows)


if __name__ == "__main__":
    main()
