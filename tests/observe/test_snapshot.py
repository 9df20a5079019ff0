"""A snapshot survives the way to another process; nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from observed import WAITS, counters, shown, small_plan
from standpipe.observe import Snapshot
from standpipe.observe.snapshot import Foreign, facts

NOW = shown(small_plan())
TEXT = NOW.as_json()


def test_it_comes_back_as_it_was() -> None:
    assert Snapshot.from_json(TEXT) == NOW
    open_ended = replace(NOW, diagnosis=replace(WAITS, upper_rows_per_s=None))
    assert Snapshot.from_json(open_ended.as_json()) == open_ended
    assert facts(open_ended)["diagnosis"]["upper_rows_per_s"] is None
    unknown = replace(NOW, diagnosis=None, steps_per_epoch=None, stats=counters(3, workers=(), functions={}))
    assert Snapshot.from_json(unknown.as_json()) == unknown


def test_it_is_a_line() -> None:
    assert str(NOW) == "epoch 0, step 4/10, 1,000 rows/s, waits 40%, memory 29%, limit: transform"
    assert str(shown(small_plan(), diagnosis=None, bad=12)).endswith("memory 29%, 12 bad")
    busy = replace(WAITS, bound="step", place="step")
    assert str(shown(small_plan(), diagnosis=busy)).endswith("limit: step")


def test_its_facts_are_plain_values() -> None:
    plain = json.loads(json.dumps(facts(NOW)))
    assert plain["stats"]["transform"]["latency"]["count"] == 100_000
    assert plain["stats"]["transform"]["latency"]["p50_s"] == pytest.approx(1e-3, rel=0.2)
    assert plain["diagnosis"]["place"] == "transform"
    assert plain["recent"]["load"]["transform"] == pytest.approx(0.95)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, below in inner for path in paths(below, (*at, key)))]


PATHS = paths(json.loads(TEXT))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.just("x" * 5000),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@given(st.sampled_from(PATHS), VALUES, st.booleans())
def test_with_any_value_in_any_place_it_is_a_snapshot_or_foreign(
    path: tuple[Any, ...], value: Any, drop: bool
) -> None:
    whole = json.loads(TEXT)
    if path:
        *above, last = path
        inner = whole
        for key in above:
            inner = inner[key]
        if drop:
            del inner[last]
        else:
            inner[last] = value
    else:
        whole = value
    survives(json.dumps(whole).encode())


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"1" * 10_000, b"", b"null", b"{}", b'{"pid": NaN}', b"\xff"]
)
def test_what_is_no_snapshot_is_foreign(text: bytes) -> None:
    with pytest.raises(Foreign):
        Snapshot.from_json(text)


def survives(text: bytes) -> None:
    try:
        taken = Snapshot.from_json(text)
    except Foreign:
        return
    assert Snapshot.from_json(taken.as_json()) == taken
    assert str(taken)
    json.dumps(facts(taken), allow_nan=False)
