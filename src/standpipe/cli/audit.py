"""``standpipe audit``: check, without reading an image, that each rank gets its own rows and no row is lost."""

from __future__ import annotations

import argparse

from standpipe.cli.terminal import print_json, say, verbatim

HELP = "check that each rank of a run gets its own records, and all come"
DESCRIPTION = (
    "Count every record that every step of every rank names, without reading an image, and "
    "say whether each comes exactly once. Exits with 1 if not."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    from standpipe.cli.task import add_source_arguments

    add_source_arguments(parser)
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="number of data ranks (default: 1)")
    parser.add_argument("--epochs", type=int, default=2, metavar="N", help="epochs to count (default: 2)")
    parser.add_argument(
        "--batch", type=int, default=256, metavar="N", help="rows per rank and step (default: 256)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order (default: 0)")
    parser.add_argument(
        "--last-batch",
        choices=("drop", "pad"),
        default="drop",
        help="treatment of rows that fill no step of all ranks (default: drop)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp
    from standpipe.cli.task import source_of

    pipeline = sp.Pipeline(source_of(args)).shuffle(seed=args.seed).map(sp.RandomResizedCrop(224))
    found = pipeline.batch(args.batch, last_batch=args.last_batch).audit(ranks=args.ranks, epochs=args.epochs)
    if args.json:
        print_json(found.facts())
    else:
        say(verbatim(str(found)))
    return 0 if found.ok else 1
