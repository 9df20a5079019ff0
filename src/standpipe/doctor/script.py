"""Run a training script for a few steps, and report what is wrong with its DataLoaders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from standpipe.doctor.facts import Host, LoaderFacts, RunFacts
from standpipe.doctor.finding import Finding, by_severity
from standpipe.doctor.judge_memory import judge_memory, per_worker
from standpipe.doctor.judge_samples import judge_own, judge_ranks, judge_samples
from standpipe.doctor.judge_speed import judge_speed
from standpipe.doctor.running import ScriptLimits, host_facts, run_script


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """The findings of a script's run.

    seconds  how long it ran
    """

    script: str
    host: Host
    run: RunFacts
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def loaders(self) -> tuple[LoaderFacts, ...]:
        """The loaders of the first rank."""
        return tuple(loader for loader in self.run.loaders if loader.rank == 0)

    def facts(self) -> dict[str, Any]:
        """Return the facts as plain values, for JSON."""
        error = self.run.error
        return {
            "script": self.script,
            "ended": self.run.how,
            "error": None if error is None else {"type": error[0], "message": error[1]},
            "seconds": round(self.seconds, 3),
            "cpus": self.host.cores,
            "ranks": self.host.ranks,
            "loaders": [_loader_facts(loader) for loader in self.loaders],
            "findings": [finding.facts() for finding in self.findings],
        }


def _loader_facts(loader: LoaderFacts) -> dict[str, Any]:
    begin, end = per_worker(loader)
    return {
        "where": loader.site,
        "dataset": loader.dataset,
        "samples": loader.samples,
        "workers": loader.workers,
        "batch": loader.batch,
        "epochs": loader.epochs,
        "batches": len(loader.steps),
        "wait_share": round(loader.wait_share, 4),
        "wait_s": loader.wait_s,
        "step_s": loader.step_s,
        "startup_s": loader.startup_s,
        "sample_s": loader.sample_s,
        "queued_share": round(loader.queued_share, 4),
        "collate_s": loader.collate_s,
        "transforms_s": {name or "the rest": took for name, took in loader.transforms.items()},
        "batch_bytes": loader.batch_bytes,
        "worker_bytes_at_start": begin,
        "worker_bytes_at_end": end,
    }


def examine_script(
    script: str, arguments: Sequence[str] = (), *, limits: ScriptLimits | None = None, ranks: int = 1
) -> ScriptReport:
    """Run a script for a few steps, without changing it, and say what is wrong with its DataLoaders.

    ranks  processes that run it at once, told their places as torchrun does
    """
    host = host_facts(ranks)
    begin = time.monotonic()
    run = run_script(script, arguments, limits or ScriptLimits(), ranks)
    seconds = time.monotonic() - begin
    host = replace(host, cuda=run.cuda)
    findings = by_severity([*judge_own(run), *judged(host, run.loaders)])
    return ScriptReport(script=script, host=host, run=run, findings=tuple(findings), seconds=seconds)


def judged(host: Host, loaders: Sequence[LoaderFacts]) -> list[Finding]:
    """Return all findings, the worst first. A finding of one rank is reported for the first one only."""
    findings: list[Finding] = []
    for loader in loaders:
        if loader.rank == 0:
            findings += judge_samples(host, loader) + judge_speed(host, loader) + judge_memory(host, loader)

    def place(loader: LoaderFacts) -> str:
        return loader.site

    for _, same in groupby(sorted(loaders, key=place), key=place):
        findings += judge_ranks(list(same))
    return by_severity(findings)
