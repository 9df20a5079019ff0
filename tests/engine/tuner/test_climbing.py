"""What the tuner comes to, on runs that are made up: their rates by workers are known."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, strategies as st

from standpipe.engine.tuner.climbing import Seen, Tuner

WINDOW_S = 0.8  # a window, and what a change takes to have an effect
RESTING_S = 2.0  # a window while nothing is tried
MOST = 64
LONG = 140  # windows: before it is time to try all once more


@dataclass(frozen=True)
class Run:
    """A run whose rates are known.

    cores    of the machine
    cpu_s    of a row, on a processor
    idle_s   of a row, waiting for something else
    alone    whether only one worker computes at a time, as in one interpreter
    steps    rows/s that the training loop can take
    noise    share by which a window is off
    """

    cores: int = 4
    cpu_s: float = 1e-3
    idle_s: float = 0.0
    alone: bool = False
    steps: float = 1e9
    noise: float = 0.03

    def input(self, workers: int) -> float:
        """Rows/s that come."""
        cores = 1 if self.alone else self.cores
        crowd = max(workers * self.cpu_s / (self.cpu_s + self.idle_s) / cores, 1.0)
        able = min(workers / (self.cpu_s + self.idle_s), cores / self.cpu_s)
        return able / (1 + 0.02 * (crowd - 1))

    def rate(self, workers: int) -> float:
        """Rows/s that the training loop takes."""
        return min(self.input(workers), self.steps)

    def seen(self, workers: int, after_s: float, chance: random.Random) -> Seen:
        """What a window shows."""
        rate = self.rate(workers) * (1 + self.noise * chance.uniform(-1, 1))
        return Seen(
            after_s=after_s,
            rows_per_s=rate,
            wait_share=max(1 - self.rate(workers) / self.steps, 0.0),
            busy=min(self.rate(workers) / self.input(workers), 1.0),
            on_cpu=self.cpu_s / (self.cpu_s + self.idle_s),
        )


@dataclass
class Outcome:
    """A tuner that has seen a run, and all the numbers of workers that it wanted."""

    tuner: Tuner
    workers: list[int]
    settled_after: int

    @property
    def last(self) -> int:
        """What it runs with now."""
        return self.workers[-1]


def tuner_of(
    begin: int,
    most: int = MOST,
    *,
    cores: int = 4,
    waits: bool = True,
) -> Tuner:
    return Tuner(begin, most, cores=cores, waits=waits)


def tuned(
    run: Run | Callable[[int], Run],
    begin: int,
    most: int = MOST,
    *,
    windows: int = 50,
    seed: int = 0,
    waits: bool = True,
    cores: Callable[[int], int] | None = None,
) -> Outcome:
    of = run if callable(run) else lambda _: run
    share = cores or (lambda number: of(number).cores)
    tuner = tuner_of(begin, most, cores=share(0), waits=waits)
    chance, workers, settled = random.Random(seed), [begin], 0
    for now in range(1, windows + 1):
        tuner.cores = share(now)
        tuner.see(of(now).seen(tuner.workers, now * WINDOW_S, chance))
        workers.append(tuner.workers)
        if not tuner.settled:
            settled = now
    return Outcome(tuner, workers, settled)


def best(run: Run, most: int) -> float:
    return max(run.rate(workers) for workers in range(1, most + 1))


NATIVE = Run()
LATENCY = Run(cpu_s=1e-4, idle_s=20e-3)
INTERPRETER = Run(cpu_s=1e-3, alone=True)
MIXED = Run(cpu_s=2e-3, idle_s=4e-3)


@pytest.mark.parametrize(
    "run", [NATIVE, LATENCY, INTERPRETER, MIXED, Run(cores=1), replace(LATENCY, steps=900)]
)
@pytest.mark.parametrize("seed", range(5))
def test_it_comes_to_the_best_number_soon_and_stays(run: Run, seed: int) -> None:
    most = run.cores if run is NATIVE else MOST
    outcome = tuned(run, run.cores, most, windows=LONG, seed=seed, waits=run is not NATIVE)
    assert run.rate(outcome.last) >= 0.95 * best(run, most)
    assert outcome.settled_after * WINDOW_S <= 36
    assert set(outcome.workers[outcome.settled_after + 1 :]) == {outcome.last}


@given(
    cores=st.integers(1, 16),
    cpu_s=st.floats(1e-4, 1e-2),
    idle_s=st.just(0.0) | st.floats(1e-4, 0.1),
    alone=st.booleans(),
    steps=st.floats(50, 1e5),
    noise=st.floats(0, 0.03),
    most=st.integers(1, 64),
    begin=st.integers(1, 16),
    seed=st.integers(0, 1000),
)
def test_it_stays_within_the_bounds_settles_and_does_not_swing(
    cores: int,
    cpu_s: float,
    idle_s: float,
    alone: bool,
    steps: float,
    noise: float,
    most: int,
    begin: int,
    seed: int,
) -> None:
    run = Run(cores, cpu_s, idle_s, alone, steps, noise)
    outcome = tuned(run, min(begin, most), most, windows=LONG, seed=seed)
    assert all(1 <= each <= most for each in outcome.workers)
    assert outcome.tuner.settled
    assert len(set(outcome.workers[LONG // 2 :])) == 1
    assert run.rate(outcome.last) >= 0.85 * best(run, most)


def test_workers_that_the_training_loop_does_not_need_are_given_back() -> None:
    run = Run(cores=16, steps=3000)
    outcome = tuned(run, 16, 16, waits=False)
    assert outcome.last == 4  # three would do, without anything in reserve
    assert run.rate(outcome.last) == 3000
    (trial,) = outcome.tuner.trials
    assert (trial.before, trial.tried, trial.kept) == (16, 4, True)
    assert "the training loop limits the run, and 4 workers are enough for it" in str(trial)


def test_a_loop_that_needs_one_worker_gets_a_sentence_in_the_singular() -> None:
    (trial,) = tuned(Run(cores=16, steps=500), 16, 16, waits=False).tuner.trials
    assert "and one worker is enough for it" in str(trial)


def test_workers_come_back_when_the_training_loop_needs_them_again() -> None:
    def run(window: int) -> Run:
        return Run(cores=16, steps=3000 if window < 100 else 1e9)

    outcome = tuned(run, 16, 16, windows=2 * LONG, waits=False)
    assert outcome.workers[99] == 4
    assert outcome.workers[115] >= 12
    assert outcome.last >= 12


def test_what_was_misjudged_is_tried_once_more() -> None:
    """Whatever came in between."""

    def run(window: int) -> Run:
        return replace(LATENCY, idle_s=1.0) if window in (3, 5) else LATENCY

    outcome = tuned(run, 2, windows=2 * LONG)
    assert outcome.workers[LONG] == 2
    assert LATENCY.rate(outcome.last) >= 0.95 * best(LATENCY, MOST)


def test_where_another_rank_is_slower_a_loop_that_waits_less_is_worth_a_worker() -> None:
    """Ranks go in step: none is faster before all are."""
    ranks = [tuner_of(2) for _ in range(3)]
    chance = random.Random(0)
    for window in range(LONG):
        rates = [LATENCY.input(rank.workers) for rank in ranks]
        for rank, rate in zip(ranks, rates, strict=True):
            alone = LATENCY.seen(rank.workers, window, chance)
            slowest = min(rates) * (1 + 0.03 * chance.uniform(-1, 1))
            busy = min(min(rates) / rate, 1.0)
            rank.see(replace(alone, rows_per_s=slowest, wait_share=min(slowest / rate, 1.0), busy=busy))
    assert min(rank.kept for rank in ranks) >= 32


def test_of_processors_that_others_compute_on_a_share_is_used() -> None:
    def cores(window: int) -> int:
        return 8 if window < 50 else 4

    outcome = tuned(Run(cores=8), 8, 8, windows=LONG, waits=False, cores=cores)
    assert outcome.workers[49] == 8
    assert outcome.last == 4
    why = "other loaders compute too, and 4 processors are for this one"
    assert why in [trial.why for trial in outcome.tuner.trials]


def test_workers_that_can_not_be_had_are_not_asked_for_again() -> None:
    tuner = tuner_of(2)
    chance, wanted = random.Random(0), []
    for window in range(60):
        if tuner.workers > 5:
            tuner.limit(5)
        wanted.append(tuner.workers)
        tuner.see(LATENCY.seen(tuner.workers, window, chance))
    assert tuner.workers == 5
    assert tuner.settled


def test_a_processor_that_is_idle_by_chance_gets_another_worker() -> None:
    """Two that each need half of it leave it idle whenever both wait."""
    tuner = tuner_of(2, cores=1)
    wanted = set()
    for window in range(20):
        tuner.see(Seen(after_s=window, rows_per_s=100, wait_share=0.9, busy=0.85, on_cpu=0.52))
        wanted.add(tuner.workers)
    assert wanted == {1, 2, 3}


def test_of_all_that_is_tried_in_a_long_run_the_newest_is_remembered() -> None:
    """The run changes now and then, as where other loaders come and go."""
    outcome = tuned(
        lambda now: replace(LATENCY, steps=900) if now // 200 % 2 else LATENCY,
        2,
        windows=60_000,
    )
    afters = [trial.after_s for trial in outcome.tuner.trials]
    assert len(afters) == 100
    assert afters == sorted(afters)
    assert afters[-1] > 0.9 * 60_000 * WINDOW_S


def test_workers_that_the_memory_has_no_room_for_are_not_kept() -> None:
    tuner = tuner_of(2)
    chance, wanted = random.Random(0), set()
    for window in range(60):
        if tuner.workers > 8:
            tuner.room = 10  # now that so many are there, it shows what they take
        wanted.add(tuner.workers)
        tuner.see(LATENCY.seen(tuner.workers, window, chance))
    assert tuner.settled
    assert tuner.workers <= 10
    assert "memory has no room for so many" in [trial.why for trial in tuner.trials]
    assert len(wanted) < 8


def test_noise_changes_no_more_than_one_worker_in_an_hour() -> None:
    """No number of workers has an effect, and windows are off by 10% (standard deviation)."""
    begin, near = 4, 0
    for seed in range(60):
        tuner, chance, now_s = tuner_of(begin), random.Random(seed), 0.0
        while now_s < 3600:
            now_s += RESTING_S if tuner.settled else WINDOW_S
            rate = 1000 * chance.gauss(1, 0.1)
            tuner.see(Seen(after_s=now_s, rows_per_s=rate, wait_share=0.3, busy=0.85, on_cpu=0.3))
        assert tuner.trials
        near += abs(tuner.workers - begin) <= 1
    assert near >= 58
