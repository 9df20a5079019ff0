"""Runs a fuzz target, with libFuzzer's flags:

    driver.py [-max_total_time=S] [-runs=N] [-seed=N] [-timeout=S] [-rss_limit_mb=N] [-artifact_prefix=P]
              TARGET [SEEDS…]

TARGET is one of Python code, which ``--list`` names, or a program of ``native/fuzz``. SEEDS are files, and folders of
files; without any, they are the target's own. Each seed runs as it is; then changes of seeds do, a function of the seed
number alone, until time or runs are used up. What the target fails on is left in P<target>-<digest>.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import random
import resource
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fuzz.mutate import mutated
from fuzz.mutate_jpeg import MOST_BYTES, START, mutated_jpeg
from fuzz.targets import TARGETS, Target


class NativeTarget:
    """A target in a process of its own, which limits its time and memory."""

    words: tuple[bytes, ...] = ()

    def __init__(self, options: argparse.Namespace) -> None:
        self.seeds: list[bytes] = []
        limits = (str(int(options.timeout)), str(options.rss_limit_mb))
        self._process = subprocess.Popen(
            (options.target, *limits), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, data: bytes) -> bool:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        to.write(len(data).to_bytes(8, "little") + data)
        to.flush()
        if not back.read(1):
            raise RuntimeError(f"it ended with {self._process.wait()}; -27 and -14: after -timeout")
        return True

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait() != 0:  # memory that was lost
            raise RuntimeError(f"it ended with {self._process.returncode}")


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
    parser.add_argument("target")
    parser.add_argument("seeds", nargs="*", type=Path)
    return parser.parse_args()


def files_of(paths: list[Path]) -> list[bytes]:
    """Return the bytes of files, and of those in folders, in an order that doesn't depend on the file system."""
    found = [each for path in paths for each in ([path] if path.is_file() else path.rglob("*"))]
    return [path.read_bytes() for path in sorted(found) if path.is_file()]


def limit_memory(extra_mb: int) -> None:
    """Make code that allocates ``extra_mb`` MiB more than now get a ``MemoryError``."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (extra_mb << 20),) * 2)


def once(target: Target, data: bytes, running: Running, options: argparse.Namespace) -> bool:
    running.set(data)
    if not isinstance(target, NativeTarget):
        faulthandler.dump_traceback_later(options.timeout, exit=True)
    try:
        return target.run(data)
    except BaseException:
        path = Path(f"{options.artifact_prefix}{options.name}-{blake2b(data, digest_size=8).hexdigest()}")
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
    options.name = Path(options.target).name
    faulthandler.enable()
    running = Running(Path(f"{options.artifact_prefix}{options.name}-running-{os.getpid()}"))
    target = TARGETS[options.target]() if options.target in TARGETS else NativeTarget(options)
    seeds = files_of(options.seeds) or target.seeds
    if options.target in TARGETS and options.runs > len(seeds):
        limit_memory(options.rss_limit_mb)
    begin = time.monotonic()
    fates = [once(target, data, running, options) for data in seeds]
    runs, good = len(fates), sum(fates)
    draw = random.Random(options.seed)
    while runs < options.runs and time.monotonic() - begin < options.max_total_time:
        content, other = draw.choice(seeds), draw.choice(seeds)
        if content.startswith(START):
            data = mutated_jpeg(content, other, draw)
        else:
            data = mutated(content, other, target.words, draw)
        good += once(target, data, running, options)
        runs += 1
    if isinstance(target, NativeTarget):
        target.end()
    running.end()
    took_s = time.monotonic() - begin
    who = resource.RUSAGE_CHILDREN if isinstance(target, NativeTarget) else resource.RUSAGE_SELF
    peak_mb = resource.getrusage(who).ru_maxrss >> 10
    print(
        f"driver: {options.name}, {runs} runs in {took_s:.1f} s, {good} of them taken for good; peak {peak_mb} MB"
    )


if __name__ == "__main__":
    main()
