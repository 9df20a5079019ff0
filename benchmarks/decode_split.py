"""Measure which part of a training row takes how long, with both entropy decoders.

A row is a random crop of a photo, resized to 224 × 224 float32. It is made in one thread, file by file, by
standpipe's entropy decoder and by libjpeg-turbo's in turn. The pixels are the same. Figures are CPU time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from _measure import parser, report

ROOT = Path(__file__).parents[1]
BINARY = "build/native/fast/decode_split"
PARTS = ("Huffman codes", "IDCT, upsampling, colour", "resize, mirror, write")


def parts(codes: float, crop: float, row: float) -> list[float]:
    return [codes, crop - codes, row - crop, row]


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--files", type=int, default=250, metavar="N", help="photos (default: 250)")
    args = arguments.parse_args()
    every = sorted(path for path in Path(args.path).rglob("*") if path.is_file())
    photos = every[:: max(len(every) // args.files, 1)]
    subprocess.run(["make", "-s", "-f", "native/Makefile", "-j2", "split"], cwd=ROOT, check=True)
    done = subprocess.run(
        [ROOT / BINARY, str(args.rounds), *photos], capture_output=True, text=True, check=True
    )
    by_decoder = {
        name: parts(*map(float, figures))
        for name, *figures in (line.split() for line in done.stdout.splitlines())
    }
    ours, theirs = by_decoder["standpipe"], by_decoder["libjpeg-turbo"]
    report(
        args,
        ["part", "libjpeg-turbo, µs", "standpipe, µs", "ratio"],
        [
            [name, round(before), round(after), f"{before / after:.2f}"]
            for name, before, after in zip((*PARTS, "the whole row"), theirs, ours, strict=True)
        ],
        f"{len(photos)} photos. Codes are those of the crop decoded at 1/8 of its size, which makes hardly a pixel.",
    )


if __name__ == "__main__":
    main()
