"""``standpipe synth``: make a folder of photo-like JPEGs, for trials and benchmarks without real photos.

Sizes, JPEG settings, bytes and decode time per pixel are distributed as in ImageNet. Image i is a function of
(seed, i) alone, so a folder can be completed after an interruption, and enlarged.
"""

from __future__ import annotations

import argparse
import time

from standpipe.cli.terminal import print_json, printable, progress, say, verbatim

HELP = "make a folder of photo-like JPEGs, to try the commands with"
DESCRIPTION = (
    "Make a folder of photo-like JPEGs in class folders, distributed as ImageNet's files in "
    "size, JPEG settings and bytes per pixel. An interrupted run is completed by the same command."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument("out", metavar="OUT", help="a new folder, or one made by this command before")
    parser.add_argument("--images", type=int, required=True, metavar="N", help="images in all")
    parser.add_argument("--classes", type=int, default=10, metavar="N", help="class folders (default: 10)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another seed, other images (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from standpipe.cli.synth.folder import synthesize

    started = time.monotonic()
    with progress("making photos", args.images) as advance:
        made = synthesize(args.out, args.images, args.classes, args.seed, lambda done, _: advance(done))
    seconds = time.monotonic() - started
    if args.json:
        facts = {"path": args.out, "images": made.images, "classes": args.classes, "seed": args.seed}
        written = {"written": made.written, "written_bytes": made.written_bytes, "seconds": round(seconds, 3)}
        print_json(facts | written)
        return 0
    where = verbatim(printable(args.out))
    if made.written == 0:
        say(f"[bold]{where}[/bold] was complete: {made.images} images")
    else:
        rest = made.images - made.written
        before = f", {rest} were there" if rest else ""
        size = f"{made.written_bytes / 1e6:.1f} MB, {made.written_bytes / made.written / 1e3:.0f} kB each"
        say(f"[bold]{where}[/bold]: {made.written} images written{before}; {size}, {seconds:.1f} s")
    return 0
