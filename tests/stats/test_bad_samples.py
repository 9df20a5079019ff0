"""What a loader keeps of bad samples: a run would take minutes to find thousands, so the ledger itself is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from standpipe.order import Cursor
from standpipe.stats.bad_samples import Ledger

BATCH = 100


def add_all(ledger: Ledger, reasons: list[str]) -> None:
    """Bad samples, one for each reason, in batches of 100."""
    ledger.start(0, 0)
    for first in range(0, len(reasons), BATCH):
        bad = [
            sp.BadSample(0, position, 0, position, f"{position:06d}.jpg", 0, "read", reason, 0)
            for position, reason in enumerate(reasons[first : first + BATCH], first)
        ]
        ledger.add(Cursor(0, first), bad, sp.SampleError("the last one", index=0, place="read"))


def ledger_for(most: int, log: Path | None = None) -> Ledger:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(10_000))).on_error(sp.Replace(at_most=most)).batch(BATCH)
    return Ledger(pipeline.plan(memory="64MiB", error_log=log))


@pytest.mark.parametrize(("reason", "kept"), [("too short", 1000), ("x" * 10_000, 50)])
def test_the_newest_are_kept_within_half_a_mebibyte_and_all_are_logged(
    tmp_path: Path, reason: str, kept: int
) -> None:
    ledger = ledger_for(2500, tmp_path / "bad.jsonl")
    add_all(ledger, [f"{reason} {number}" for number in range(2500)])
    bad = ledger.samples(Cursor(1, 0))
    assert 0.95 * kept <= len(bad) <= kept
    assert [one.position for one in bad] == list(range(2500 - len(bad), 2500))
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 2500


def test_the_forecast_counts_them() -> None:
    plan = sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).plan(memory="64MiB")
    assert plan.forecast.engine >= (6 << 20) + (1 << 19)


def test_kinds_beyond_a_hundred_are_counted_together() -> None:
    ledger = ledger_for(249)
    with pytest.raises(sp.TooManyBadSamples) as raised:
        add_all(ledger, [f"too short by {number}" for number in range(250)])
    assert len(raised.value.counts) == 101
    assert raised.value.counts["other faults"] == 150
    assert sum(raised.value.counts.values()) == 250
