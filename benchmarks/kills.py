"""Kill or interrupt commands at random moments, and run them again.

``pack``, ``unpack``, ``index``, ``scan`` and ``cache fill`` work on copies of the photos. Each has its process group
killed at a random moment of its run, and is run again with the same arguments. Then its files are compared with those
of a run that nobody disturbed, and the benchmark looks for files and processes that were left behind. With
``--signal INT`` the group gets Ctrl-C instead, and the benchmark shows how long the slowest end took.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from _measure import parser, progress, report

import standpipe as sp
from standpipe.source.index.file import read_index

BASE_S = 0.2  # a command has begun to import by then
LINES = 1_000_000  # of the list: its index takes seconds
INDEX = ".standpipe-index"


@dataclass(frozen=True)
class Inputs:
    """A folder of photos, one of their shards, and a long list of the photos, which the commands read."""

    photos: Path
    shards: Path
    lines: Path


@dataclass(frozen=True)
class Command:
    """A command under test.

    arguments  its arguments, for inputs and a folder of its own
    results    what has to be the same as after an undisturbed run, for this folder
    """

    arguments: Callable[[Inputs, Path], list[str | Path]]
    results: Callable[[Path], object]


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--copies", type=int, default=4, metavar="N", help="of the photos (default: 4)")
    arguments.add_argument("--kills", type=int, default=28, metavar="N", help="of all commands (default: 28)")
    arguments.add_argument("--signal", choices=("KILL", "INT"), default="KILL", help="(default: KILL)")
    arguments.add_argument("--seed", type=int, default=0, metavar="N", help="other moments (default: 0)")
    args = arguments.parse_args()
    draw, sent = random.Random(args.seed), signal.Signals[f"SIG{args.signal}"]
    with tempfile.TemporaryDirectory(prefix="standpipe-kills-") as folder:
        inputs = made(args, Path(folder))
        rows = []
        for number, name in enumerate(COMMANDS):
            kills = len(range(number, args.kills, len(COMMANDS)))
            rows.append(trials(name, inputs, Path(folder), kills, sent, draw))
    header = [
        "",
        "seconds",
        "stopped",
        "not continued",
        "differ",
        "files left",
        "processes left",
        "slowest end, s",
    ]
    report(args, header, rows)


def made(args: argparse.Namespace, folder: Path) -> Inputs:
    """Copy the photos, with times that indexes and scans rely on, and pack them."""
    photos = folder / "photos"
    for number in range(args.copies):
        shutil.copytree(args.path, photos / f"{number}", copy_function=shutil.copyfile)
    for path in [photos, *photos.rglob("*")]:
        os.utime(path, (1_600_000_000.1, 1_600_000_000.1))
    sp.pack_shards(sp.ImageFolder(photos), folder / "shards", shard_size="2MiB")
    names = [f"{path.relative_to(folder)}\t{path.parent.name}\n" for path in photos.glob("*/*/*.*")]
    lines = folder / "list.txt"
    lines.write_text("".join(names * (LINES // len(names))))
    os.utime(lines, (1_600_000_000.1, 1_600_000_000.1))
    return Inputs(photos, folder / "shards", lines)


def trials(
    name: str, inputs: Inputs, folder: Path, kills: int, sent: signal.Signals, draw: random.Random
) -> list[object]:
    """Stop a command at random moments; return a row of the table."""
    calm, place = folder / "calm", folder / "stopped"
    begin = time.perf_counter()
    if started(name, inputs, calm).wait() != 0:
        raise SystemExit(f"{name} failed without a signal")
    seconds = time.perf_counter() - begin
    expected, names = COMMANDS[name].results(calm), files_in(calm)
    stopped = failed = differ = files = processes = 0
    slowest = 0.0
    while stopped < kills:
        progress(f"{name}: {stopped} of {kills}")
        process = started(name, inputs, place)
        time.sleep(draw.uniform(BASE_S, max(seconds, BASE_S)))
        begin = time.perf_counter()
        os.killpg(process.pid, sent)
        # Else it was faster: unpack takes a folder that is complete for another one's.
        if process.wait() != 0 and (files_in(place) != names or COMMANDS[name].results(place) != expected):
            stopped += 1
            slowest = max(slowest, time.perf_counter() - begin)
            failed += started(name, inputs, place).wait() != 0
            differ += COMMANDS[name].results(place) != expected
            files += (files_in(place) - names).total()
            processes += len(processes_of(place))
        shutil.rmtree(place)
    shutil.rmtree(calm)
    return [name, f"{seconds:.1f}", stopped, failed, differ, files, processes, f"{slowest:.2f}"]


def started(name: str, inputs: Inputs, place: Path) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own."""
    place.mkdir(exist_ok=True)
    words = [*name.split(), *map(str, COMMANDS[name].arguments(inputs, place))]
    environment = os.environ | {"XDG_CACHE_HOME": str(place / "user")}
    return subprocess.Popen(
        [sys.executable, "-m", "standpipe", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def files_in(place: Path) -> Counter[str]:
    """Count the files below a folder by name, without keys that differ from run to run."""
    return Counter(shape(path.relative_to(place)) for path in place.rglob("*"))


def shape(path: Path) -> str:
    """Return a path in which each name that is a random key is replaced."""
    return "/".join(
        "…" if len(part) >= 16 and set(part) <= set("0123456789abcdef") else part for part in path.parts
    )


def processes_of(place: Path) -> list[int]:
    """Return the processes that run with a folder as their cache folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.fsencode(place) in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def contents(place: Path) -> dict[str, object]:
    """Return the SHA-256 of each file below a folder by its path; of an index, what it says."""
    return {
        str(path.relative_to(place)): index_facts(path)
        if path.name.endswith(INDEX)
        else sha256(path.read_bytes()).hexdigest()
        for path in place.rglob("*")
        if path.is_file()
    }


def index_facts(path: Path) -> object:
    """Return what an index says of its records."""
    facts = read_index(os.fsencode(path)).facts
    digests = {name: part.digest for name, part in facts.sections.items() if name != "shards"}
    return facts.rows, facts.manifest, facts.seen, digests


def scanned(place: Path) -> object:
    """Return the findings of a scan: the list of bad files."""
    return (place / "bad.jsonl").read_text()


def cached(place: Path) -> object:
    """Return what a cache has."""
    found = sp.verify_cache(sp.Cache("kills", directory=place))
    return [(each.rows, each.wrong, each.problem) for each in found.sets]


COMMANDS = {
    "pack": Command(
        lambda inputs, place: [inputs.photos, place / "out", "--shard-size", "2MiB"],
        lambda place: contents(place / "out"),
    ),
    "unpack": Command(
        lambda inputs, place: [inputs.shards, place / "out"], lambda place: contents(place / "out")
    ),
    "index": Command(
        lambda inputs, place: [inputs.lines, "--output", place / f"list{INDEX}"],
        lambda place: index_facts(place / f"list{INDEX}"),
    ),
    "scan": Command(lambda inputs, place: [inputs.photos, "--output", place / "bad.jsonl"], scanned),
    "cache fill": Command(
        lambda inputs, place: [inputs.photos, "--cache", "kills", "--directory", place, "--memory", "1GiB"],
        cached,
    ),
}


if __name__ == "__main__":
    main()
