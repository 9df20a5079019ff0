"""Judgements by tables: facts of a healthy loader, one thing changed, and what is found then."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from standpipe.doctor.facts import (
    Bad,
    BatchFacts,
    Holding,
    Host,
    LoaderFacts,
    Memory,
    Start,
    StepFacts,
    WorkerFacts,
)
from standpipe.doctor.judge_process import ADVICE
from standpipe.doctor.script import judged

MIB = 1 << 20
ROOT = Path(__file__).parent.parent.parent
HOST = Host(cores=8, memory_free=24 << 30, memory=32 << 30, shm_free=8 << 30, shm=16 << 30)


def steps(wait_s: float = 1e-3, *, step_s: float = 50e-3, first_s: float = 0.1, size: int = MIB) -> Any:
    """Two epochs of 24 steps."""
    return tuple(
        StepFacts(
            epoch=epoch,
            wait_s=wait_s if number else first_s,
            step_s=step_s if number else None,
            bytes=size,
            at=epoch * 100 + number * (wait_s + step_s),
        )
        for epoch in range(2)
        for number in range(24)
    )


def made(
    seconds: float = 20e-3, collate_s: float = 1e-3, *, cpu: float = 1.0, queued_s: float = 0.0, **more: Any
) -> BatchFacts:
    """A batch. Its samples have a CPU for a fraction of the seconds in which they don't queue for one."""
    cpu_s = cpu * (seconds - queued_s)
    return BatchFacts(
        samples=32, seconds=seconds, cpu_s=cpu_s, queued_s=queued_s, collate_s=collate_s, **more
    )


BATCH = made()


def makers(one: BatchFacts = BATCH, *, workers: int = 2, **more: Any) -> tuple[WorkerFacts, ...]:
    """Workers, or the script itself, over two epochs."""
    numbers = range(workers) if workers else (-1,)
    return tuple(
        WorkerFacts(epoch=epoch, worker=worker, made=(one,) * 12, **more)
        for epoch in range(2)
        for worker in numbers
    )


HEALTHY = LoaderFacts(
    site="train.py:7",
    samples=10_000,
    sampled=10_000,
    batches=312,
    sampler="RandomSampler",
    workers=2,
    batch=32,
    prefetch=2,
    persistent=True,
    method="fork",
    makers=makers(),
    steps=steps(),
    starts=(Start(method="fork"),),
)
TEXTS = Holding(path="dataset.texts", kind="list of str", objects=10**7, bytes=900 * MIB)
TABLE = Holding(path="dataset.table", kind="ndarray of int64", objects=1, bytes=0, arrays=900 * MIB)


def growing(each: int, batches: int = 12) -> tuple[WorkerFacts, ...]:
    """A worker that every batch makes larger."""
    batch = tuple(made(anonymous=200 * MIB + number * each) for number in range(batches))
    return (WorkerFacts(epoch=0, worker=0, made=batch),)


