"""Observe a process that seems stuck from outside, and report the likely causes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from standpipe.doctor.finding import Finding
from standpipe.doctor.judge_process import judge_process
from standpipe.doctor.processes import Process, environment_of, look_twice, peers, py_spy, stacks
from standpipe.doctor.running import host_facts
from standpipe.doctor.scene import Scene, waits_for
from standpipe.observe.posted import Found, delivers, loaders_of
from standpipe.system import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """The findings on a process."""

    scene: Scene
    findings: tuple[Finding, ...]

    def facts(self) -> dict[str, Any]:
        """Return the facts as plain values, for JSON."""
        scene = self.scene
        return {
            "process": scene.script.number,
            "seconds": round(scene.seconds, 3),
            "stacks": not scene.no_stacks,
            "loaders": list(scene.loaders),
            "processes": [_facts(process) for process in scene.processes],
            "throttled_s": scene.throttled_s,
            "shm_free_bytes": scene.shm_free,
            "findings": [finding.facts() for finding in self.findings],
        }


def _facts(process: Process) -> dict[str, Any]:
    return {
        "process": process.number,
        "parent": process.parent,
        "command": process.command,
        "memory_bytes": process.memory,
        "swapped_bytes": process.swapped,
        "files": process.files,
        "cpu_s": round(process.cpu_s, 3),
        "threads": [
            {
                "thread": thread.number,
                "name": thread.name,
                "state": thread.state,
                "waits": waits_for(process, thread),
                "cpu_s": round(thread.cpu_s, 3),
                "stack": list(thread.stack),
            }
            for thread in process.threads
        ],
    }


def examine_process(number: int, seconds: float = 2.0) -> ProcessReport:
    """Look at a running process for ``seconds``, and say what it waits for. The process is neither stopped nor changed.

    Raises ProcessLookupError if there is none.
    """
    throttled, begin = machine.throttled_s(number), time.monotonic()
    before = loaders_of(number)
    processes = look_twice(number, seconds)
    elapsed = time.monotonic() - begin
    throttled = machine.throttled_s(number) - throttled
    program = py_spy()
    if program is not None:
        processes = [_with_stacks(program, process) for process in processes]
    told, loaders = environment_of(number), loaders_of(number)
    host = host_facts(ranks=1)
    scene = Scene(
        seconds=elapsed,
        processes=tuple(processes),
        throttled_s=throttled,
        kills=machine.memory_kills(number),
        shm_free=host.shm_free,
        shm=host.shm,
        rank=_number(told, "RANK", 0),
        world_size=_number(told, "WORLD_SIZE", 1),
        local_world=_number(told, "LOCAL_WORLD_SIZE", 1),
        peers=peers(number),
        loaders=tuple(map(_told, loaders)),
        delivers=delivers(before, loaders),
        no_stacks=_no_stacks(program, processes),
    )
    return ProcessReport(scene=scene, findings=tuple(judge_process(scene)))


def _told(found: Found) -> str:
    """Describe a loader by its last published snapshot."""
    ago = f" ({found.age_s:.0f} s ago)" if found.stale else ""
    return f"standpipe's loader of {found.snapshot.source}{ago}: {found.snapshot}"


def _no_stacks(program: str | None, processes: Sequence[Process]) -> str:
    if program is None:
        return "no stacks: py-spy isn't installed (pip install py-spy)"
    if any(thread.stack for process in processes for thread in process.threads):
        return ""
    return "no stacks: py-spy may read those of a Python process as root, or with CAP_SYS_PTRACE"


def _with_stacks(program: str, process: Process) -> Process:
    if process.dead or process.number == os.getpid():
        return process
    found = stacks(program, process.number)
    threads = tuple(replace(thread, stack=found.get(thread.number, ())) for thread in process.threads)
    return replace(process, threads=threads)


def _number(environment: dict[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else default
