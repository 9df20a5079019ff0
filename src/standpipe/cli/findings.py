"""Print the findings of ``standpipe doctor``, within 80 columns, and choose the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from standpipe.cli.terminal import harmless, say, shortened, verbatim
from standpipe.doctor import Finding, Severity
from standpipe.doctor.finding import several

COLUMNS = 80
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
        print_wrapped(finding.title, "  ")
        for line in finding.evidence:
            print_wrapped(f"- {line}", "    ", 6)
        print_wrapped(f"your code  {finding.fix}", "  ", 13)
        print_wrapped(f"standpipe  {finding.standpipe}", "  ", 13)


def print_wrapped(text: str, indent: str, later: int | None = None) -> None:
    """Print text within 80 columns; words longer than that stay whole.

    later  indent of all lines but the first, if it isn't the same
    """
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