def bad(message: str, where: str = "sample", **more: Any) -> Bad:
    return Bad(worker=0, index=13, path=None, type="RuntimeError", message=message, where=where, **more)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("healthy", {}, {}, []),
    ("workers above the quota", {"cores": 1}, {}, ["warning workers-above-cores"]),
    ("as many as CPUs", {"cores": 2}, {}, []),
    ("workers of all ranks", {"ranks": 5, "cores": 8}, {}, ["warning workers-above-cores"]),
    (
        "above the CPUs, for storage",
        {"cores": 1},
        {"makers": makers(made(cpu=0.1))},
        ["note workers-above-cores"],
    ),
    (
        "above the CPUs, of which each waits for one",
        {"cores": 1},
        {"makers": makers(made(queued_s=18e-3))},
        ["warning workers-above-cores"],
    ),
    (
        "too few",
        {},
        {"steps": steps(0.15), "makers": makers(made(0.4))},
        ["warning workers-too-few"],
    ),
    ("another process has the CPUs", {}, {"steps": steps(0.15)}, []),
    ("another process has both CPUs", {"cores": 2}, {"steps": steps(0.15)}, []),
    (
        "workers wait for CPUs that they take from one another",
        {"cores": 2},
        {"workers": 8, "steps": steps(0.15), "makers": makers(made(1.6, queued_s=1.2), workers=8)},
        ["warning workers-above-cores", "warning input-bound"],
    ),
    (
        "workers wait for CPUs that another process has",
        {"cores": 2},
        {"steps": steps(0.15), "makers": makers(made(0.4, queued_s=0.39))},
        [],
    ),
    (
        "none, and a script that waits",
        {},
        {"workers": 0, "steps": steps(0.1), "makers": makers(made(0.1), workers=0), "starts": ()},
        ["warning workers-too-few"],
    ),
    (
        "all CPUs busy",
        {"cores": 2},
        {"steps": steps(0.15), "makers": makers(made(0.4))},
        ["warning input-bound"],
    ),
    (
        "as many workers as CPUs, which wait for storage",
        {"cores": 2},
        {"steps": steps(0.15), "makers": makers(made(0.4, cpu=0.1))},
        ["warning workers-too-few"],
    ),
    (
        "more workers than CPUs, which wait for storage",
        {"cores": 1},
        {"steps": steps(0.15), "makers": makers(made(0.4, cpu=0.1))},
        ["note workers-above-cores", "warning workers-too-few"],
    ),
    (
        "none on one CPU, which waits for storage",
        {"cores": 1},
        {
            "workers": 0,
            "steps": steps(0.4),
            "makers": makers(made(0.4, cpu=0.1), workers=0),
            "starts": (),
        },
        ["warning workers-too-few"],
    ),
    (
        "one transform of three",
        {},
        {"steps": steps(0.15), "makers": makers(made(0.4, transforms={"Blur": 0.3, "Crop": 0.05}))},
        ["warning workers-too-few", "warning slow-transform"],
    ),
    ("slow transforms that nobody waits for", {}, {"makers": makers(made(transforms={"Blur": 0.02}))}, []),
    (
        "collate",
        {},
        {"steps": steps(0.15), "makers": makers(made(0.1, 0.3))},
        ["warning workers-too-few", "warning slow-collate"],
    ),
    (
        "workers start anew",
        {},
        {"persistent": False, "steps": steps(first_s=4.0)},
        ["warning workers-restarted"],
    ),
    (
        "long epochs",
        {},
        {"persistent": False, "steps": steps(first_s=4.0), "batches": 10_000},
        [],
    ),
    (
        "a slow sample",
        {},
        {"makers": makers(made(slowest=(13, 5.0), median_s=1e-3))},
        ["warning slow-sample"],
    ),
    (
        "slow for want of a CPU",
        {},
        {"makers": makers(made(slowest=(13, 5.0), median_s=1e-3, queued_s=4.9))},
        [],
    ),
    (
        "slow at first",
        {},
        {"makers": (WorkerFacts(epoch=0, worker=0, made=(made(slowest=(13, 5.0)), made())),)},
        [],
    ),
    ("all slow", {}, {"makers": makers(made(slowest=(13, 5.0), median_s=2.0))}, []),
    ("a stuck sample", {}, {"stuck": ((0, 13, 60.0),)}, ["problem stuck-sample"]),
    ("lists", {}, {"holdings": (TEXTS,)}, ["warning copy-on-write"]),
    ("lists in little memory", {"memory_free": 2 << 30}, {"holdings": (TEXTS,)}, ["problem copy-on-write"]),
    ("short lists", {}, {"holdings": (replace(TEXTS, bytes=MIB),)}, []),
    ("arrays", {}, {"holdings": (TABLE,)}, []),
    ("lists without workers", {}, {"holdings": (TEXTS,), "workers": 0, "makers": makers(workers=0)}, []),
    (
        "arrays by spawn",
        {},
        {"holdings": (TABLE,), "method": "spawn", "starts": (Start(method="spawn"),)},
        ["warning copies-of-the-dataset"],
    ),
    (
        "a worker that grows",
        {},
        {"makers": growing(8 * MIB), "workers": 1},
        ["warning memory-grows"],
    ),
    (
        "in little memory",
        {"memory_free": MIB},
        {"makers": growing(8 * MIB), "workers": 1},
        ["problem memory-grows"],
    ),
    ("a worker that warms up", {}, {"makers": growing(8 * MIB, 6), "workers": 1}, []),
    ("shm", {"shm_free": 3 * MIB}, {}, ["problem shm-small"]),
    ("shm, just", {"shm_free": 5 * MIB - 1}, {}, ["warning shm-small"]),
    ("shm, of a short epoch", {"shm_free": 3 * MIB}, {"batches": 2}, []),
    ("a GPU", {"cuda": True}, {}, ["warning unpinned"]),
    ("a GPU, pinned", {"cuda": True}, {"pinned": True}, []),
    (
        "threads",
        {},
        {"starts": (Start(method="fork", threads=("writer",)),)},
        ["warning fork-after-threads"],
    ),
    ("threads, and spawn", {}, {"starts": (Start(method="spawn", threads=("writer",)),)}, []),
    ("CUDA before the fork", {}, {"starts": (Start(method="fork", cuda=True),)}, []),
    (
        "CUDA in workers",
        {},
        {
            "starts": (Start(method="fork", cuda=True),),
            "bad": (bad("Cannot re-initialize CUDA in forked subprocess"),),
        },
        ["problem fork-after-cuda"],
    ),
    (
        "a tensor on the GPU",
        {},
        {"starts": (Start(method="fork", cuda=True),), "cuda_path": "dataset.mean"},
        ["problem fork-after-cuda"],
    ),
    ("a bad sample, twice", {}, {"bad": (bad("ends early"), bad("ends early"))}, ["problem bad-sample"]),
    ("mixed samples", {}, {"bad": (bad("stack expects", "collate"),)}, ["problem mixed-samples"]),
    (
        "out of memory",
        {},
        {"failure": ("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Killed.")},
        ["problem worker-died"],
    ),
    ("an error of the script's own", {}, {"failure": ("KeyError", "'image'")}, []),
    ("ranks", {}, {"world_size": 4}, ["problem ranks-duplicated"]),
    ("ranks in order", {}, {"world_size": 4, "sampler": "SequentialSampler"}, ["note ranks-duplicated"]),
    ("ranks with parts", {}, {"world_size": 4, "sampled": 2_500}, []),
]


