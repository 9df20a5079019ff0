"""A trace has what the history has, at its times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import standpipe as sp
from observed import counters
from photos import numbers


def test_a_trace_has_counters_over_time_and_epochs(tmp_path: Path) -> None:
    loader = sp.Pipeline(numbers(8)).batch(4).loader(memory="64MiB")
    for second in range(11):
        loader.history.add(counters(second, epoch=(second - 1) // 5), 3 << 20)
    loader.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="ascii"))["traceEvents"]
    rates = [(each["ts"], each["args"]) for each in events if each["name"] == "rows per second"]
    assert rates == [(second * 1_000_000, {"rows": 1000.0}) for second in range(10)]
    assert [each["args"] for each in events if each["name"] == "load of transform"] == [{"%": 95.0}] * 10
    assert [each["args"] for each in events if each["name"] == "memory"] == [{"MiB": 3.0}] * 10
    spans = [(each["name"], each["ts"], each["dur"]) for each in events if each["ph"] == "X"]
    assert spans == [("epoch 0", 0, 5_000_000), ("epoch 1", 5_000_000, 5_000_000)]
    assert {each["ph"] for each in events} == {"M", "C", "X"}
    assert all(isinstance(each["pid"], int) and isinstance(each["tid"], int) for each in events)


def test_of_a_real_run_it_has_every_row(tmp_path: Path) -> None:
    with sp.Pipeline(numbers(64)).batch(4).loader(memory="64MiB") as loader:
        for _batch in loader:
            pass
    loader.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="ascii"))["traceEvents"]
    moments = loader.history.moments
    rates = [each["args"]["rows"] for each in events if each["name"] == "rows per second"]
    assert sum(rate * moment.seconds for rate, moment in zip(rates, moments, strict=True)) == pytest.approx(
        64, rel=0.01
    )
