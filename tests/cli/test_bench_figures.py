"""The figures of one run of ``standpipe bench``: its text, its page, the JSON and ``top`` agree, and make sense."""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from standpipe.cli.bench import Result, measure
from standpipe.cli.top import text as top_text
from standpipe.observe import Found, Snapshot, sampler
from standpipe.observe.report import write_report
from standpipe.observe.snapshot import facts
from standpipe.system.faults import install_faults
from standpipe.system.published import Published


def photos(folder: Path, suffix: str = ".jpg", side: int = 300) -> sp.Pipeline:
    (folder / "a").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    for number in range(8):
        Image.fromarray(pixels).save(folder / f"a/{number}{suffix}")
    return sp.Pipeline(sp.ImageFolder(folder)).map(sp.Resize((32, 32))).batch(8)


def measured(
    pipeline: sp.Pipeline, *, step_ms: float = 0.0, report: Sequence[Path] = (), **settings: Any
) -> Result:
    plan = pipeline.plan(**{"memory": "256MiB", "num_workers": 2, **settings})
    args = {"seconds": 0.5, "step_ms": step_ms, "task": "test", "dtype": "uint8"}
    with measure(plan, argparse.Namespace(**args)) as (result, loader):
        write_report(loader, result.now, *report)
    return result


def page_figures(page: str) -> dict[str, str]:
    return {name: value for value, name in re.findall(r"<div><b>([^<]*)</b><span>([^<]*)</span></div>", page)}


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """All that ``top`` could have seen of this process's loaders."""
    seen: list[Snapshot] = []

    class Noted(Published):
        def write(self, message: bytes) -> None:
            seen.append(Snapshot.from_json(message))
            super().write(message)

    monkeypatch.setattr(sampler, "Published", Noted)
    return seen


def test_text_page_json_and_top_agree(tmp_path: Path, posted: list[Snapshot]) -> None:
    reports = tmp_path / "report.html", tmp_path / "report.json"
    result = measured(photos(tmp_path / "photos"), report=reports, num_workers="auto")
    known = json.loads(reports[1].read_text("ascii"))
    page, text = reports[0].read_text("utf-8"), result.as_text()
    (seen,) = [snapshot for snapshot in posted if snapshot.time_s == known["now"]["time_s"]]
    top = top_text([Found(0.0, seen)], seen.pid)
    row = top_text([Found(0.0, seen)], None).splitlines()[1].split()

    diagnosis, plain, figures = result.diagnosis, result.as_json(), page_figures(page)
    assert known["now"] == facts(seen)  # which top --json prints
    rate = f"{diagnosis.rows_per_s:,.0f}"
    assert f"{rate}[/bold] images/s, in {diagnosis.period}" in text
    assert f"rate      {rate} rows/s, in the newest {diagnosis.period}" in top
    assert f"In the newest {diagnosis.period}, with {diagnosis.num_workers} worker" in page
    assert (figures["rows per second"], row[-5 + (not seen.limited)]) == (rate, rate)
    assert plain["images_per_s"] == round(diagnosis.rows_per_s, 1)
    waits = f"{diagnosis.wait_share:.0%}"
    assert f"waited {waits} of the time" in text
    assert figures["your loop waits"] == waits
    assert (plain["wait_share"], plain["workers"]) == (round(diagnosis.wait_share, 3), diagnosis.num_workers)
    for line in str(diagnosis).splitlines():
        assert line in text
        assert line in top
    for advice in diagnosis.advice:
        assert advice.replace('"', "&quot;") in page
    assert plain["advice"] == diagnosis.advice
    forecasts = {name: f"{value:,.0f}" for name, value in diagnosis.forecasts.items()}
    assert {name: value for name, value in figures.items() if name in forecasts} == forecasts


class Waits:
    """A function that waits, and computes nothing."""

    def __call__(self, image: Any) -> Any:
        threading.Event().wait(0.002)
        return image


def computes(image: Any) -> Any:
    for _ in range(20):
        np.sort(image.ravel())
    return image


def slow_storage(folder: Path) -> Result:
    pipeline = photos(folder, side=32)
    install_faults("read.open=delay:10ms")
    try:
        return measured(pipeline)
    finally:
        install_faults("")


def tight_memory(folder: Path) -> Result:
    pipeline = photos(folder).map(sp.Normalize())
    with pytest.raises(sp.BudgetError) as refused:
        pipeline.plan(memory="8MiB", num_workers=1)
    return measured(pipeline, memory=refused.value.smallest_bytes, num_workers=1)


def cached(folder: Path) -> Result:
    cache = sp.Cache(f"figures-{os.getpid()}", "16MiB", directory=folder.parent)
    try:
        return measured(photos(folder, side=600).batch(2).cache(cache))
    finally:
        sp.destroy_cache(cache)


