"""The simulation of a large fleet: every batch once, few duplicates, and tables that don't grow."""

from __future__ import annotations

import importlib
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
STEPS = 600


@pytest.fixture
def ray_fleet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ray_fleet")


def failing(ray_fleet: Any) -> Any:
    fleet = ray_fleet.Fleet(actors=16, trainers=4, node=4, prefetch=21)
    return replace(
        ray_fleet.everything(fleet), fails_after_s=200.0, node_every_s=100.0, all_every_s=100.0, away_s=20.0
    )


def test_every_trainer_takes_every_batch_once_while_actors_and_nodes_fail(ray_fleet: Any) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    counts = ray_fleet.Simulation(
        failing(ray_fleet), STEPS, 1, lambda rank, batch: taken[rank].append(batch)
    ).run()
    assert taken == [list(range(STEPS))] * 4
    assert counts.failures > 30
    assert counts.asked_again > 50
    assert counts.duplicates <= 0.03
    assert max(counts.under_way) <= 2 * 16 + 16  # two in each hand; and duplicates, in idle hands
    makers, window, remembered = 16, 21, 65
    assert max(counts.entries) <= makers + 2 * window + 2 * 2 * makers + remembered
    assert statistics.median(counts.recoveries) <= 5  # times that of a batch


def test_the_same_seed_gives_the_same_run(ray_fleet: Any) -> None:
    first, second = (ray_fleet.Simulation(failing(ray_fleet), 100, 3).run() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("slow", [{"slow_batches": 0.02}, {"slow_actors": 0.05}, {"variation": 1.0}])
def test_what_is_slow_costs_few_duplicates_and_little_waiting(ray_fleet: Any, slow: Any) -> None:
    fleet = ray_fleet.Fleet(actors=32, trainers=4, prefetch=41, **slow)
    counts = ray_fleet.Simulation(fleet, 500, 2).run()
    assert counts.duplicates <= 0.03
    assert counts.idle <= 0.2


def test_two_batches_ahead_per_actor_keep_all_actors_at_work(ray_fleet: Any) -> None:
    fleet = ray_fleet.Fleet(actors=8, trainers=1, load=10.0, prefetch=16, variation=0.1)
    counts = ray_fleet.Simulation(fleet, 400, 0).run()
    assert counts.steps / counts.seconds >= 0.95 * 8
