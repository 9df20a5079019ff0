"""``standpipe explain``: print the plan of a standard task, without running it."""

from __future__ import annotations

import argparse

from standpipe.cli.task import add_task_arguments, standard_task
from standpipe.cli.terminal import print_json, say, verbatim

HELP = "print the steps and the memory of a run, without running it"
DESCRIPTION = (
    "Print what a standard task would do with your images: source, order, kernels, slots, "
    "workers, and every byte of the memory forecast. Decodes no image."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_task_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    plan = standard_task(args).plan(memory=args.memory, num_workers=args.workers)
    if args.json:
        print_json(plan.facts())
    else:
        say(verbatim(plan.explain()))
    return 0
