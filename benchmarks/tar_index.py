"""Measure how fast the members of a tar shard are listed: by TarShards' index, and by Python's tarfile.

A shard of --members members, half of them photos and half labels, is made in a scratch folder, so that both read
it from memory. tarfile lists the members alone; standpipe also reads the labels and writes the index.
"""

from __future__ import annotations

import tarfile
import tempfile
import time
from pathlib import Path

from _measure import Figure, parser, ratio, report
from beside_torch import listed

import standpipe as sp

PHOTOS = 100


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("--members", type=int, default=50_000, metavar="N", help="default: 50,000")
    made.add_argument("--scratch", default=tempfile.gettempdir(), metavar="FOLDER", help="for the shard")
    made.add_argument(
        "--bytes", type=int, default=10_000, metavar="N", help="of each photo that are kept (10,000)"
    )
    args = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="standpipe-tar-", dir=args.scratch) as folder:
        path = Path(folder, "shard.tar")
        write(path, args.path, args.members, args.bytes)
        ours, theirs = [], []
        for number in range(args.rounds):
            begin = time.perf_counter()
            with tarfile.open(path, "r:") as tar:
                count = sum(1 for _ in tar)
            theirs.append(count / (time.perf_counter() - begin) / 1e3)
            begin = time.perf_counter()
            built = sp.build_index(sp.TarShards(path, index=Path(folder, str(number))))
            ours.append(count / (time.perf_counter() - begin) / 1e3)
    rows = [
        ["standpipe", Figure(ours), ratio(ours, theirs)],
        ["tarfile", Figure(theirs), "1"],
    ]
    note = f"index: {built.size_bytes / count:.1f} bytes a member"
    report(args, ["", "members/s, thousand", "ratio"], rows, note)


def write(path: Path, photos: str, members: int, most_bytes: int) -> None:
    """Write a shard of photos, each cut to ``most_bytes``, and of their labels."""
    files = [(Path(file).read_bytes()[:most_bytes], label) for file, label in listed(photos)[:PHOTOS]]
    if not files:
        raise SystemExit(f"{photos} holds no class folders of JPEGs; standpipe synth makes some")
    with path.open("wb") as out:
        for number in range(members // 2):
            photo, label = files[number % len(files)]
            for kind, data in (("jpg", photo), ("cls", b"%d" % label)):
                about = tarfile.TarInfo(f"train/{number:08}.{kind}")
                about.size = len(data)
                out.write(about.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512))
        out.write(bytes(1024))


if __name__ == "__main__":
    main()
