"""``standpipe doctor SCRIPT.py``: run a training script for a few steps, and examine its DataLoaders."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

import standpipe as sp
from standpipe.cli.doctor import UNABLE
from standpipe.cli.findings import answer, print_findings
from standpipe.cli.terminal import COLUMNS, print_json, printable, say, say_wrapped, shortened, verbatim
from standpipe.doctor import ScriptLimits, ScriptReport, examine_script
from standpipe.doctor.facts import RunFacts
from standpipe.units import several, show_bytes, show_seconds

SHOWN = 4  # transforms of a loader
QUEUED = 0.2  # share of the time that is worth telling,
LONG_SAMPLE_S = 1e-4  # of a sample that takes so long: for others it is the time between two of them


def run(args: argparse.Namespace) -> int:
    """Run the script, and print the findings."""
    _check_script(args.target)
    limits = ScriptLimits() if args.seconds is None else ScriptLimits(seconds=args.seconds)
    limits = replace(limits, steps=args.steps)
    with _ended_by_sigterm():
        report = examine_script(args.target, args.arguments, limits=limits, ranks=args.ranks)
    if args.json:
        print_json(report.facts())
    else:
        _print(report)
    if not report.loaders and not report.findings:
        return UNABLE
    return max(answer(report.findings), _has_failed(report.run))


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception inside the ``with`` block, so that the script ends too and cleanup runs."""

    def end(*_: object) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_script(path: str) -> None:
    """Raise ``StandpipeError`` with a suggestion if there is no script at ``path``."""
    if os.path.isfile(path):  # noqa: PTH113 (as text, whatever its bytes)
        return
    folder, name = os.path.split(path)
    names = [each for each in _names(folder or ".") if each.endswith(".py")]
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"; did you mean {printable(os.path.join(folder, near[0]))}?" if near else ""  # noqa: PTH118
    raise sp.StandpipeError(f"there is no script {printable(path)}{advice}")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (as text, whatever their bytes)
    except OSError:
        return []


def _print(report: ScriptReport) -> None:
    """Print the report for people, within 80 columns."""
    loaders = report.loaders
    ranks = f", {report.host.ranks} ranks" if report.host.ranks > 1 else ""
    script = shortened(printable(report.script), COLUMNS // 2)
    say(
        f"[bold]{verbatim(script)}[/bold]: {several(len(loaders), 'DataLoader')}, "
        f"{report.seconds:.1f} s, {several(report.host.cores, 'CPU')}{ranks}"
    )
    for line in _ended(report):
        say_wrapped(line, 2)
    for number in range(len(loaders)):
        _print_loader(report, number)
    if loaders or report.findings:
        print_findings(report.findings)


def _ended(report: ScriptReport) -> list[str]:
    """Describe how the run ended, if it failed."""
    run = report.run
    lines = []
    if run.how == "raised" and run.error is not None and _has_failed(run):
        said = next((line for line in run.error[1].splitlines() if line.strip()), "")
        lines.append(f"it ended with {run.error[0]}: {said.strip()}")
    elif run.how == "exited" and run.code:
        lines.append(f"it exited with {run.code}; its own arguments go behind --")
    elif run.how == "killed":
        lines.append(
            f"it was killed by signal {-run.code}" if run.code and run.code < 0 else "it ended at once"
        )
    elif run.how == "time":
        lines.append("the time was over before it was done; what was seen until then:")
    if run.withheld:
        names = list(dict.fromkeys(run.withheld))
        more = ", …" if len(names) > 3 else ""
        lines.append(f"not changed: {', '.join(names[:3])}{more} (scratch files stood for them)")
    if run.own:
        lines.append("standpipe's own loaders aren't examined: see their loader.stats() and explain()")
    elif not report.loaders:
        lines.append(
            "it iterated over no torch.utils.data.DataLoader, or only in processes that it started by itself: so there "
            "is nothing to say"
        )
    return lines


def _has_failed(run: RunFacts) -> bool:
    """Return True if the script failed, other than by an epoch that was cut short."""
    if run.how == "raised":
        return not (run.cut and run.error is not None and run.error[0] == "StopIteration")
    return run.how == "killed" or (run.how == "exited" and bool(run.code))


def _print_loader(report: ScriptReport, number: int) -> None:
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
    say(f"  first batch  after {show_seconds(facts['startup_s'])}")
    if report.loaders[number].steady:
        say(
            f"  a step       {show_seconds(facts['step_s'])}, then waits {show_seconds(facts['wait_s'])} "
            f"([bold]{facts['wait_share']:.0%}[/bold] of the time)"
        )
    if facts["sample_s"]:
        parts = [f"{name} {show_seconds(took)}" for name, took in facts["transforms_s"].items()]
        parts = parts[:SHOWN] + parts[-1:] if len(parts) > SHOWN else parts
        named = f": {', '.join(parts)}" if parts else ""
        queued = facts["queued_share"]
        is_worth_telling = queued > QUEUED and facts["sample_s"] > LONG_SAMPLE_S
        named += f"; {queued:.0%} of it without a CPU" if is_worth_telling else ""
        say_wrapped(f"a sample     {show_seconds(facts['sample_s'])}{named}", 2, 15)
        say(
            f"  a batch      {show_seconds(facts['collate_s'])} in collate, {show_bytes(facts['batch_bytes'])}"
        )
    if facts["worker_bytes_at_end"]:
        begin, end = facts["worker_bytes_at_start"], facts["worker_bytes_at_end"]
        say(f"  a worker     {show_bytes(begin)} of memory at its start, {show_bytes(end)} at the end")


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"
