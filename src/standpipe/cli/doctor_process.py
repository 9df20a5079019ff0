"""``standpipe doctor --pid PID``: examine a running process that seems stuck."""

from __future__ import annotations

import argparse
from collections import Counter

import standpipe as sp
from standpipe.cli.findings import answer, print_findings
from standpipe.cli.terminal import COLUMNS, print_json, printable, say, say_wrapped, shortened, verbatim
from standpipe.doctor import ProcessReport, examine_process
from standpipe.doctor.processes import Process
from standpipe.doctor.scene import Scene, waits_for
from standpipe.units import several, show_bytes

SECONDS = 2.0
FRAMES = 6  # of a stack


def run(args: argparse.Namespace) -> int:
    """Examine the process, and print the findings."""
    if args.target is not None:
        raise sp.PlanError(
            f"doctor examines --pid {args.pid} or {printable(args.target)}, not both. Leave one out"
        )
    try:
        report = examine_process(args.pid, SECONDS if args.seconds is None else args.seconds)
    except (ProcessLookupError, OverflowError):
        raise sp.StandpipeError(f"there is no process {args.pid}") from None
    if args.json:
        print_json(report.facts())
    else:
        _print(report)
    return answer(report.findings)


def _print(report: ProcessReport) -> None:
    """Print the report for people, within 80 columns."""
    scene = report.scene
    command = shortened(printable(scene.script.command), COLUMNS // 2)
    say(f"[bold]process {scene.script.number}[/bold]: {verbatim(command)}, for {scene.seconds:.1f} s")
    for process in scene.processes:
        _print_process(scene, process)
    for line in scene.loaders:
        say("")
        say_wrapped(line, 0, 2)
    if scene.no_stacks:
        say_wrapped(scene.no_stacks, 2)
    print_findings(report.findings)


def _print_process(scene: Scene, process: Process) -> None:
    worker = scene.is_worker(process)
    role = "script" if process is scene.script else "worker" if worker else "helper"
    main = process.main
    say(f"\n[bold]{role} {process.number}[/bold]  {verbatim(waits_for(process, main))}")
    if process.dead:
        return
    others = Counter(f"{waits_for(process, thread)}" for thread in process.threads[1:])
    listed = ", ".join(f"{number} {what}" for what, number in others.most_common(3))
    say_wrapped(
        f"{process.cpu_s:.1f} s of CPU, {show_bytes(process.memory)}, {several(process.files, 'open file')}"
        + (f"; other threads: {listed}" if listed else ""),
        2,
    )
    for frame in main.stack[:FRAMES]:
        say_wrapped(frame, 4, 6)