@pytest.mark.parametrize(
    ("host", "loader", "codes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_judgements(host: dict[str, Any], loader: dict[str, Any], codes: list[str]) -> None:
    found = judged(replace(HOST, **host), [replace(HEALTHY, **loader)])
    assert sorted(f"{finding.severity.value} {finding.code}" for finding in found) == sorted(codes)
    for finding in found:
        assert finding.where == HEALTHY.site
        assert finding.evidence
        assert finding.fix
        assert finding.standpipe


def test_the_guide_has_every_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "src/standpipe/doctor").glob("*.py"))
    page = (ROOT / "docs" / "guide" / "stuck.md").read_text(encoding="utf-8")
    codes = re.findall(r'code="([\w-]+)"', code) + list(ADVICE)
    assert len(codes) > 30
    assert [each for each in codes if f"`{each}`" not in page] == []


def prints(numbers: range, part: str = "") -> tuple[dict[str, str], ...]:
    """Fingerprints of samples that differ as a whole, or in all but a part."""
    return tuple({"": f"{part and numbers.start}-{number}", part: str(number)} for number in numbers)


@pytest.mark.parametrize(
    ("ours", "theirs", "codes"),
    [
        (prints(range(8)), prints(range(8)), ["problem iterable-duplicated"]),
        (prints(range(8)), prints(range(2, 10)), ["problem iterable-duplicated"]),
        (prints(range(8)), prints(range(8, 16)), []),
        (prints(range(8), "[1]"), prints(range(1, 9), "[1]"), ["warning iterable-duplicated"]),
        (prints(range(8), "[1]"), prints(range(8, 16), "[1]"), []),
        (prints(range(2)), prints(range(2)), []),  # too few to tell
        (({"": "same"},) * 8, ({"": "same"},) * 8, []),  # constants tell nothing
    ],
)
def test_samples_of_two_workers(ours: Any, theirs: Any, codes: list[str]) -> None:
    loader = replace(
        HEALTHY,
        iterable=True,
        makers=tuple(
            WorkerFacts(epoch=0, worker=number, made=(made(prints=each),))
            for number, each in enumerate([ours, theirs])
        ),
    )
    assert [f"{finding.severity.value} {finding.code}" for finding in judged(HOST, [loader])] == codes


@pytest.mark.parametrize(
    ("states", "drawn", "codes"),
    [
        (["a", "b", "c", "d"], True, []),
        (["a", "a", "c", "d"], True, ["randomness-repeated-workers"]),
        (["a", "a", "c", "d"], False, []),
        (["a", "b", "a", "d"], True, ["randomness-repeated-epochs"]),
        (["a", "b", "b", "a"], True, []),  # as torch's base seed might have it by chance: other workers
        (["a", "a", "a", "a"], True, ["randomness-repeated-workers", "randomness-repeated-epochs"]),
    ],
)
def test_states_of_generators(states: list[str], drawn: bool, codes: list[str]) -> None:
    batch = made(drawn=("numpy.random",) if drawn else ())
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    loader = replace(
        HEALTHY,
        makers=tuple(
            WorkerFacts(epoch=epoch, worker=worker, random={"numpy.random": state}, made=(batch,))
            for (epoch, worker), state in zip(places, states, strict=True)
        ),
    )
    assert [finding.code for finding in judged(HOST, [loader])] == codes


def test_the_forecast_of_copies() -> None:
    memory = (Memory(private=10 * MIB, pss=90 * MIB), Memory(private=70 * MIB, pss=120 * MIB))
    workers = makers(made(memory=memory[1]), memory=memory[0])
    (found,) = judged(HOST, [replace(HEALTHY, holdings=(TEXTS,), makers=workers)])
    assert found.numbers == {
        "attribute": "dataset.texts",
        "objects": 10**7,
        "bytes": 900 * MIB,
        "workers": 2,
        "forecast_bytes": 1800 * MIB,
    }
    assert "memory that a worker alone has: 10.0MiB at its start, 70.0MiB at the end" in found.evidence
    assert found.evidence[-1].startswith("forecast: 900.0MiB × 2 workers = 1.7GiB")
