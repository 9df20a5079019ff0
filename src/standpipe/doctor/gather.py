"""Read the JSON lines that the probe wrote, and build a ``RunFacts`` from them."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standpipe.doctor.facts import (
    Bad,
    BatchFacts,
    Holding,
    LoaderFacts,
    Memory,
    RunFacts,
    Start,
    StepFacts,
    WorkerFacts,
    now_at,
)

Event = dict[str, Any]
DESCRIBED = (
    *("site", "rank", "dataset", "iterable", "samples", "batches", "sampler", "sampled", "workers"),
    *("batch", "prefetch", "persistent", "pinned", "method", "world_size", "cuda_path", "collate"),
)


def gather_facts(folder: Path) -> RunFacts:
    """Return the facts of a run from the probe's folder.

    If the script hasn't ended by itself, unfinished samples count as stuck.
    """
    events = [event for path in sorted(folder.glob("*.jsonl")) for event in _lines(path)]
    ends = [event for event in events if event["event"] == "end"]
    # A rank that has seen enough leaves, and others that wait for it may raise then.
    ends.sort(key=lambda event: ("enough", "raised", "exited", "finished").index(event["how"]))
    end: Event = ends[0] if ends else {"how": "killed"}
    error = (end["type"], end["message"]) if end["how"] == "raised" else None
    stuck = {} if ends else _stuck(folder)
    return RunFacts(
        how=end["how"],
        loaders=tuple(_loaders(events, stuck)),
        error=error,
        code=end.get("code"),
        cuda=any(event["cuda_available"] for event in ends),
        cut=any(event.get("cut", False) for event in ends),
        own=sum(event["event"] == "own" for event in events),
        drawing=tuple((event["where"], event["code"]) for event in events if event["event"] == "drawing"),
        withheld=tuple(event["what"] for event in events if event["event"] == "withheld"),
    )


def _lines(path: Path) -> Iterator[Event]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:  # of a process that was killed as it wrote
            return


def _loaders(events: list[Event], stuck: dict[int, tuple[int, float]]) -> Iterator[LoaderFacts]:
    of: dict[tuple[int, int], dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if "loader" in event:
            of[event["rank"], event["loader"]][event["event"]].append(event)
    for _, kinds in sorted(of.items()):
        for described in kinds["loader"]:
            failed = kinds["failed"]
            yield LoaderFacts(
                **{name: described[name] for name in DESCRIBED},
                holdings=tuple(Holding(**each) for each in described["holdings"]),
                makers=tuple(_makers(kinds["maker"], kinds["made"])),
                steps=tuple(StepFacts(**_named(step, StepFacts)) for step in kinds["step"]),
                starts=tuple(Start(**_named(each, Start)) for each in kinds["workers"]),
                bad=tuple(Bad(**_named(each, Bad)) for each in kinds["bad"]),
                stuck=tuple(
                    (each["worker"], *stuck[each["pid"]]) for each in kinds["maker"] if each["pid"] in stuck
                ),
                failure=(failed[0]["type"], failed[0]["message"]) if failed else None,
            )


def _makers(makers: list[Event], made: list[Event]) -> Iterator[WorkerFacts]:
    for maker in makers:
        who = (maker["pid"], maker["epoch"])
        yield WorkerFacts(
            epoch=maker["epoch"],
            worker=maker["worker"],
            pid=maker["pid"],
            random=maker["random"],
            memory=_memory(maker["memory"]),
            made=tuple(
                BatchFacts(**_named(each, BatchFacts) | {"memory": _memory(each["memory"])})
                for each in made
                if (each["pid"], each["epoch"]) == who
            ),
        )


def _memory(counts: dict[str, int] | None) -> Memory | None:
    return None if counts is None else Memory(**counts)


def _named(event: Event, kind: Any) -> Event:
    return {name: event[name] for name in kind.__dataclass_fields__ if name in event}


def _stuck(folder: Path) -> dict[int, tuple[int, float]]:
    """Return for each process its current sample, and for how many seconds."""
    now = time.monotonic()
    at = {int(path.stem.partition("-")[2]): now_at(path, now) for path in folder.glob("*.now")}
    return {pid: sample for pid, sample in at.items() if sample is not None}
