"""Options of a loader: their defaults stand in one place, and what can't be is refused there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest

import standpipe as sp

DEFAULTS = {each.name: each.default for each in fields(sp.LoaderOptions)}


@pytest.mark.parametrize("method", [sp.Pipeline.plan, sp.Pipeline.loader])
def test_methods_take_the_options_with_their_defaults(method: Callable[..., object]) -> None:
    parameters = list(inspect.signature(method).parameters.values())
    assert (parameters[0].name, parameters[-1].kind) == ("self", inspect.Parameter.VAR_KEYWORD)
    assert {each.name: each.default for each in parameters[1:-1]} == DEFAULTS
    assert {each.kind for each in parameters[1:-1]} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_drop_in_takes_some_of_them_with_their_defaults() -> None:
    torch = pytest.importorskip("standpipe.torch")
    parameters = inspect.signature(torch.DataLoader).parameters
    shared = parameters.keys() & DEFAULTS.keys() - {"executor"}  # torch's loader runs code in processes
    assert len(shared) == 8
    assert {name: parameters[name].default for name in shared} == {name: DEFAULTS[name] for name in shared}


def test_what_is_passed_on_arrives() -> None:
    given: dict[str, Any] = {
        "memory": "200MiB",
        "workers": 1,
        "executor": "thread",
        "depth": 3,
        "autotune": False,
        "side_memory": "20MiB",
        "lend_wait_s": 1,
        "reads": sp.Reads(retries=1),
        "slow_after_s": 2,
        "stall_timeout_s": None,
        "start_timeout_s": 3.0,
        "probe": False,
        "decode_device": "cpu",
        "bad_log": "bad.jsonl",
    }
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2)
    assert pipeline.plan(**given).options == sp.LoaderOptions(**given)
    with pipeline.loader(**given) as loader:
        assert loader.plan.options == sp.LoaderOptions(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", "much"),
        ("memory", 0),
        ("workers", 0),
        ("workers", 1.5),
        ("executor", "fork"),
        ("depth", 1),
        ("depth", None),
        ("autotune", "yes"),
        ("side_memory", -1),
        ("worker_memory", "1 XB"),
        ("lend_wait_s", -1),
        ("lend_wait_s", float("nan")),
        ("reads", {"retries": 1}),
        ("slow_after_s", 0),
        ("stall_timeout_s", 0),
        ("start_timeout_s", "soon"),
        ("fork_from", "server"),
        ("in_turn", 1),
        ("probe", None),
        ("decode_device", "gpu"),
        ("bad_log", ""),
        ("device", "cuda"),
    ],
)
def test_a_value_that_can_not_be_is_refused_when_it_is_given(name: str, value: object) -> None:
    with pytest.raises(sp.PlanError, match=name):
        replace(sp.LoaderOptions(), **{name: value})


def test_nobody_changes_them() -> None:
    with pytest.raises(FrozenInstanceError):
        sp.LoaderOptions().memory = 1  # type: ignore[misc]
