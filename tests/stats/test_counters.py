"""Counters: buckets of durations, differences of snapshots, and what a run counts."""

import math
import os
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from forked import output
from photos import WAIT_S, write_photos
from standpipe._native import latency_bucket as bucket
from standpipe.stats.latency import BUCKETS, edges

LONGEST_S = 60
SLOW_S = 0.004


@given(st.integers(1024, LONGEST_S * 10**9))
def test_a_duration_lies_in_its_bucket(nanoseconds: int) -> None:
    begin, end = edges(bucket(nanoseconds))
    assert begin <= nanoseconds / 1e9 < end
    assert end - begin <= begin / 8 * 1.000001


def test_buckets_follow_one_another_and_the_ends_take_all_that_is_beyond() -> None:
    for number in range(BUCKETS - 1):
        assert edges(number)[1] == edges(number + 1)[0]
    assert bucket(0) == bucket(1024) == 0
    assert bucket(1 << 60) == BUCKETS - 1
    assert edges(BUCKETS - 1)[0] == pytest.approx(68.7, abs=0.1)


@given(st.lists(st.integers(1024, LONGEST_S * 10**9), min_size=1), st.sampled_from([0.01, 0.5, 0.9, 1.0]))
def test_a_quantile_is_within_an_eighth_above(durations: list[int], share: float) -> None:
    counts = [0] * BUCKETS
    for duration in durations:
        counts[bucket(duration)] += 1
    found = sp.Latency(tuple(counts)).quantile(share)
    exact = sorted(durations)[math.ceil(share * len(durations)) - 1] / 1e9
    assert exact <= found <= exact * 1.126


def test_of_nothing_there_is_no_quantile() -> None:
    assert sp.Latency().p99 == sp.Latency((0,) * BUCKETS).p50 == 0
    assert str(sp.Latency()) == "Latency(count=0, p50=0, p90=0, p99=0)"


@given(st.integers(0, 1 << 62))
def test_any_duration_is_in_the_last_bucket_that_begins_before_it(nanoseconds: int) -> None:
    begins = [edges(number)[0] for number in range(BUCKETS)]
    assert bucket(nanoseconds) == max(bisect_right(begins, nanoseconds / 1e9) - 1, 0)


def numbers(rows: int) -> sp.Arrays:
    return sp.Arrays(x=np.arange(rows))


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_each_place_counts_what_goes_through(executor: str) -> None:
    pipeline = sp.Pipeline(numbers(12)).map(lambda x: x + 1, field="x").batch(4, batch_sampler=True)
    with pipeline.loader(memory="300MiB", num_workers=2, executor=executor) as loader:
        batches = loader.from_batches([range(begin, begin + 4) for begin in (0, 4, 8)])
        assert sum(len(batch["x"]) for batch in batches) == 12
        stats = loader.stats()
    assert stats.rows == stats.transform.rows == stats.order.rows == stats.batch.rows == 12
    assert stats.device.rows == stats.step.rows == 12
    assert stats.step.steps == stats.step.wait.count == stats.order.latency.count == 3
    assert sum(worker.rows for worker in stats.workers) == 12
    assert 0 < stats.transform.latency.count <= 12
    (name,) = (name for name in stats.functions if "lambda" in name)
    assert 0 < stats.functions[name] <= stats.transform.busy_s
    assert stats.transform.cpu_s > 0
    assert stats.bad == 0


def test_who_has_no_processor_isnt_said_to_wait_for_storage() -> None:
    """Two processes compute on one core."""
    told = output("""
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

        def spins(x):
            ends = time.thread_time() + 0.02
            while time.thread_time() < ends:
                pass
            return x

        pipeline = sp.Pipeline(sp.Arrays(x=np.arange(32))).map(spins, field="x").batch(4)
        with pipeline.loader(memory="300MiB", num_workers=2, executor="process") as loader:
            before = loader.stats()
            list(loader)
            print(loader.diagnose(before).what, loader.stats().transform.queued_s > 0.1)
    """)
    assert "for a processor, which others have True" in told


def test_a_step_ends_when_the_next_batch_is_asked_for() -> None:
    """What the loop does after its last batch of an epoch is a step; what it does between epochs isn't."""
    with sp.Pipeline(numbers(8)).batch(4).loader(memory="80MiB", num_workers=1) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        done = loader.stats().step
    assert (done.steps, done.step.count, done.wait.count) == (4, 4, 4)


def test_who_keeps_his_iterator_doesnt_make_a_step_of_what_comes_between_epochs() -> None:
    with sp.Pipeline(numbers(8)).batch(4).loader(memory="80MiB", num_workers=1) as loader:
        batches = iter(loader)
        assert sum(1 for _ in batches) == 2
        before = loader.stats().step
        batches = iter(loader)
        assert next(batches, None) is not None
        done = loader.stats().step - before
    assert (done.steps, done.step.count) == (1, 0)


