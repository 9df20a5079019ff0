"""``penstock doctor``: what is wrong with the DataLoaders of somebody's training script, and what to do about it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.terminal import Subparsers
    from penstock.observe.doctor import Finding, ScriptReport

COLUMNS = 80
UNABLE = 2  # the exit code where nothing could be examined: 1 says that there are findings
COLOURS = {"problem": "red", "warning": "yellow", "note": "cyan"}
SHOWN = 4  # transforms of a loader


def add_parser(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is wrong with a training script's DataLoaders",
        description="Run a PyTorch training script for a few steps, as it is, and say what its DataLoaders lose: "
        "time, memory, or samples, by what it was measured, and what to do. An epoch ends after --steps batches, "
        "the run when a loader begins its third epoch. What the script prints goes to stderr, torch.save writes "
        "nothing, all else that it does it does. Exits with 1 if there are findings, with 2 if it saw no DataLoader.",
    )
    parser.add_argument("script", metavar="SCRIPT.py", help="the training script")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="arguments of the script, behind --")
    parser.add_argument(
        "--steps", type=_at_least_one, default=24, metavar="N", help="batches of an epoch (default: 24)"
    )
    parser.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="of the run, about (default: 120)"
    )
    parser.add_argument(
        "--ranks",
        type=_at_least_one,
        default=1,
        metavar="N",
        help="run it N times at once, as torchrun does, and compare their samples (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, failed=UNABLE)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from penstock.cli.terminal import print_json
    from penstock.observe.doctor import Limits, examine_script

    _check_script(args.script)
    limits = Limits(steps=args.steps, seconds=args.seconds)
    report = examine_script(args.script, args.arguments, limits=limits, ranks=args.ranks)
    if args.json:
        print_json(report.facts())
    else:
        _print(report)
    if not report.loaders:
        return UNABLE
    return 1 if report.findings else 0


def _at_least_one(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number, 1 or more")
    return number


def _check_script(path: str) -> None:
    """Raise ``PenstockError`` where there is no such script, with what may have been meant."""
    import difflib

    import penstock as ps
    from penstock.cli.terminal import printable

    if os.path.isfile(path):  # noqa: PTH113 (as text, whatever its bytes)
        return
    folder, name = os.path.split(path)
    names = [each for each in _names(folder or ".") if each.endswith(".py")]
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"; did you mean {printable(os.path.join(folder, near[0]))}?" if near else ""  # noqa: PTH118
    raise ps.PenstockError(f"there is no script {printable(path)}{advice}")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (as text, whatever their bytes)
    except OSError:
        return []


def _print(report: ScriptReport) -> None:
    """For a person, within 80 columns."""
    from penstock.cli.terminal import printable, say, shortened, verbatim
    from penstock.observe.doctor.finding import several

    loaders = report.loaders
    ranks = f", {report.host.ranks} ranks" if report.host.ranks > 1 else ""
    script = shortened(printable(report.script), COLUMNS // 2)
    say(
        f"[bold]{verbatim(script)}[/bold]: {several(len(loaders), 'DataLoader')}, "
        f"{report.seconds:.1f} s, {several(report.host.cores, 'CPU')}{ranks}"
    )
    for line in _ended(report):
        _wrapped(line, "  ")
    for number in range(len(loaders)):
        _print_loader(report, number)
    say("")
    if not loaders:
        return
    many = len(report.findings)
    say(f"[bold]{several(many, 'finding') if many else 'no findings'}[/bold]")
    for finding in report.findings:
        _print_finding(finding)


def _ended(report: ScriptReport) -> list[str]:
    """How the run ended, where that isn't what was hoped for."""
    run = report.run
    lines = []
    if run.how == "raised" and run.error is not None and not (run.cut and run.error[0] == "StopIteration"):
        lines.append(f"it ended with {run.error[0]}: {run.error[1].splitlines()[0] if run.error[1] else ''}")
    elif run.how == "exited" and run.code:
        lines.append(f"it exited with {run.code}; its own arguments go behind --")
    elif run.how == "killed":
        lines.append(
            f"it was killed by signal {-run.code}" if run.code and run.code < 0 else "it ended at once"
        )
    elif run.how == "time":
        lines.append("the time was over before it was done; what was seen until then:")
    if run.withheld:
        lines.append(f"not written: {', '.join(run.withheld[:3])} (torch.save)")
    if not report.loaders:
        lines.append("it iterated over no torch.utils.data.DataLoader, so there is nothing to say")
    return lines


def _print_loader(report: ScriptReport, number: int) -> None:
    from penstock.cli.terminal import say, verbatim
    from penstock.observe.doctor.finding import seconds, several, size

    facts = report.facts()["loaders"][number]
    samples = "" if facts["samples"] is None else f" of {several(facts['samples'], 'sample')}"
    say(f"\n[bold]{verbatim(facts['where'])}[/bold]  {verbatim(facts['dataset'])}{samples}")
    batch = "no batching" if facts["batch"] is None else f"batch {facts['batch']}"
    say(
        f"  {batch}, {several(facts['workers'], 'worker')}; "
        f"seen: {_batches(facts['batches'])} in {several(facts['epochs'], 'epoch')}"
    )
    if not facts["batches"]:
        return
    say(f"  first batch  after {seconds(facts['startup_s'])}")
    if report.loaders[number].steady:
        say(
            f"  a step       {seconds(facts['step_s'])}, then waits {seconds(facts['wait_s'])} "
            f"([bold]{facts['wait_share']:.0%}[/bold] of the time)"
        )
    if facts["sample_s"]:
        parts = [f"{name} {seconds(took)}" for name, took in facts["transforms_s"].items()]
        parts = parts[:SHOWN] + parts[-1:] if len(parts) > SHOWN else parts
        named = f": {', '.join(parts)}" if parts else ""
        _wrapped(f"a sample     {seconds(facts['sample_s'])}{named}", "  ", 15)
        say(f"  a batch      {seconds(facts['collate_s'])} in collate, {size(facts['batch_bytes'])}")
    if facts["worker_bytes_at_end"]:
        begin, end = facts["worker_bytes_at_start"], facts["worker_bytes_at_end"]
        say(f"  a worker     {size(begin)} of memory at its start, {size(end)} at the end")


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"


def _print_finding(finding: Finding) -> None:
    from penstock.cli.terminal import say, verbatim

    kind = finding.severity.value
    say("")
    say(f"[{COLOURS[kind]}]{kind}[/]  [bold]{finding.code}[/bold]  {verbatim(finding.where)}")
    _wrapped(finding.title, "  ")
    for line in finding.evidence:
        _wrapped(f"- {line}", "    ", 6)
    _wrapped(f"your code  {finding.fix}", "  ", 13)
    _wrapped(f"penstock   {finding.penstock}", "  ", 13)


def _wrapped(text: str, indent: str, later: int | None = None) -> None:
    """Print text within 80 columns; words longer than that stay whole."""
    import textwrap

    from penstock.cli.terminal import harmless, say, verbatim

    lines = textwrap.wrap(
        harmless(text),
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=" " * (len(indent) if later is None else later),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        say(verbatim(line))
