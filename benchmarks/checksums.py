"""Measure the CPU of a training row whose bytes are compared with a checksum, beside the same without.

Both loaders run in turn in this process, each for an epoch of a random crop of 224 and a flip.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from _measure import Figure, parser, progress, ratio, report

import standpipe as sp


def main() -> None:
    args = parser(__doc__, rounds=15).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = (
            sp.ImageFolder(args.path, index=Path(folder, name)) for name in ("plain", "checked")
        )
        sp.build_index(plain)
        sp.build_index(checked, checksums=True)
        found: dict[str, list[float]] = {"without": [], "with": []}
        with loader(plain) as without, loader(checked) as compared:
            for loader_of in (without, compared):
                cpu_us(loader_of)  # fills the page cache
            for number in range(args.rounds):
                progress(f"round {number + 1}")
                found["without"].append(cpu_us(without))
                found["with"].append(cpu_us(compared))
    pairs = ratio(found["with"], found["without"])
    rows = [[f"{name} checksums", Figure(values, ".0f")] for name, values in found.items()]
    report(args, ["reads", "µs of CPU per row"], rows, f"with ÷ without: {pairs}")


def loader(source: sp.ImageFolder) -> sp.Loader:
    pipeline = sp.Pipeline(source, seed=1).shuffle(seed=1)
    pipeline = pipeline.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
    return pipeline.batch(64, last_batch="pad").loader(memory="1GiB", num_workers=2)


def cpu_us(batches: Any) -> float:
    """Return the microseconds of CPU time per row of an epoch."""
    begin = time.process_time()
    rows = sum(len(batch["index"]) for batch in batches)
    return 1e6 * (time.process_time() - begin) / rows


if __name__ == "__main__":
    main()