def test_rows_that_nobody_wants_any_more_are_no_work(tmp_path: Path) -> None:
    with (
        sp.Pipeline(write_photos(tmp_path, 40))
        .map(sp.CenterCrop(8))
        .batch(8)
        .loader(memory="80MiB", num_workers=1) as loader
    ):
        for _ in range(4):
            next(iter(loader))
    stats = loader.stats()
    assert stats.transform.latency.count == sum(worker.rows for worker in stats.workers) == stats.rows


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_functions_of_a_batch_are_counted_beside_those_of_rows(executor: str) -> None:
    def slow(x: np.int64) -> np.int64:
        threading.Event().wait(SLOW_S)
        return x

    def whole(batch: dict[str, Any]) -> dict[str, Any]:
        return batch

    pipeline = sp.Pipeline(numbers(16)).map(slow, field="x").batch(4, batch_sampler=True).map_batch(whole)
    with pipeline.loader(memory="300MiB", num_workers=1, executor=executor) as loader:
        assert sum(1 for _ in loader.from_batches([range(n, n + 4) for n in (0, 4, 8, 12)])) == 4
        stats = loader.stats()
    rows, batches = (
        next(s for name, s in stats.functions.items() if each in name) for each in ("slow", "whole")
    )
    assert rows > 8 * SLOW_S  # of 16 rows, and some stand for others
    assert 0 < batches < rows


def test_what_happened_between_two_snapshots_is_their_difference() -> None:
    with sp.Pipeline(numbers(64)).batch(4).loader(memory="80MiB", num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        before = loader.stats()
        for _ in range(3):
            next(batches)
        after = loader.stats()
    done = after - before
    assert done.step.steps == 3
    assert done.step.rows == done.device.rows == 12
    assert done.device.latency.count == 3
    assert done.time_s == after.time_s - before.time_s > 0
    assert done.transform.threads == after.transform.threads == 2
    assert done.slots.most == after.slots.most
    nothing = after - after
    assert (nothing.rows, nothing.step.steps, nothing.transform.latency.count) == (0, 0, 0)


def compute(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


def test_the_process_computes_also_outside_of_the_loader() -> None:
    compute(0.2)
    at_start = time.process_time()
    with sp.Pipeline(numbers(64)).batch(4).loader(memory="80MiB", num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        before = loader.stats()
        assert before.cpu_s <= time.process_time() - at_start
        compute(0.1)
        assert (loader.stats() - before).cpu_s >= 0.1


def raises(x: np.int64) -> np.int64:
    if x in (2, 5):
        raise ValueError(f"no {x}")
    return x


def kills(x: np.int64) -> np.int64:
    if x in (2, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def grows(x: np.int64) -> Any:
    return np.arange(20 if x in (2, 5) else 4)


FLOATS = np.where(np.isin(np.arange(8), (2, 5)), np.nan, np.arange(8))
FAILS = {
    "raises": (sp.Pipeline(numbers(8)).map(raises, field="x"), "thread", {}),
    "raises in a process": (sp.Pipeline(numbers(8)).map(raises, field="x"), "process", {}),
    "kills its process": (sp.Pipeline(numbers(8)).map(kills, field="x"), "process", {}),
    "isn't finite": (sp.Pipeline(sp.Arrays(x=FLOATS, y=FLOATS)).check_finite(), "thread", {}),
    "is too large": (sp.Pipeline(numbers(8)).map(grows, field="x"), "thread", {"x": sp.Pad(max_shape=9)}),
}


@pytest.mark.parametrize("why", FAILS)
def test_a_row_that_cant_be_made_counts_once(why: str) -> None:
    pipeline, executor, collate = FAILS[why]
    described = pipeline.on_error(sp.Replace(at_most=8)).batch(8, batch_sampler=True, collate=collate)
    with described.loader(memory="300MiB", num_workers=1, executor=executor) as loader:
        assert sum(1 for _ in loader.from_batches([range(8)])) == 1
        assert loader.stats().bad == len(loader.bad_samples) >= 2


def test_time_without_a_slot_is_counted_when_nothing_can_be_made() -> None:
    """With all slots lent or ready, the workers wait for the loop, not for work."""
    with sp.Pipeline(numbers(64)).batch(4).loader(memory="80MiB", num_workers=1, prefetch=1) as loader:
        batches = iter(loader)
        held = next(batches)
        _until(lambda: loader.stats().slots.no_slot_s > 0)  # while it lasts, and nobody is told of anything
        stats = loader.stats()
        assert (stats.slots.lent, stats.slots.ready, stats.slots.filling) == (1, 1, 0)
        _until(lambda: loader.stats().slots.no_slot_s > stats.slots.no_slot_s)
        del held


def test_without_a_run_all_is_zero() -> None:
    assert sp.Pipeline(numbers(4)).batch(2).loader(memory="80MiB").stats() == sp.Stats()


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        os.sched_yield()
