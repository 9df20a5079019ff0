"""Print the findings of ``standpipe doctor``, within 80 columns, and choose the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from standpipe.cli.terminal import COLUMNS, harmless, say, say_wrapped, shortened, verbatim
from standpipe.doctor import Finding, Severity
from standpipe.units import several

COLOURS = {Severity.PROBLEM: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def answer(findings: Sequence[Finding]) -> int:
    """Return the exit code: 1 if a finding needs a change, 0 if there are only notes or none."""
    return int(any(finding.severity is not Severity.NOTE for finding in findings))


def print_findings(findings: Sequence[Finding]) -> None:
    """Print each finding with its evidence and what the user can do."""
    say("")
    say(f"[bold]{several(len(findings), 'finding') if findings else 'no findings'}[/bold]")
    for finding in findings:
        kind = finding.severity
        say("")
        where = verbatim(shortened(harmless(finding.where), COLUMNS // 2))
        say(f"[{COLOURS[kind]}]{kind.value}[/]  [bold]{finding.code}[/bold]  {where}")
        say_wrapped(finding.title, 2)
        for line in finding.evidence:
            say_wrapped(f"- {line}", 4, 6)
        say_wrapped(f"your code  {finding.fix}", 2, 13)
        say_wrapped(f"standpipe  {finding.standpipe}", 2, 13)
