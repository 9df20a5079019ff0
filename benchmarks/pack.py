"""Measure packing beside cp -r, checking beside a checksum of memory, and what kill -9 and odd names do.

The photos are copied to a folder in memory, several times. Each round copies them with ``cp -r``, packs them with two
threads, and checks the shards, one after the other. The checksum of memory is that of one thread over an array as
large as the shards, by the same code. Then packing is killed at random moments; each time the same call continues, and
the SHA-256 of all files is compared with that of shards that nobody killed. At last, files with odd names are packed
and restored.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from _measure import Figure, parser, ratio, report

import standpipe as sp
from standpipe import _native

WORKERS = 2
KILLED_SHARD = "2MiB"
MEMORY_FOLDER = Path("/dev/shm")
PIECE_BYTES = 64 << 20
BEGIN_S = 60  # a new process has begun to pack by then


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument(
        "--copies",
        type=int,
        default=10,
        metavar="N",
        help="copies of the photos that are packed (default: 10)",
    )
    arguments.add_argument("--kills", type=int, default=100, metavar="N", help="(default: 100)")
    arguments.add_argument(
        "--names", type=int, default=10_000, metavar="N", help="odd names (default: 10000)"
    )
    arguments.add_argument("--child", metavar="OUT", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child:
        sp.pack_shards(sp.ImageFolder(args.path), args.child, shard_size=KILLED_SHARD, num_workers=WORKERS)
        return
    with in_memory() as folder:
        rows = [*speeds(args, folder), kills(args, folder), names(args, folder)]
    report(args, ["", "", "ratio"], rows)


@contextmanager
def in_memory() -> Iterator[Path]:
    """Yield a folder in memory that is removed afterwards; a temporary one where there is no such place."""
    place = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-", dir=place) as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        yield Path(folder)


def speeds(args: argparse.Namespace, folder: Path) -> Iterator[list[object]]:
    """Measure packing, checking and restoring."""
    source, shards, copy = folder / "photos", folder / "shards", folder / "copy"
    for number in range(args.copies):
        shutil.copytree(args.path, source / f"{number}", copy_function=shutil.copyfile)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    found: dict[str, list[float]] = {"cp": [], "pack": [], "memory": [], "verify": [], "unpack": []}
    data, free = np.ones(size, np.uint8), list[float]()
    for _ in range(args.rounds):
        for path in (shards, copy):
            shutil.rmtree(path, ignore_errors=True)
        found["cp"].append(rate(size, lambda: subprocess.run(["cp", "-r", source, copy], check=True)))
        shutil.rmtree(copy)
        found["pack"].append(
            rate(size, lambda: sp.pack_shards(sp.ImageFolder(source), shards, num_workers=WORKERS))
        )
        cpu = [time.process_time()]
        found["memory"].append(rate(size, lambda: _native.crc32c(data)))
        cpu.append(time.process_time())
        found["verify"].append(rate(size, lambda: sp.verify_shards(shards, num_workers=WORKERS)))
        cpu.append(time.process_time())
        free.append(WORKERS * (cpu[1] - cpu[0]) / (cpu[2] - cpu[1]))
        found["unpack"].append(rate(size, lambda: sp.unpack_shards(shards, copy, num_workers=WORKERS)))
    for path in (source, shards, copy):
        shutil.rmtree(path)
    yield ["cp -r, MB/s", Figure(found["cp"]), ""]
    yield [f"pack, {WORKERS} threads, MB/s", Figure(found["pack"]), ratio(found["pack"], found["cp"])]
    yield [f"unpack, {WORKERS} threads, MB/s", Figure(found["unpack"]), ratio(found["unpack"], found["cp"])]
    yield ["CRC-32C of memory, 1 thread, MB/s", Figure(found["memory"]), ""]
    yield [
        f"verify, {WORKERS} threads, MB/s",
        Figure(found["verify"]),
        ratio(found["verify"], found["memory"]),
    ]
    yield ["verify, by CPU time, as if all CPUs were free", "", Figure(free, ".3f")]


def rate(size: int, work: object) -> float:
    """Return the MB/s of a function that handles ``size`` bytes."""
    assert callable(work)
    begin = time.perf_counter()
    work()
    return size / (time.perf_counter() - begin) / 1e6


def kills(args: argparse.Namespace, folder: Path) -> list[object]:
    """Kill packing at random moments, and continue; count folders that differ."""
    whole, out, draw = folder / "whole", folder / "out", random.Random(0)
    command = [sys.executable, __file__, args.path, "--child"]
    begin = time.perf_counter()
    sp.pack_shards(sp.ImageFolder(args.path), whole, shard_size=KILLED_SHARD, num_workers=WORKERS)
    seconds = time.perf_counter() - begin
    expected, shards = digest(whole), len(list(whole.glob("*.tar")))
    differ = most_parts = killed = 0
    while killed < args.kills:
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen([*command, str(out)])
        wait_for(out / "pack.json", process)
        time.sleep(draw.uniform(0, seconds))
        process.kill()
        if process.wait() == 0:
            continue  # it was faster
        killed += 1
        most_parts = max(most_parts, len(list(out.glob("*.tar.part"))))
        missing = shards - len(list(out.glob("*.tar")))
        again = sp.pack_shards(sp.ImageFolder(args.path), out, shard_size=KILLED_SHARD, num_workers=WORKERS)
        differ += digest(out) != expected or again.written != missing
    return [
        f"{killed} kills while {shards} shards are packed",
        f"{differ} differ",
        f"{most_parts} shard again at most",
    ]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has made a file."""
    until = time.monotonic() + BEGIN_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"packing ended with {process.poll()} before it began")
        time.sleep(0.001)


def digest(folder: Path) -> str:
    """Return the SHA-256 of all shards and checksums of a folder."""
    whole = sha256()
    for path in sorted(each for each in folder.iterdir() if each.suffix in (".tar", ".crc32c", ".part")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()


def names(args: argparse.Namespace, folder: Path) -> list[object]:
    """Pack and restore files with odd names; count those that differ."""
    draw = random.Random(1)
    source = folder / "odd"
    made: dict[bytes, bytes] = {}
    while len(made) < args.names:
        letters = bytes(each for each in range(1, 256) if each != ord("/"))
        kind = draw.randrange(4)
        name = [
            bytes(draw.choices(letters, k=draw.randint(1, 60))),
            b" ".join(bytes(draw.choices(b"abc .", k=3)) for _ in range(8)),
            b"%d." % len(made) + b"long" * draw.randint(30, 60),
            "".join(draw.choices("äß猫é\u0301🙂", k=20)).encode(),
        ][kind][:250] + draw.choice([b".jpg", b".JPEG", b".png", b".tiff"])
        path = b"class %d/" % draw.randrange(20) + name
        content = draw.randbytes(draw.randint(0, 3000))
        file = source / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        made[path] = sha256(content).digest()
    sp.pack_shards(sp.ImageFolder(source), folder / "packed", shard_size="1MiB")
    sp.unpack_shards(folder / "packed", folder / "restored")
    restored = {
        os.fsencode(path.relative_to(folder / "restored")): sha256(path.read_bytes()).digest()
        for path in (folder / "restored").rglob("*")
        if path.is_file()
    }
    wrong = sum(restored.get(path) != content for path, content in made.items())
    return [f"{len(made):,} files with odd names", f"{wrong + (len(restored) != len(made))} differ", ""]


if __name__ == "__main__":
    main()
