"""``standpipe doctor``: find what is wrong with a training script, a stuck process or a folder of images."""

from __future__ import annotations

import argparse

from standpipe.cli.task import WHERE

UNABLE = 2  # the exit code where nothing could be examined: 1 says that something was found

HELP = "find what is wrong with a script's DataLoaders, or with images"
DESCRIPTION = (
    "Report what is wrong, the measurement that shows it, and what to do. The doctor runs a script unchanged for a "
    "few steps: each epoch ends after --steps batches, and the run ends when a loader begins its third epoch (later "
    "where epochs are short). What the script prints goes to stderr. torch.save writes temporary files, and older "
    "files stay where the script would replace or remove them. Everything else in the script happens, so a script "
    "that sends mail sends it. For data, the doctor reads and decodes images for a few seconds. It looks "
    "at a running process without stopping or changing it. The exit code is 1 for problems or warnings, and 2 if the "
    "doctor can't look."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="SCRIPT.py|PATH",
        help=f"a training script, whose own arguments come behind --; or {WHERE}",
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
        help="seconds to look (default: 120 for a script, from its first epoch on, which may take 15 minutes to come; "
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
