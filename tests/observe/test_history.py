"""A history is short, and says what happened when."""

from __future__ import annotations

import pytest

import standpipe as sp
from observed import counters
from standpipe.observe import History


def run(seconds: range, history: History | None = None, **more: object) -> History:
    history = history or History()
    for second in seconds:
        history.add(counters(second, **more), second << 20)
    return history


def test_a_second_is_a_moment() -> None:
    moments = run(range(11)).moments
    assert [(moment.begin_s, moment.seconds) for moment in moments] == [(second, 1) for second in range(10)]
    last = moments[-1]
    assert (last.steps, last.rows, last.ready) == pytest.approx((10, 1000, 0.5))
    assert (last.bytes, last.memory) == (10**8, 10 << 20)
    assert last.rows_per_s == pytest.approx(1000)
    assert last.wait_share == pytest.approx(0.4)
    assert last.load == pytest.approx(
        {"order": 0.05, "read": 0.3, "transform": 0.95, "batch": 0.1, "device": 0.02}
    )


@pytest.mark.parametrize("seconds", [600, 601, 5000])
def test_however_long_a_run_is_its_history_has_few_moments_and_all_that_happened(seconds: int) -> None:
    history = run(range(seconds + 1))
    moments = history.moments
    assert min(seconds, 300) <= len(moments) <= 600
    assert len(history) == len(moments)
    assert sum(moment.rows for moment in moments) == pytest.approx(1000 * seconds)
    assert sum(moment.seconds for moment in moments) == pytest.approx(seconds)
    assert [moment.begin_s for moment in moments[1:]] == pytest.approx(
        [moment.begin_s + moment.seconds for moment in moments[:-1]]
    )
    assert {round(moment.wait_share, 6) for moment in moments} == {0.4}
    assert moments[-1].memory == seconds << 20  # the most of what became one


def test_neighbours_become_one_of_what_they_were() -> None:
    history = run(range(300))
    run(range(300, 602), history, epoch=3)
    moments = history.moments
    assert [moment.seconds for moment in moments] == [2.0] * 300 + [1.0]
    assert [moment.epoch for moment in moments] == [0] * 149 + [3] * 152  # what is so at its end


def test_what_comes_more_often_than_once_a_second_makes_no_more_moments() -> None:
    history = History()
    for tenth in range(101):
        history.add(counters(tenth / 10), 0)
    assert len(history) == 10
    assert sum(moment.rows for moment in history.moments) == pytest.approx(10_000)


def test_recent_seconds_are_exact_however_long_the_run() -> None:
    history = run(range(2000))
    history.add(counters(2000, rate=1001), 5)  # 3,000 rows in its last second
    recent = history.recent(3)
    assert (recent.begin_s, recent.seconds, recent.rows) == (pytest.approx(1997), 3.0, 5000)
    assert recent.memory == 1999 << 20
    assert run(range(3)).recent(10).rows == 2000
    assert History().recent().rows == 0


def test_recent_seconds_are_as_many_however_often_somebody_looks() -> None:
    history = run(range(20))
    for hundredth in range(2000, 3001):
        history.add(counters(hundredth / 100), 7)
    recent = history.recent(10)
    assert recent.seconds == pytest.approx(10, abs=1)
    assert recent.rows_per_s == pytest.approx(1000)
    assert recent.memory == 7


def test_nothing_happens_before_the_start_and_between_equal_times() -> None:
    history = History()
    history.add(sp.Stats(), 7)
    history.add(counters(0), 7)
    history.add(counters(0), 7)
    assert history.moments == []


def test_an_epoch_that_is_set_back_is_the_one_at_the_end() -> None:
    history = run(range(3), epoch=5)
    history.add(counters(3, epoch=1), 0)
    assert history.recent(10).epoch == 1


@pytest.mark.parametrize("batch_s", [0.7, 1.5, 4.0])
def test_a_batch_counts_in_all_the_seconds_that_it_took(batch_s: float) -> None:
    history = History()
    for second in range(22):
        done = int(second / batch_s + 1e-9)
        step = sp.StepStats(done, 256 * done, step_s=done * batch_s / 4, wait_s=done * batch_s * 3 / 4)
        history.add(sp.Stats(time_s=1000.0 + second, step=step), 0)
    moments = history.moments[: int(21 // batch_s * batch_s)]  # the newest batch isn't there yet
    assert [moment.rows_per_s for moment in moments] == pytest.approx([256 / batch_s] * len(moments))
    assert [moment.steps for moment in moments] == pytest.approx([1 / batch_s] * len(moments))
    assert [moment.wait_share for moment in moments] == pytest.approx([0.75] * len(moments))


def test_a_piece_of_work_counts_where_it_was_done() -> None:
    def pieces(ended: int) -> float:
        return 4.0 * (max(ended, 0) // 4)

    history = History()
    for second in range(14):
        workers = tuple(
            sp.WorkerStats(f"worker {number}", busy_s=pieces(second - number)) for number in range(2)
        )
        busy_s = sum(worker.busy_s for worker in workers)
        history.add(
            sp.Stats(
                time_s=1000.0 + second,
                read=sp.PlaceStats(threads=2, bytes=int(1000 * busy_s), busy_s=busy_s / 4),
                transform=sp.PlaceStats(threads=2, busy_s=busy_s * 3 / 4),
                batch=sp.PlaceStats(threads=1, busy_s=pieces(second)),
                workers=workers,
            ),
            0,
        )
    moments = history.moments
    at_once = [1, *[2] * 11, 1]
    assert [moment.load["transform"] for moment in moments] == pytest.approx([0.375 * n for n in at_once])
    assert [moment.load["read"] for moment in moments] == pytest.approx([0.125 * n for n in at_once])
    assert [moment.bytes for moment in moments] == pytest.approx([1000 * n for n in at_once], abs=1)
    assert [moment.load["batch"] for moment in moments] == pytest.approx([*[1] * 12, 0])  # one isn't done yet


def test_a_pause_has_no_rows() -> None:
    history = History()
    for second in range(30):
        taken_s = float(min(second, 10) + max(second - 20, 0))
        step = sp.StepStats(int(taken_s), int(100 * taken_s), step_s=taken_s, wait_s=0.0)
        history.add(sp.Stats(time_s=1000.0 + second, step=step), 0)
    rows = [moment.rows for moment in history.moments]
    assert rows[:10] == pytest.approx([100] * 10)
    assert sum(rows[10:19]) == 0
    assert rows[20:28] == pytest.approx([100] * 8)
