"""Counters of runs that never were: for what shows them."""

from __future__ import annotations

from typing import Any

import standpipe as sp
from standpipe.observe import Diagnosis, History, Snapshot
from standpipe.observe.snapshot import snapshot

WAITS = Diagnosis(
    bound="input",
    wait_share=0.4,
    place="transform",
    seconds=10.0,
    num_workers=1,
    rows_per_s=1000.0,
    upper_rows_per_s=1600.0,
    fixed_rows_per_s=1500.0,
    what="The training loop waits 40% of its time: decoding limits.",
    advice=("Give the loader more workers.",),
)


def latency(*counts: int) -> sp.Latency:
    """Some counts at about a millisecond."""
    return sp.Latency((0,) * 80 + counts + (0,) * (129 - len(counts)))


def counters(seconds: float, *, rate: int = 1000, wait: float = 0.4, epoch: int = 0, **more: Any) -> sp.Stats:
    """Of a run so many seconds after its start, 1,000 s after its machine's: it waits 40% of the time for decoding."""
    rows = int(seconds * rate)

    def place(threads: int, load: float, **of: Any) -> sp.PlaceStats:
        busy = load * threads * seconds
        return sp.PlaceStats(
            threads, rows, busy_s=busy, wait_s=threads * seconds - busy, latency=latency(rows), **of
        )

    return sp.Stats(
        **{
            "time_s": 1000.0 + seconds,
            "epoch": epoch,
            "rows": rows,
            "order": place(1, 0.05),
            "read": place(4, 0.3, bytes=100_000 * rows),
            "transform": place(2, 0.95),
            "batch": place(1, 0.1),
            "device": place(1, 0.02),
            "step": sp.StepStats(
                steps=rows // 100,
                rows=rows,
                step_s=(1 - wait) * seconds,
                wait_s=wait * seconds,
                step=latency(rows // 100),
                wait=latency(0, rows // 100),
                ready=rows // 200,
            ),
            "slots": sp.SlotStats(most=8, lent=1, filling=2, ready=1, no_slot_s=0.0),
            "workers": (
                sp.WorkerStats("decoder thread 1", rows, 0.95 * seconds),
                sp.WorkerStats("decoder thread 2"),
            ),
            "functions": {"photos.crop": 0.7 * seconds, "native": 0.2 * seconds},
            **more,
        }
    )


def shown(
    plan: sp.Plan, *, seconds: float = 100.0, diagnosis: Diagnosis | None = WAITS, **more: Any
) -> Snapshot:
    """A snapshot of such a run."""
    history = History()
    for second in range(int(seconds) + 1):
        history.add(counters(second, **more), 300 << 20)
    return snapshot(
        plan,
        counters(seconds, **more),
        sp.MemoryLedger(1 << 30, (sp.MemoryOwner("slots", 0, 300 << 20, 0, None),), (), (), 0),
        consumed=400,
        run_s=seconds,
        recent=history.recent(),
        diagnosis=diagnosis,
    )


def small_plan() -> sp.Plan:
    """Of a thousand numbers in batches of a hundred."""
    import numpy as np

    return sp.Pipeline(sp.Arrays(number=np.arange(1000))).batch(100).plan(memory="64MiB", num_workers=1)
