"""Measure the CPU time that bad files cost.

The standard task reads a copy of the photos in which 1% of the files are bad: cut short, empty, or no image. Bad
samples are replaced. It takes turns with a clean copy in the same process, and CPU time per delivered image is
compared. Then an epoch is read on four ranks, one after another. The benchmark checks that all ranks have the same
number of steps, and that the log names every bad file exactly once and no other file.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from _faults import spoil
from _measure import Turns, add_turns, compare_in_turns, parser, train_task

import standpipe as sp

RANKS = 4


def main() -> None:
    arguments = parser(__doc__, rounds=20)
    add_turns(arguments)
    arguments.add_argument(
        "--share", type=float, default=0.01, metavar="S", help="fraction of bad files (default: 0.01)"
    )
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clean, spoilt = Path(folder, "clean"), Path(folder, "spoilt")
        for copy in (clean, spoilt):
            shutil.copytree(args.path, copy)
        bad = spoil(spoilt, args.share)
        replacing = train_task(spoilt, args.batch).on_error(sp.Replace(at_most=2 * args.share))
        loaders = {
            "clean": train_task(clean, args.batch).loader(),
            f"{args.share:.1%} bad": replacing.loader(),
        }
        compare_in_turns(args, "files", {name: Turns(loader) for name, loader in loaders.items()})
        print(f"  {diagnosis(replacing, bad, Path(folder, 'bad.jsonl'))}")


def diagnosis(pipeline: sp.Pipeline, bad: set[str], log: Path) -> str:
    """Read an epoch on four ranks; return a sentence about their steps and the log."""
    steps = set()
    for rank in range(RANKS):
        with pipeline.shard(rank, RANKS).loader(error_log=log) as loader:
            steps.add(sum(1 for _ in loader))
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    first = Counter(line["path"] for line in lines if line["attempt"] == 0 and not line.get("padding"))
    exact = set(first) == bad and set(first.values()) == {1}
    return (
        f"{RANKS} ranks: {', '.join(map(str, steps))} steps each; the log names {len(first)} of {len(bad)} bad files, "
        + ("each once, and no other file" if exact else f"WRONG, it should name each bad file once: {first}")
    )


if __name__ == "__main__":
    main()
