"""Does standpipe refuse the same damaged files as Pillow, and deliver the others with its pixels?

20 small files of several kinds of JPEG, PNG, WebP and GIF are made of the photos. Each is changed in many ways: bits
flipped, bytes replaced, markers put in, ends cut off, parts left out, repeated and exchanged. A loader delivers every
changed file as a whole frame and in random crops; Pillow opens it, converts it to RGB, crops and resizes it. The same
comparison, of hundreds of files, is a test: ``tests/transform/test_pillow_parity.py``.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from itertools import islice
from pathlib import Path

from _measure import parser, report
from PIL import Image, features

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import parity
from standpipe.transform import decoder_version

AT_ONCE = 500
SHOWN = 10  # differences of each kind


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument(
        "--files", type=int, default=20_000, metavar="N", help="changed files (default: 20000)"
    )
    arguments.add_argument("--seed", type=int, default=0, metavar="N", help="of the changes (default: 0)")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # Pillow's, about damaged metadata
    photos = sorted(path for path in Path(args.path).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))

    def photo(number: int) -> Image.Image:
        with Image.open(photos[number * 17 % len(photos)]) as image:
            return image.convert("RGB").resize(parity.SIZE_PX[::-1])

    found = parity.Parity()
    begin = time.monotonic()
    changed = parity.damaged(parity.small_photos(photo), args.files * args.rounds, args.seed)
    while files := list(islice(changed, AT_ONCE)):
        with tempfile.TemporaryDirectory() as folder:
            found.add(files, Path(folder))
    kinds = {
        "refused by standpipe alone": found.only_we_refuse,
        "refused by Pillow alone": found.only_pillow_refuses,
        "with several verdicts": found.several_verdicts,
        "with other pixels, rows": found.other_pixels,
    }
    facts = [("compared", found.files), ("refused by both", found.refused), ("above a cap", found.over_caps)]
    report(
        args,
        ("files", "number"),
        [*facts, *((kind, len(lines)) for kind, lines in kinds.items())],
        f"{time.monotonic() - begin:.0f} s; each whole and in {parity.CROPS} crops; libjpeg-turbo {decoder_version()}, "
        f"Pillow's {features.version_feature('libjpeg_turbo')}",
        *(line for lines in kinds.values() for line in lines[:SHOWN]),
        packages=("pillow",),
    )


if __name__ == "__main__":
    main()
