"""What the tuner comes to, on runs that are made up: their rates by workers and slots are known."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.engine.tuner.climbing import Bounds, Seen, Setting, Tuner

WINDOW_S = 1.0
MOST = Setting(64, 32)
LONG = 110  # windows: before it is time to try all once more


@dataclass(frozen=True)
class Run:
    """A run whose rates are known.

    cores    of the machine
    cpu_s    of a row, on a processor
    idle_s   of a row, waiting for something else
    alone    whether only one worker computes at a time, as in one interpreter
    steps    rows/s that the training loop can take
    per_slot workers that find work in a slot; one slot is the training loop's
    foreseen whether the plan knows how many slots workers need
    noise    share by which a window is off
    """

    cores: int = 4
    cpu_s: float = 1e-3
    idle_s: float = 0.0
    alone: bool = False
    steps: float = 1e9
    per_slot: int = 64
    foreseen: bool = True
    noise: float = 0.03

    def input(self, setting: Setting) -> float:
        """Rows/s that come."""
        cores, at_work = 1 if self.alone else self.cores, self.at_work(setting)
        crowd = max(at_work * self.cpu_s / (self.cpu_s + self.idle_s) / cores, 1.0)
        able = min(at_work / (self.cpu_s + self.idle_s), cores / self.cpu_s)
        return able / (1 + 0.02 * (crowd - 1))

    def at_work(self, setting: Setting) -> int:
        """Workers that find work."""
        return min(setting.workers, self.per_slot * (setting.slots - 1))

    def rate(self, setting: Setting) -> float:
        """Rows/s that the training loop takes."""
        return min(self.input(setting), self.steps)

    def seen(self, setting: Setting, after_s: float, chance: random.Random) -> Seen:
        """What a window shows."""
        rate = self.rate(setting) * (1 + self.noise * chance.uniform(-1, 1))
        found = self.at_work(setting) / setting.workers
        return Seen(
            after_s=after_s,
            rows_per_s=rate,
            wait_share=max(1 - self.rate(setting) / self.steps, 0.0),
            busy=min(self.rate(setting) / self.input(setting) * found, 1.0),
            on_cpu=self.cpu_s / (self.cpu_s + self.idle_s),
        )


@dataclass
class Outcome:
    """A tuner that has seen a run, and all the settings that it wanted."""

    tuner: Tuner
    settings: list[Setting]
    settled_after: int

    @property
    def last(self) -> Setting:
        """What it runs with now."""
        return self.settings[-1]


def bounds(
    run: Run, most: Setting, *, waits: bool = True, workers: bool = True, slots: bool = True
) -> Bounds:
    def slots_for(number: int) -> int:
        return min(1 + -(-number // run.per_slot), most.slots) if run.foreseen else 2

    return Bounds(most, workers, slots, waits, slots_for)


def tuned(
    run: Run | Callable[[int], Run],
    begin: Setting,
    most: Setting = MOST,
    *,
    windows: int = 40,
    seed: int = 0,
    waits: bool = True,
    cores: Callable[[int], int] | None = None,
) -> Outcome:
    of = run if callable(run) else lambda _: run
    share = cores or (lambda number: of(number).cores)
    tuner = Tuner(begin, bounds(of(0), most, waits=waits), share(0), lambda wanted: True)
    chance, settings, settled = random.Random(seed), [begin], 0
    for now in range(1, windows + 1):
        tuner.cores = share(now)
        tuner.see(of(now).seen(tuner.setting, now * WINDOW_S, chance))
        settings.append(tuner.setting)
        if not tuner.settled:
            settled = now
    return Outcome(tuner, settings, settled)


def best(run: Run, most: Setting) -> float:
    return max(
        run.rate(Setting(workers, slots))
        for workers in range(1, most.workers + 1)
        for slots in range(2, most.slots + 1)
    )


NATIVE = Run()
LATENCY = Run(cpu_s=1e-4, idle_s=20e-3)
INTERPRETER = Run(cpu_s=1e-3, alone=True)
MIXED = Run(cpu_s=2e-3, idle_s=4e-3)
SLOTS = Run(cores=16, per_slot=2, foreseen=False)


@pytest.mark.parametrize(
    "run", [NATIVE, LATENCY, INTERPRETER, MIXED, SLOTS, Run(cores=1), replace(LATENCY, steps=900)]
)
@pytest.mark.parametrize("seed", range(5))
def test_it_comes_to_the_best_setting_in_half_a_minute_and_stays(run: Run, seed: int) -> None:
    most = Setting(run.cores if run is NATIVE else 64, 32)
    outcome = tuned(run, Setting(run.cores, 2), most, windows=LONG, seed=seed, waits=run is not NATIVE)
    assert run.rate(outcome.last) >= 0.95 * best(run, most)
    assert outcome.settled_after <= 30
    assert set(outcome.settings[outcome.settled_after + 1 :]) == {outcome.last}


@given(
    cores=st.integers(1, 16),
    cpu_s=st.floats(1e-4, 1e-2),
    idle_s=st.just(0.0) | st.floats(1e-4, 0.1),
    alone=st.booleans(),
    steps=st.floats(50, 1e5),
    per_slot=st.integers(1, 64),
    noise=st.floats(0, 0.03),
    most=st.builds(Setting, st.integers(1, 64), st.integers(2, 32)),
    begin=st.integers(1, 16),
    seed=st.integers(0, 1000),
)
def test_it_stays_within_the_bounds_settles_and_does_not_swing(
    cores: int,
    cpu_s: float,
    idle_s: float,
    alone: bool,
    steps: float,
    per_slot: int,
    noise: float,
    most: Setting,
    begin: int,
    seed: int,
) -> None:
    run = Run(cores, cpu_s, idle_s, alone, steps, per_slot, noise=noise)
    outcome = tuned(run, Setting(min(begin, most.workers), 2), most, windows=LONG, seed=seed)
    assert all(
        1 <= each.workers <= most.workers and 2 <= each.slots <= most.slots for each in outcome.settings
    )
    assert outcome.tuner.settled
    assert len(set(outcome.settings[LONG // 2 :])) == 1
    assert run.rate(outcome.last) >= 0.85 * best(run, most)


def test_workers_that_the_training_loop_does_not_need_are_given_back() -> None:
    run = Run(cores=16, steps=3000)
    outcome = tuned(run, Setting(16, 2), Setting(16, 32), waits=False)
    assert outcome.last.workers == 4  # three would do, without anything in reserve
    assert run.rate(outcome.last) == 3000
    (trial,) = outcome.tuner.trials
    assert (trial.setting, trial.before, trial.tried, trial.kept) == ("num_workers", 16, 4, True)
    assert "training loop limits the run" in str(trial)


def test_workers_come_back_when_the_training_loop_needs_them_again() -> None:
    def run(window: int) -> Run:
        return Run(cores=16, steps=3000 if window < 100 else 1e9)

    outcome = tuned(run, Setting(16, 2), Setting(16, 32), windows=2 * LONG, waits=False)
    assert outcome.settings[99].workers == 4
    assert outcome.settings[115].workers >= 12
    assert outcome.last.workers >= 12


def test_what_was_misjudged_is_tried_once_more() -> None:
    """Whatever came in between."""

    def run(window: int) -> Run:
        return replace(LATENCY, idle_s=1.0) if window == 3 else LATENCY

    outcome = tuned(run, Setting(2, 2), windows=2 * LONG)
    assert outcome.settings[LONG] == Setting(2, 2)
    assert LATENCY.rate(outcome.last) >= 0.95 * best(LATENCY, MOST)


def test_where_another_rank_is_slower_a_loop_that_waits_less_is_worth_a_worker() -> None:
    """Ranks go in step: none is faster before all are."""
    ranks = [Tuner(Setting(2, 2), bounds(LATENCY, MOST), 4, lambda wanted: True) for _ in range(3)]
    chance = random.Random(0)
    for window in range(LONG):
        rates = [LATENCY.input(rank.setting) for rank in ranks]
        for rank, rate in zip(ranks, rates, strict=True):
            alone = LATENCY.seen(rank.setting, window, chance)
            slowest = min(rates) * (1 + 0.03 * chance.uniform(-1, 1))
            busy = min(min(rates) / rate, 1.0)
            rank.see(replace(alone, rows_per_s=slowest, wait_share=min(slowest / rate, 1.0), busy=busy))
    assert min(rank.kept.workers for rank in ranks) >= 32


def test_of_processors_that_others_compute_on_a_share_is_used() -> None:
    def cores(window: int) -> int:
        return 8 if window < 50 else 4

    outcome = tuned(Run(cores=8), Setting(8, 2), Setting(8, 32), windows=LONG, waits=False, cores=cores)
    assert outcome.settings[49].workers == 8
    assert outcome.last.workers == 4
    why = "other loaders compute too, and 4 processors are for this one"
    assert why in [trial.why for trial in outcome.tuner.trials]


def test_nothing_is_tried_without_the_turn() -> None:
    turns: list[bool] = []

    def turn(wanted: bool) -> bool:
        turns.append(wanted)
        return len(turns) > 20

    tuner = Tuner(Setting(2, 2), bounds(LATENCY, Setting(64, 32)), 4, turn)
    chance = random.Random(0)
    for window in range(15):
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.setting == Setting(2, 2)
    for window in range(15, 60):
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.setting.workers > 16
    assert turns[-1] is False  # given back


def test_a_turn_that_somebody_keeps_is_not_waited_for_for_ever() -> None:
    tuner = Tuner(Setting(2, 2), bounds(LATENCY, MOST), 4, lambda wanted: False)
    chance = random.Random(0)
    for window in range(LONG):
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.setting.workers > 16


def test_workers_that_can_not_be_had_are_not_asked_for_again() -> None:
    tuner = Tuner(Setting(2, 2), bounds(LATENCY, Setting(64, 32)), 4, lambda wanted: True)
    chance, wanted = random.Random(0), []
    for window in range(60):
        if tuner.setting.workers > 5:
            tuner.limit(5)
        wanted.append(tuner.setting.workers)
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.setting.workers == 5
    assert tuner.settled


def test_a_processor_that_is_idle_by_chance_gets_another_worker() -> None:
    """Two that each need half of it leave it idle whenever both wait."""
    tuner = Tuner(Setting(2, 2), bounds(LATENCY, MOST), 1, lambda wanted: True)
    wanted = set()
    for window in range(20):
        tuner.see(Seen(after_s=window, rows_per_s=100, wait_share=0.9, busy=0.85, on_cpu=0.52))
        wanted.add(tuner.setting.workers)
    assert wanted == {1, 2, 3}


def test_of_all_that_is_tried_in_a_long_run_the_newest_is_remembered() -> None:
    """The run changes now and then, as where other loaders come and go."""
    outcome = tuned(
        lambda now: replace(LATENCY, steps=900) if now // 200 % 2 else LATENCY,
        Setting(2, 2),
        Setting(64, 32),
        windows=40_000,
    )
    afters = [trial.after_s for trial in outcome.tuner.trials]
    assert len(afters) == 100
    assert afters == sorted(afters)
    assert afters[-1] > 0.9 * 40_000 * WINDOW_S


def test_fixed_settings_stay() -> None:
    fixed = bounds(LATENCY, Setting(64, 32), workers=False, slots=False)
    tuner = Tuner(Setting(2, 2), fixed, 4, lambda wanted: True)
    chance = random.Random(0)
    for window in range(60):
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.setting == Setting(2, 2)
    assert tuner.trials == []


def test_workers_that_the_memory_has_no_room_for_are_not_kept() -> None:
    tuner = Tuner(Setting(2, 2), bounds(LATENCY, MOST), 4, lambda wanted: True)
    chance, wanted = random.Random(0), set()
    for window in range(60):
        if tuner.setting.workers > 8:
            tuner.room = 10  # now that so many are there, it shows what they take
        wanted.add(tuner.setting.workers)
        tuner.see(LATENCY.seen(tuner.setting, window, chance))
    assert tuner.settled
    assert tuner.setting.workers <= 10
    assert "memory has no room for so many" in [trial.why for trial in tuner.trials]
    assert len(wanted) < 8
