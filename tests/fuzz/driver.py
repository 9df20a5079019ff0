"""Runs a fuzz target of Python code, with libFuzzer's flags as the native driver has them:

    driver.py [-max_total_time=S] [-runs=N] [-seed=N] [-timeout=S] [-rss_limit_mb=N] [-artifact_prefix=P]
              TARGET [FILES…]

Each seed runs as it is; then changes of seeds do, a function of the seed number alone, until time or runs are used up.
FILES run instead of that. What the target fails on is left in P<target>-<digest>. ``--list`` names the targets.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import random
import resource
import sys
import time
from hashlib import blake2b
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fuzz.mutate import MOST_BYTES, mutated
from fuzz.targets import TARGETS, Target


class Running:
    """The input that runs now, in a file, so that it is still there when the process isn't."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("wb+") as file:
            file.truncate(8 + 2 * MOST_BYTES)
            self._memory = mmap.mmap(file.fileno(), 0)

    def set(self, data: bytes) -> None:
        data = data[: 2 * MOST_BYTES]
        self._memory[: 8 + len(data)] = len(data).to_bytes(8, "little") + data

    def keep(self, path: Path) -> None:
        size = int.from_bytes(self._memory[:8], "little")
        path.write_bytes(self._memory[8 : 8 + size])

    def end(self) -> None:
        self.path.unlink()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, kind, default in (
        ("max_total_time", float, 1e9),
        ("runs", int, 1 << 62),
        ("seed", int, 1),
        ("timeout", float, 10.0),
        ("rss_limit_mb", int, 512),
        ("artifact_prefix", str, "crash-"),
    ):
        parser.add_argument(f"-{name}", type=kind, default=default)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("files", nargs="*", type=Path)
    return parser.parse_args()


def limit_memory(extra_mb: int) -> None:
    """Make code that allocates ``extra_mb`` MiB more than now get a ``MemoryError``."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (extra_mb << 20),) * 2)


def once(target: Target, data: bytes, running: Running, options: argparse.Namespace) -> bool:
    running.set(data)
    faulthandler.dump_traceback_later(options.timeout, exit=True)
    try:
        return target.run(data)
    except BaseException:
        path = Path(f"{options.artifact_prefix}{options.target}-{blake2b(data, digest_size=8).hexdigest()}")
        running.keep(path)
        running.end()
        print(f"driver: the input is in {path}", file=sys.stderr)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        print(*TARGETS, sep="\n")
        return
    options = arguments()
    faulthandler.enable()
    running = Running(Path(f"{options.artifact_prefix}{options.target}-running-{os.getpid()}"))
    target = TARGETS[options.target]()
    if not options.files:
        limit_memory(options.rss_limit_mb)
    begin, seeds = time.monotonic(), target.seeds
    fates = [
        once(target, data, running, options)
        for data in [file.read_bytes() for file in options.files] or seeds
    ]
    runs, good = len(fates), sum(fates)
    draw = random.Random(options.seed)
    while not options.files and runs < options.runs and time.monotonic() - begin < options.max_total_time:
        data = mutated(draw.choice(seeds), draw.choice(seeds), target.words, draw)
        good += once(target, data, running, options)
        runs += 1
    running.end()
    took_s, peak_mb = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"driver: {options.target}, {runs} runs in {took_s:.1f} s, {good} of them taken for good; peak {peak_mb} MB"
    )


if __name__ == "__main__":
    main()
