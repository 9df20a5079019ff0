"""Draw a report's charts as SVG inside HTML. Colours are CSS classes of the page's style sheet."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby, pairwise
from typing import NamedTuple

import standpipe as sp
from standpipe.units import show_clock, show_seconds

WIDTH, LEFT, RIGHT = 960, 76, 12  # px of a picture, and of its margins
TIMES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400)
MOST_EPOCHS = 24  # whose beginnings are drawn


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis of a chart, from a run's start to ``end_s``.

    epochs  (second at which the epoch begins, number of the epoch)
    """

    end_s: float
    epochs: tuple[tuple[float, int], ...] = ()

    def x(self, second: float) -> float:
        """Return the horizontal position of a second, in px."""
        return LEFT + (WIDTH - LEFT - RIGHT) * second / (self.end_s or 1.0)

    def drawn(self, height: int) -> str:
        """Return SVG of the times below a chart of this height in px, and of lines where epochs begin."""
        step = next(
            (step for step in TIMES if self.end_s / step <= 8), 86400 * math.ceil(self.end_s / 691200)
        )
        times = [step * number for number in range(int(self.end_s / step) + 1)]
        marks = [
            _text(self.x(time), height + 16, show_clock(time), "tick", "middle")
            if self.x(time) < WIDTH - 40
            else _text(WIDTH - 2, height + 16, show_clock(time), "tick", "end")
            for time in times
        ]
        for second, number in self.epochs if len(self.epochs) <= MOST_EPOCHS else ():
            x = self.x(second)
            marks.append(f'<line class="epoch" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
            if x < WIDTH - 70:
                marks.append(_text(x + 3, 9, f"epoch {number}", "tick"))
        return "".join(marks)


class Curve(NamedTuple):
    """The look of a line over a run.

    name    its name, for people who can't see it
    colour  a class of the page's style sheet
    show    function that describes a value in words
    most    value at the top; None: enough for the highest value
    """

    name: str
    colour: str
    show: Callable[[float], str]
    most: float | None = None


def over_time(
    axis: Axis,
    seconds: Sequence[float],
    values: Sequence[float | None],
    curve: Curve,
    *,
    height: int = 120,
    times: bool = True,
) -> str:
    """Return SVG of a step chart over a run.

    seconds  second from which each value holds
    values   one for each of ``seconds``; None leaves a gap
    times    True: draw the time axis below
    """
    name, colour, show, most = curve
    ticks = _ticks(max([value or 0.0 for value in values], default=0.0) if most is None else most)
    top = ticks[-1]
    y = [None if value is None else height - (height - 14) * min(value, top) / top for value in values]
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        + _text(LEFT - 8, at + 4, show(tick), "tick", "end")
        for tick in ticks
        for at in [height - (height - 14) * tick / top]
    )
    return _picture(
        f"{grid}{''.join(_lines(axis, seconds, y, height, colour))}"
        f'{axis.drawn(height) if times else ""}<line class="cursor" y1="0" y2="{height}" x1="-9" x2="-9"/>',
        height + (24 if times else 4),
        name,
        "time",
        shown="|".join("nothing" if value is None else show(value) for value in values),
    )


def _lines(
    axis: Axis, seconds: Sequence[float], y: Sequence[float | None], height: int, colour: str
) -> Iterator[str]:
    """Yield SVG of a step line and the area below, for each stretch of values that aren't None."""
    spans = zip(pairwise([*seconds, axis.end_s]), y, strict=True)
    for drawn, stretch in groupby(spans, lambda each: each[1] is not None):
        if drawn:
            steps = [(axis.x(begin), axis.x(end), at) for (begin, end), at in stretch]
            points = " ".join(f"{begin:.1f},{at:.1f} {end:.1f},{at:.1f}" for begin, end, at in steps)
            area = f"{steps[0][0]:.1f},{height} {points} {steps[-1][1]:.1f},{height}"
            yield f'<polygon class="area {colour}" points="{area}"/>'
            yield f'<polyline class="line {colour}" points="{points}"/>'


