"""Measure storage that takes 5 ms to open a file, with two workers.

A library loaded before all others (LD_PRELOAD, compiled here with cc) sleeps in every open below PATH, as a network
file system or a disk's seek would. Beside it runs the same command on the same files without the sleep. Two threads
that each waited 5 ms for every file could open at most 400 files a second.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from _measure import Figure, bench, column, in_turn, parser, ratio, report

SLEEPER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static sem_t free_now;
static int few;

__attribute__((constructor)) static void count(void) {
    const char *at_once = getenv("SLOW_AT_ONCE");
    few = at_once ? atoi(at_once) : 0;
    if (few) sem_init(&free_now, 0, few);
}

static void wait_for(const char *path, const char *us) {
    const char *below = getenv("SLOW_BELOW");
    if (below && us && !strncmp(path, below, strlen(below))) {
        const long ns = atol(us) * 1000;
        struct timespec pause = {ns / 1000000000, ns % 1000000000};
        if (few) while (sem_wait(&free_now)) continue;
        nanosleep(&pause, NULL);
        if (few) sem_post(&free_now);
    }
}

static int opened(int folder, const char *path, int flags, va_list rest) {
    if (!(flags & O_DIRECTORY)) wait_for(path, getenv("SLOW_US"));
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); \
    const int file = opened(AT_FDCWD, path, flags, rest); \
    va_end(rest); return file; }
#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); \
    const int file = opened(folder, path, flags, rest); \
    va_end(rest); return file; }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int stat(const char *path, struct stat *found) {
    wait_for(path, getenv("SLOW_STAT_US"));
    return fstatat(AT_FDCWD, path, found, 0);
}
"""


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    arguments.add_argument(
        "--open-ms", type=float, default=5.0, metavar="MS", help="added to an open (default: 5)"
    )
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    args = arguments.parse_args()
    below = str(Path(args.path).resolve())
    task = ("--workers", args.workers, "--seconds", args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        slow = slowed(Path(folder), below, open_ms=args.open_ms)
        results = in_turn(
            args.rounds, {"warm": lambda: bench(below, *task), "slow": lambda: bench(below, *task, env=slow)}
        )
    rows: list[list[Any]] = [
        [
            name,
            Figure(column(runs, "images_per_s")),
            Figure(column(runs, "cpu_s_per_1000"), ".2f"),
            Figure(column(runs, "peak_pss_mib")),
            Figure(column(runs, "forecast_mib")),
            ratio(column(runs, "peak_pss_mib"), column(runs, "forecast_mib")),
        ]
        for name, runs in results.items()
    ]
    rates = ratio(column(results["slow"], "images_per_s"), column(results["warm"], "images_per_s"))
    header = ["storage", "images/s", "CPU s per 1000", "peak PSS MiB", "forecast MiB", "peak ÷ forecast"]
    report(args, header, rows, f"images/s, slow ÷ warm: {rates}; {args.open_ms:g} ms added to every open")


def slowed(
    folder: Path, below: str, *, open_ms: float, stat_ms: float = 0.0, at_once: int = 0
) -> dict[str, str]:
    """Return environment variables that make files below a path slow to open and to stat.

    folder   folder in which the library is built that does it
    at_once  how many such calls the storage serves at a time; 0: any number
    """
    us = {"SLOW_US": str(round(1000 * open_ms)), "SLOW_STAT_US": str(round(1000 * stat_ms))}
    few = {"SLOW_AT_ONCE": str(at_once)}
    return {"LD_PRELOAD": str(compiled(folder)), "SLOW_BELOW": below, **us, **few}


def compiled(folder: Path) -> Path:
    """The sleeping library, built in ``folder``."""
    source, library = folder / "sleeper.c", folder / "sleeper.so"
    source.write_text(SLEEPER)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    return library


if __name__ == "__main__":
    main()
