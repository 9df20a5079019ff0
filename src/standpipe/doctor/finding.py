"""A finding of the doctor, with its measurements and advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Severity(Enum):
    """The severity of a finding: wrong samples or an error; lost time or memory; worth knowing."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem that the doctor found.

    code       stable name of the kind of problem, for programs
    title      the problem in a few words
    where      the line that made the loader, a process, or a folder
    evidence   observations, one sentence each
    numbers    the observations as values, for programs
    fix        advice for the user's own code
    standpipe  how standpipe avoids the problem
    """

    code: str
    severity: Severity
    title: str
    where: str
    evidence: tuple[str, ...]
    numbers: dict[str, Any] = field(default_factory=dict)
    fix: str
    standpipe: str

    def facts(self) -> dict[str, Any]:
        """Return the facts as plain values, for JSON."""
        return {**asdict(self), "severity": self.severity.value, "evidence": list(self.evidence)}


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Return the findings, the most severe first. Findings of one severity keep their order."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
