"""``standpipe doctor``: find what is wrong with a training script, a stuck process or a folder of images."""

from __future__ import annotations

import argparse

UNABLE = 2  # the exit code where nothing could be examined: 1 says that something was found

HELP = "say what is wrong with a PyTorch script's DataLoaders, or with a folder of images"
DESCRIPTION = (
    "Say what is wrong, by what that was measured, and what to do. A script is run for a few steps, as "
    "it is: an epoch ends after --steps batches, the run when a loader begins its third epoch "
    "(later where epochs are short); what it prints goes to stderr; torch.save writes scratch files, and older "
    "files that it would replace or remove stay; all else that it does it does. Of a folder or list, files are "
    "read and decoded for a few seconds. A process is looked at, not stopped or changed. Exits with 1 if there are "
    "problems or warnings, and with 2 if it can't look."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="SCRIPT.py|PATH",
        help="a training script, whose own arguments come behind --; or a folder of class folders, a list of "
        "files, or tar shards",
    )
    parser.add_argument(
        "--pid", type=_at_least_one, metavar="PID", help="look at a running process that seems stuck"
    )
    parser.add_argument(
        "--steps", type=_at_least_one, default=24, metavar="N", help="batches of an epoch (default: 24)"
    )
    parser.add_argument(
        "--seconds",
        type=_above_zero,
        metavar="S",
        help="how long, about (default: 120 for a script, from its first epoch on, which may take 15 minutes to come; "
        "9 for files, 2 for a process)",
    )
    parser.add_argument(
        "--ranks",
        type=_at_least_one,
        default=1,
        metavar="N",
        help="run a script N times at once, as torchrun does, and compare their samples (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(failed=UNABLE)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if args.pid is not None:
        from standpipe.cli import doctor_process

        return doctor_process.run(args)
    if args.target is None:
        import standpipe as sp

        raise sp.PlanError("name what to examine: a script, a folder, or --pid with the number of a process")
    if args.target.endswith(".py"):
        from standpipe.cli import doctor_script

        return doctor_script.run(args)
    from standpipe.cli import doctor_data

    return doctor_data.run(args)


def _at_least_one(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 on, got {text!r}")
    return number


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return number