RUNS: dict[str, Callable[[Path], Result]] = {
    "storage": slow_storage,
    "decode": lambda folder: measured(photos(folder, side=900), num_workers=1),
    "decode, fast": lambda folder: measured(photos(folder, side=900).decode("fast")),
    "Pillow": lambda folder: measured(photos(folder, ".png", side=600)),
    "Python code that computes": lambda folder: measured(photos(folder).map(computes, field="image")),
    "Python code that waits": lambda folder: measured(
        photos(folder).map(Waits(), field="image"), executor="thread"
    ),
    "consumer": lambda folder: measured(photos(folder, side=32), step_ms=30),
    "memory": tight_memory,
    "small batches": lambda folder: measured(photos(folder, side=16).batch(1), num_workers="auto"),
    "cache": cached,
}


@pytest.mark.parametrize("name", RUNS)
def test_no_sentence_contradicts_another_or_the_table(name: str, tmp_path: Path) -> None:
    result = RUNS[name](tmp_path / "photos")
    text = re.sub(r"\s+", " ", result.as_text())
    check_numbers(result, text)
    check_advice(result, text)
    check_memory(result, text)


def check_numbers(result: Result, text: str) -> None:
    """Each number that is said twice is the same one."""
    diagnosis = result.diagnosis
    workers = one(r"batch \d+, (\d+) workers?,", text)
    assert workers == str(result.plan.num_workers) or result.plan.tunes_workers
    assert set(re.findall(r"all (\d+) workers", text)) <= {workers}
    assert ("its one worker" in text) <= (workers == "1")
    rate = one(r"\[bold\]([\d,]+)\[/bold\] images/s", text)
    assert set(re.findall(r"now ([\d,]+) rows/s", text)) <= {rate}
    waited = one(r"waited (\d+%) of the time", text)
    assert set(re.findall(r"your loop waits (\d+%)", text)) <= {waited}
    assert (diagnosis.bound == "step") <= (diagnosis.wait_share <= 0.05)
    assert (diagnosis.bound == "input") <= ("input-bound" in text)


def test_a_peak_and_a_forecast_above_theirs_say_why(tmp_path: Path) -> None:
    result = measured(photos(tmp_path / "photos"), num_workers=1)
    slots = result.ledger["slots"]
    ledger = replace(result.ledger, owners=(replace(slots, peak=slots.forecast + (12 << 20)),), outside=())
    mib = result.plan.forecast.expected / (1 << 20)
    high = replace(result, ledger=ledger, peak_pss_mib=mib + 9)
    assert (
        f"memory        {mib + 9:,.0f} MiB at its peak (slots 12 MiB more than forecast)," in high.as_text()
    )
    assert high.as_json()["peak_note"] == "slots 12 MiB more than forecast"
    loaded = replace(result, ledger=replace(ledger, owners=()), peak_pss_mib=mib + 9)
    assert loaded.peak_note == "with libraries that were loaded since"
    assert replace(result, peak_pss_mib=mib - 1).peak_note == ""
    memory = replace(result.plan.memory, budget_bytes=10 << 20)
    tight = replace(result, plan=replace(result.plan, memory=memory))
    assert tight.forecast_note.endswith("MiB of it the process's own, outside memory=10.0MiB")


def check_advice(result: Result, text: str) -> None:
    """Nothing is advised that is so already, and no forecast is below now or above the next limit."""
    diagnosis, plan = result.diagnosis, result.plan
    foretold = [float(rate.replace(",", "")) for rate in re.findall(r"about ([\d,]+) rows/s", text)]
    most = diagnosis.upper_rows_per_s or float("inf")
    assert all(diagnosis.rows_per_s < rate <= most + 1 for rate in foretold), diagnosis
    assert "without that limit" not in text
    said = {name for name in ("after the first advice",) if name in text}
    assert said == set(diagnosis.forecasts)
    if diagnosis.fixed_rows_per_s is not None:
        assert round(diagnosis.fixed_rows_per_s) in map(round, foretold)
    for more, now in re.findall(r"num_workers=(\d+) instead of (\d+)", text):
        assert int(more) > int(now) == diagnosis.num_workers
        assert not plan.tunes_workers
    assert ("num_workers=" in text.split("bound")[-1]) <= (not plan.tunes_workers)
    assert ("decode(" in text) <= plan.decodes_exactly
    assert (".cache(" in text) <= (plan.pipeline.cached is None)
    assert diagnosis.advice or diagnosis.bound == "unknown"


def check_memory(result: Result, text: str) -> None:
    """A peak above the forecast, and a forecast above the ceiling, say why."""
    forecast = result.plan.forecast
    peak, foretold = one(r"memory (.*?), forecast", text), one(r"(forecast \d.*?) consumer", text)
    assert ("(" in peak) == bool(result.peak_note) == (result.peak_pss_mib * (1 << 20) > forecast.expected)
    assert ("outside memory=" in foretold) == (forecast.expected > result.plan.memory_bytes)


def one(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return str(found)
