"""Observe a process that seems stuck from outside, and report the likely causes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

from standpipe.doctor.finding import Finding
from standpipe.doctor.judge_process import judge_process
from standpipe.doctor.processes import Process, environment_of, look_twice, peers, stacks
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
            "stacks": scene.stacks,
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
    processes = [_with_stacks(process) for process in processes]
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
        stacks=any(thread.stack for process in processes for thread in process.threads),
    )
    return ProcessReport(scene=scene, findings=tuple(judge_process(scene)))


def _told(found: Found) -> str:
    """Describe a loader by its last published snapshot."""
    ago = f" ({found.age_s:.0f} s ago)" if found.stale else ""
    return f"standpipe's loader of {found.snapshot.source}{ago}: {found.snapshot}"


def _with_stacks(process: Process) -> Process:
    found = None if process.dead or process.number == os.getpid() else stacks(process.number)
    if found is None:
        return process
    threads = tuple(replace(thread, stack=found.get(thread.number, ())) for thread in process.threads)
    return replace(process, threads=threads)


def _number(environment: dict[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else default