def histogram(latency: sp.Latency, name: str, height: int = 90) -> str:
    """Return SVG of a histogram of durations, with a logarithmic time axis."""
    shown = [number for number, count in enumerate(latency.counts) if count]
    first, last = max(shown[0] - 4, 0), shown[-1] + 5
    ends = bucket_ends(last + 1)
    width = (WIDTH / 2 - 2 * RIGHT) / (last - first)
    highest = max(latency.counts)
    bars = "".join(
        f'<rect class="bar" x="{RIGHT + (number - first) * width:.1f}" width="{max(width - 0.5, 0.5):.1f}" '
        f'y="{height - tall:.1f}" height="{tall:.1f}"><title>{count:,} took up to '
        f"{show_seconds(ends[number])}</title></rect>"
        for number, count in enumerate(latency.counts[:last])
        if count
        for tall in [max((height - 6) * count / highest, 1.0)]
    )
    ticks = "".join(
        _text(RIGHT + (number - first) * width, height + 16, show_seconds(time), "tick", "middle")
        for time in _round_times(ends[first], ends[-1], 7)
        for number in [bisect(ends, time)]
    )
    floor = f'<line class="grid" x1="{RIGHT}" x2="{WIDTH // 2 - RIGHT}" y1="{height}" y2="{height}"/>'
    return _picture(bars + floor + ticks, height + 24, name, "histogram", WIDTH // 2)


@dataclass(frozen=True, slots=True)
class Box:
    """One place, such as read or transform, as ``flow`` draws it.

    load    fraction of its threads' time in which it worked, from 0 to 1; None: it has no threads
    texts   lines of text below the box
    limits  True if this place limits the run
    """

    name: str
    load: float | None
    texts: tuple[str, ...]
    limits: bool


def flow(boxes: Sequence[Box]) -> str:
    """Return SVG of the places in the order in which samples pass them; a box's fill shows its load."""
    gap, height = 22, 96
    width = (WIDTH - gap * (len(boxes) - 1) - 4) / len(boxes)
    drawn = []
    for number, box in enumerate(boxes):
        x = 2 + number * (width + gap)
        middle, full = x + width / 2, height * (box.load or 0.0)
        frame = f'x="{x:.1f}" width="{width:.1f}"'
        limits = " limits" if box.limits else ""
        drawn.append(f'<rect class="fill{limits}" {frame} y="{22 + height - full:.1f}" height="{full:.1f}"/>')
        drawn.append(f'<rect class="box{limits}" {frame} y="22" height="{height}" rx="3"/>')
        drawn.append(_text(middle, 13, box.name, "name", "middle"))
        drawn.append(
            _text(
                middle, 22 + height / 2 + 7, "" if box.load is None else f"{box.load:.0%}", "load", "middle"
            )
        )
        drawn += [
            _text(middle, 22 + height + 18 + 16 * line, text, "tick", "middle")
            for line, text in enumerate(box.texts)
        ]
        if number:
            drawn.append(
                f'<path class="arrow" d="M{x - gap + 3:.1f} {22 + height / 2}h{gap - 9}m-4 -4l4 4l-4 4"/>'
            )
    lines = max(len(box.texts) for box in boxes)
    return _picture("".join(drawn), 22 + height + 12 + 16 * lines, "the places and their load", "flow")


@cache
def bucket_ends(number: int) -> list[float]:
    """Return the upper ends, in seconds, of the first buckets of ``Latency.counts``."""
    return [sp.Latency((0,) * before + (1,)).p50 for before in range(number)]


def _round_times(least: float, most: float, number: int) -> list[float]:
    """Return round durations between ``least`` and ``most`` seconds, usually at most ``number`` of them."""
    for between in ((1, 2, 5), (1, 3), (1,)):
        times = [of * 10.0**power for power in range(-7, 4) for of in between]
        inside = [time for time in times if least <= time <= most]
        if len(inside) <= number:
            break
    return inside


def _ticks(most: float) -> list[float]:
    """Return evenly spaced round values for a chart's axis, from 0 to the first one that is at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * of for of in (1, 2, 2.5, 5, 10) if power * of >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(inside: str, height: float, name: str, kind: str, width: float = WIDTH, shown: str = "") -> str:
    values = f' data-shown="{escape(shown)}"' if shown else ""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(name)}"{values}>'
        f"{inside}</svg>"
    )
