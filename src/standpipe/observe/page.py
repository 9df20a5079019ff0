"""Make the HTML page of a report. The page loads no other file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import pairwise
from typing import Any

import standpipe as sp
from standpipe.observe.charts import (
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    Box,
    Curve,
    flow,
    histogram,
    over_time,
)
from standpipe.observe.history import BY_ONE, PLACES, Moment, threads_at
from standpipe.observe.snapshot import Snapshot
from standpipe.units import show_clock, show_seconds

MIB = 1 << 20
MOST_ROWS = 200  # of a table
LONG_CELL = 24  # letters of a cell that may be broken anywhere
NUMBER = re.compile(r"[\d,.]*%?")
LIMITS = {"slots": "batch", "worker": "transform"}  # boxes of the picture for what is no place of it
PER_BATCH = tuple(BY_ONE)
TITLES = {"step": "your step", "wait": "your loop waits"}


def page(known: Mapping[str, Any], now: Snapshot, moments: Sequence[Moment]) -> str:
    """Return the report of a run as HTML.

    known    the facts that ``known_of`` returns
    now      the run's last snapshot
    moments  the run's history
    """
    files = resources.files(__package__)
    title = f"{now.script}: standpipe report"
    body = "".join(
        (
            _head(known, now),
            _diagnosis(now),
            _section(
                "The six places and your step",
                flow(_boxes(now, known["plan"]["records"])),
                "Share of its threads' time in which each place worked, in the same time.",
            ),
            _section("Over time", "".join(_over_time(now, moments)), ""),
            _section("How long it takes", _histograms(now.stats), ""),
            _section("Memory", _memory(known["memory"], now), "Of what memory= bounds."),
            _section("Workers", _workers(now), ""),
            _section(
                "Functions",
                _functions(now.stats.functions),
                "Seconds in your Python code, summed over workers.",
            ),
            _section("Slow and bad samples", _bad(known, now.stats), ""),
            _section("Numbers of workers that were tried", *_tuning(known["tuning"])),
            _section("The plan", f"<pre>{escape(known['explain'])}</pre>", ""),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{files.joinpath('page.css').read_text('utf-8')}</style></head>\n"
        f"<body><main>{body}</main><script>{files.joinpath('page.js').read_text('utf-8')}</script></body></html>\n"
    )


def latencies(stats: sp.Stats) -> dict[str, sp.Latency]:
    """Return the latency of each place, of a step and of a wait, by name, without empty ones."""
    every = {place: getattr(stats, place).latency for place in PLACES}
    every |= {"step": stats.step.step, "wait": stats.step.wait}
    return {name: latency for name, latency in every.items() if latency.count}


def _section(title: str, content: str, note: str) -> str:
    if not content:
        return ""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{said}{content}</section>\n"


def _head(known: Mapping[str, Any], now: Snapshot) -> str:
    facts = (
        f"rank {now.rank} of {now.world_size}",
        f"on {known['host']}, {known['cpus']} CPUs",
        f"{known['written']}, {show_clock(now.run_s)} after the start",
        f"standpipe {known['standpipe']}",
    )
    lines = "".join(f"<p>{escape(line)}</p>" for line in (now.source, " · ".join(facts)))
    return f"<header><h1>{escape(now.script)}</h1>{lines}</header>\n"


def _diagnosis(now: Snapshot) -> str:
    diagnosis, recent = now.diagnosis, now.recent
    forecasts = {} if diagnosis is None else diagnosis.forecasts
    figures = [
        ("rows per second", f"{now.rows_per_s:,.0f}"),
        ("your loop waits", f"{recent.wait_share:.0%}"),
        *((name, f"{rate:,.0f}") for name, rate in forecasts.items()),
        ("rows so far", f"{now.stats.step.rows:,}"),
        ("bad", f"{now.stats.bad:,}"),
    ]
    cells = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in figures
    )
    if diagnosis is None:
        return f'<section class="diagnosis"><div class="figures">{cells}</div></section>\n'
    advice = "".join(f"<li>{escape(each)}</li>" for each in diagnosis.advice)
    what = diagnosis.what[:1].upper() + diagnosis.what[1:]
    many = "" if diagnosis.num_workers == 1 else "s"
    period = f"In the newest {diagnosis.period}, with {diagnosis.num_workers} worker{many}."
    return (
        f'<section class="diagnosis {escape(diagnosis.bound)}"><h2>{escape(what)}</h2>'
        f"{f'<ul>{advice}</ul>' if advice else ''}"
        f'<p class="note">{escape(period)}</p>'
        f'<div class="figures">{cells}</div></section>\n'
    )


def _boxes(now: Snapshot, records: int | None) -> list[Box]:
    stats, limit = now.stats, LIMITS.get(now.limited, now.limited)
    source = "a stream" if records is None else f"{records:,} records"
    boxes = [Box("source", None, (source,), False)]
    for name in PLACES:
        latency: sp.Latency = getattr(stats, name).latency
        threads = threads_at(stats, name)
        each = "a batch" if name in PER_BATCH else "a row"
        texts = [
            f"{threads} thread{'s' * (threads > 1)}",
            f"{show_seconds(latency.p50)} {each}" if latency.count else "",
        ]
        if name == "batch":
            texts.append(f"{stats.slots.ready} ready, {stats.slots.filling} being made")
        boxes.append(Box(name, now.recent.load[name], tuple(texts), name == limit))
    step = stats.step
    waits = now.recent.wait_share
    below = (f"{show_seconds(step.step.p50)} a step" if step.step.count else "", f"waits {waits:.0%}")
    return [*boxes, Box("your step", 1 - waits if now.recent.steps else 0.0, below, limit == "step")]


def _over_time(now: Snapshot, moments: Sequence[Moment]) -> Iterator[str]:
    if not moments:
        return
    begins = [moment.begin_s for moment in moments]
    epochs = [
        (after.begin_s, after.epoch) for before, after in pairwise(moments) if after.epoch != before.epoch
    ]
    axis = Axis(moments[-1].begin_s + moments[-1].seconds, tuple(epochs))
    # Where no batch was taken, nothing is known of the loop yet; and of a place that did nothing then.
    looped_s = [moment.step_s + moment.wait_s for moment in moments]
    rates, waits, ready = zip(
        *(
            (moment.rows / seconds, moment.wait_share, moment.ready) if seconds else (None, None, None)
            for moment, seconds in zip(moments, looped_s, strict=True)
        ),
        strict=True,
    )
    memory = [moment.memory / MIB for moment in moments]
    charts: list[tuple[Sequence[float | None], Curve]] = [
        (rates, Curve("rows per second", "rate", lambda value: f"{value:,.0f}")),
        (waits, Curve("share of its time that your loop waits", "wait", _percent, 1.0)),
        (memory, Curve("memory, MiB", "memory", lambda value: f"{value:,.0f}")),
        (ready, Curve("batches ready", "ready", lambda value: f"{value:.3g}")),
    ]
    across = f"{LEFT},{WIDTH - RIGHT}"
    times = ",".join(f"{begin:.1f}" for begin in begins)
    yield f'<div id="run" data-begins="{times}" data-end="{axis.end_s:.1f}" data-across="{across}">'
    for values, curve in charts:
        yield f"<h3>{curve.name}<output></output></h3>" + over_time(axis, begins, values, curve)
    for place in PLACES:
        loads = [
            moment.load[place] if seconds or moment.load[place] else None
            for moment, seconds in zip(moments, looped_s, strict=True)
        ]
        curve = Curve(f"load of {place}", "rate", _percent, 1.0)
        yield f"<h3>{curve.name}<output></output></h3>" + over_time(
            axis, begins, loads, curve, height=48, times=place == PLACES[-1]
        )
    yield "</div>"


def _histograms(stats: sp.Stats) -> str:
    cells = []
    for name, latency in latencies(stats).items():
        title = TITLES.get(name, f"{name}, each {'batch' if name in PER_BATCH else 'row'}")
        times = ", ".join(
            f"{share} {show_seconds(time)}"
            for share, time in (("half within", latency.p50), ("90%", latency.p90), ("99%", latency.p99))
        )
        cells.append(
            f"<figure><figcaption><b>{escape(title)}</b>: {escape(times)}</figcaption>"
            f"{histogram(latency, title)}</figure>"
        )
    return f'<div class="pair">{"".join(cells)}</div>' if cells else ""


def _memory(owners: Sequence[Mapping[str, Any]], now: Snapshot) -> str:
    def mib(number: int | None) -> str:
        return "" if number is None else f"{number / MIB:,.1f}"

    keys = ("forecast", "now", "peak", "most")
    rows = [[owner["name"], *(mib(owner[key]) for key in keys), owner["note"]] for owner in owners]
    whole = ["together", "", mib(now.memory), "", mib(now.limit), ""]
    return _table(("MiB", "forecast", "now", "peak", "at most", ""), [*rows, whole])


def _workers(now: Snapshot) -> str:
    at_work = [worker for worker in now.stats.workers if worker.rows or worker.busy_s]
    idle = len(now.stats.workers) - len(at_work)
    rows = [
        [
            worker.name,
            f"{worker.rows:,}",
            f"{worker.busy_s:,.1f}",
            _percent(worker.busy_s / now.run_s if now.run_s else 0),
        ]
        for worker in at_work
    ]
    table = _table(("", "rows", "busy s", "of the time"), rows) if rows else ""
    return table + (f'<p class="note">and {idle:,} that had nothing to do</p>' if idle else "")


def _functions(functions: Mapping[str, float]) -> str:
    whole = sum(functions.values()) or 1.0
    longest = sorted(functions.items(), key=lambda item: -item[1])
    rows = [[name, f"{seconds:,.1f}", _percent(seconds / whole)] for name, seconds in longest]
    return _table(("", "s", "share"), rows) if rows else ""


def _tuning(tuning: Mapping[str, Any]) -> tuple[str, str]:
    """Return (HTML table of the numbers that tuning tried, a sentence saying if tuning has settled)."""
    rows = [
        [
            f"{trial['after_s']:.0f}",
            f"{trial['before']} → {trial['tried']}",
            f"{trial['gain']:.2f}",
            "kept" if trial["kept"] else "taken back",
            trial["why"],
        ]
        for trial in tuning["trials"]
    ]
    state = "Settled." if tuning["settled"] else "Not settled yet."
    return (_table(("after s", "workers", "times as fast", "", "why"), rows) if rows else ""), state


def _bad(known: Mapping[str, Any], stats: sp.Stats) -> str:
    slowest = show_seconds(stats.slowest_read_s)
    said = (
        f"<p>{stats.slow:,} samples or pieces of other work took long enough to be named in the log, "
        f"{stats.stalled:,} of them were given up. {stats.ranges:,} ranges of files were read, for which files were "
        f"opened {stats.opens:,} times. {stats.retries:,} reads were tried again, and the slowest took "
        f"{slowest}. {stats.bad:,} rows could not be made.</p>"
    )
    slow = [
        [sample["what"], sample["path"] or "", sample["doing"], sample["worker"], f"{sample['seconds']:,.1f}"]
        for sample in known["slow_samples"][::-1]
    ]
    if slow:
        said += _table(("slow", "file", "what took long", "who did it", "s, at least"), slow)
    kinds = [[kind, f"{number:,}"] for kind, number in known["bad_kinds"].items()]
    samples = known["bad_samples"][-MOST_ROWS:][::-1]
    rows = [
        [str(sample["epoch"]), str(sample["index"]), sample["path"] or "", sample["place"], sample["reason"]]
        for sample in samples
    ]
    if not rows:
        return said
    newest = f"<p class='note'>The newest {len(rows):,}.</p>" if len(known["bad_samples"]) > len(rows) else ""
    return (
        said
        + _table(("what is wrong", "samples"), kinds)
        + newest
        + _table(("epoch", "record", "file", "place", "what is wrong"), rows)
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table of the first 200 rows. Columns of numbers are aligned to the right."""
    cut = rows[:MOST_ROWS]
    more = f'<p class="note">and {len(rows) - len(cut):,} more</p>' if len(rows) > len(cut) else ""
    kinds = ["number" if all(map(NUMBER.fullmatch, column)) else "" for column in zip(*cut, strict=True)]
    lines = "".join(
        f"<tr>{''.join(_cell('td', cell, kind) for cell, kind in zip(row, kinds, strict=True))}</tr>"
        for row in cut
    )
    titles = "".join(_cell("th", title, kind) for title, kind in zip(head, kinds, strict=True))
    return f'<div class="table"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>{more}'


def _cell(tag: str, text: str, kind: str) -> str:
    kind = "long" if len(text) > LONG_CELL else kind
    return f"<{tag}{f' class={kind}' if kind else ''}>{escape(text)}</{tag}>"


def _percent(share: float) -> str:
    return f"{share:.0%}"
