"""Options of a loader: their defaults stand in one place, and what can't be is refused there."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest

import standpipe as sp
from standpipe.plan.options import JobArguments, LoaderArguments, RunArguments

DEFAULTS = {each.name: each.default for each in fields(sp.LoaderOptions)}


def test_the_three_lists_of_options_are_one() -> None:
    """``plan`` writes them out, ``LoaderArguments`` has their types, ``LoaderOptions`` their defaults."""
    parameters = list(inspect.signature(sp.Pipeline.plan).parameters.values())
    assert (parameters[0].name, parameters[-1].kind) == ("self", inspect.Parameter.VAR_KEYWORD)
    assert {each.name: each.default for each in parameters[1:-1]} == DEFAULTS
    assert {each.kind for each in parameters[1:-1]} == {inspect.Parameter.KEYWORD_ONLY}
    written = get_type_hints(sp.Pipeline.plan)
    types = {each.name: written[each.name] for each in parameters[1:-1]}
    assert types == get_type_hints(sp.LoaderArguments) == get_type_hints(sp.LoaderOptions)


@pytest.mark.parametrize(
    ("function", "passes_on"),
    [
        (sp.Pipeline.loader, LoaderArguments),
        (sp.Pipeline.maker, LoaderArguments),
        (sp.Pipeline.run_filters, JobArguments),
        (sp.fill_cache, LoaderArguments),
        (sp.digest_epoch, LoaderArguments),
        (
            "standpipe.torch",
            RunArguments,
        ),  # that of JAX is in tests/for_jax: a process that imports JAX must not fork
        ("standpipe.ray", LoaderArguments),
    ],
)
def test_a_checker_knows_the_options_that_are_passed_on(function: Any, passes_on: type) -> None:
    if isinstance(function, str):
        function = pytest.importorskip(function).loader
    last = list(inspect.signature(function).parameters.values())[-1]
    assert last.kind is inspect.Parameter.VAR_KEYWORD
    assert last.annotation.rpartition(".")[2] in (f"Unpack[{passes_on.__name__}]", f"{passes_on.__name__}]")


def test_the_drop_in_takes_some_of_them_with_their_defaults() -> None:
    torch = pytest.importorskip("standpipe.torch")
    parameters = inspect.signature(torch.DataLoader).parameters
    shared = parameters.keys() & DEFAULTS.keys() - {"executor", "num_workers"}  # those are torch's own
    assert len(shared) == 8
    assert {name: parameters[name].default for name in shared} == {name: DEFAULTS[name] for name in shared}


def test_what_is_passed_on_arrives() -> None:
    given: dict[str, Any] = {
        "memory": "200MiB",
        "num_workers": 1,
        "executor": "thread",
        "prefetch": 2,
        "autotune": False,
        "large_image_memory": "20MiB",
        "batch_release_timeout_s": 1,
        "reads": sp.ReadOptions(retries=1),
        "slow_sample_s": 2,
        "stall_timeout_s": None,
        "start_timeout_s": 3.0,
        "initializer": print,
        "check_generators": False,
        "error_log": "bad.jsonl",
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
        ("num_workers", 0),
        ("num_workers", 1.5),
        ("executor", "fork"),
        ("prefetch", 0),
        ("prefetch", None),
        ("autotune", "yes"),
        ("large_image_memory", -1),
        ("memory_per_worker", "1 XB"),
        ("batch_release_timeout_s", -1),
        ("batch_release_timeout_s", float("nan")),
        ("reads", {"retries": 1}),
        ("slow_sample_s", 0),
        ("stall_timeout_s", 0),
        ("start_timeout_s", "soon"),
        ("mp_context", "server"),
        ("initializer", "setup"),
        ("round_robin", 1),
        ("check_generators", None),
        ("error_log", ""),
        ("device", "cuda"),
    ],
)
def test_a_value_that_can_not_be_is_refused_when_it_is_given(name: str, value: object) -> None:
    with pytest.raises(sp.PlanError, match=name):
        replace(sp.LoaderOptions(), **{name: value})


def test_nobody_changes_them() -> None:
    with pytest.raises(FrozenInstanceError):
        sp.LoaderOptions().memory = 1  # type: ignore[misc]
