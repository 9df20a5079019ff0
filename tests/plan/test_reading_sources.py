from __future__ import annotations

import numpy as np
import pytest

import standpipe as sp
from standpipe.contracts import OpenSource, Source

ROWS = 8


class Reading:
    """Arrays, of which each record takes 1,000 bytes when it is looked up."""

    def open(self) -> OpenSource:
        opened = sp.Arrays(x=np.arange(100)).open()
        reading = type("OpenReading", (), {"__getattr__": lambda _, name: getattr(opened, name)})()
        reading.record_bytes = 1000
        result: OpenSource = reading
        return result

    def describe(self) -> str:
        return "Reading()"


@pytest.mark.parametrize(
    "source",
    [
        Reading(),
        sp.Concat(sp.Arrays(x=np.arange(3)), Reading()),
        sp.Mixture({sp.Pipeline(Reading()): 1, sp.Pipeline(sp.Arrays(x=np.arange(300))): 1}),
    ],
    ids=lambda source: type(source).__name__,
)
def test_the_forecast_counts_what_a_source_reads_for_each_row(source: Source) -> None:
    plan = sp.Pipeline(source).batch(ROWS).plan(memory="512MiB", num_workers=1)
    assert plan.forecast.waiting == plan.slots * ROWS * 1000


def test_the_forecast_counts_nothing_for_arrays() -> None:
    plan = sp.Pipeline(sp.Arrays(x=np.arange(100))).batch(ROWS).plan(memory="512MiB", num_workers=1)
    assert plan.forecast.waiting == 0
