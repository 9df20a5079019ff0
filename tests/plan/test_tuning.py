"""What a loader says of its tuning, and the file form of that."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from photos import write_photos


def doubled(x: Any) -> Any:
    return x * 2


def numbers() -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(64, dtype=np.float32))).batch(4)


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_settings_written_down_load_back_with_python_code_too(tmp_path: Path, executor: Any) -> None:
    pipeline = numbers().map(doubled, field="x")
    path = tmp_path / "tuned.json"
    with pipeline.loader(memory="512MiB", executor=executor) as loader:
        expected = [batch["x"].tolist() for batch in loader]
        tuning = loader.tuning()
        tuning.save(path)
    with pipeline.loader(memory="512MiB", **sp.load_tuning(path)) as loader:
        assert (loader.plan.num_workers, loader.plan.prefetch) == (tuning.num_workers, tuning.prefetch)
        assert loader.plan.pool.executor.value == executor
        assert [batch["x"].tolist() for batch in loader] == expected
        assert loader.tuning().settled  # nothing is left to be tuned
    assert sp.load_tuning(path) == tuning.settings


def test_what_is_printed_is_code(tmp_path: Path) -> None:
    tuning = sp.Tuning(3, 5, "process", 8, settled=True)
    with numbers().map(doubled, field="x").loader(**eval(f"dict({tuning})"), memory="512MiB") as loader:
        assert (loader.plan.num_workers, loader.plan.prefetch, loader.plan.pool.executor.value) == (
            3,
            5,
            "process",
        )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no tuned settings"),
        ("[]", "the version isn't 1"),
        ('{"standpipe_tuning": 2}', "the version isn't 1"),
        ('{"standpipe_tuning": true}', "the version isn't 1"),
        ('{"standpipe_tuning": 1.0}', "the version isn't 1"),
        ('{"standpipe_tuning": 1, "num_workers": 0, "prefetch": 1, "executor": "thread"}', "num_workers=0"),
        (
            '{"standpipe_tuning": 1, "num_workers": 2, "prefetch": true, "executor": "thread"}',
            "prefetch=True",
        ),
        (
            '{"standpipe_tuning": 1, "num_workers": 2, "prefetch": 1, "executor": "fork"}',
            "executor must be .* got 'fork'",
        ),
        ("[" * 30_000, "has no tuned settings"),
        (" " * 100_000, "larger than"),
        ("\x00\xff", "has no tuned settings"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(sp.PlanError, match=what):
        sp.load_tuning(path)


@given(
    st.dictionaries(
        st.sampled_from(["standpipe_tuning", "num_workers", "prefetch", "executor", "settled"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("thread"),
    )
)
def test_whatever_a_file_says_it_is_settings_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("tuned") / "tuned.json"
    path.write_text(json.dumps({"standpipe_tuning": 1, **value}))
    try:
        settings = sp.load_tuning(path)
    except sp.PlanError:
        return
    sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(2).plan(memory="16GiB", **{**settings, "prefetch": 1})


def test_numbers_that_are_given_stay() -> None:
    plan = numbers().map(doubled, field="x").plan(memory="512MiB", num_workers=3)
    assert (plan.num_workers, plan.pool.most_workers, plan.tunes_workers) == (3, 3, False)
    plan = numbers().map(doubled, field="x").plan(memory="512MiB", prefetch=2)
    assert (plan.slots, plan.tunes_workers) == (3, True)
    plan = numbers().map(doubled, field="x").plan(memory="512MiB", prefetch="auto", num_workers="auto")
    assert plan.tunes_workers
    plan = numbers().map(doubled, field="x").plan(memory="512MiB", autotune=False)
    assert (plan.pool.most_workers, plan.tunes_workers) == (plan.num_workers, False)
    with pytest.raises(sp.PlanError, match="autotune must be True or False, got 1"):
        numbers().plan(autotune=1)  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="prefetch must be 'auto' or an integer"):
        numbers().plan(prefetch="many")  # type: ignore[arg-type]


def test_workers_that_may_be_tried_fit_the_budget() -> None:
    for memory in ("100MiB", "200MiB", "2GiB"):
        plan = numbers().map(doubled, field="x").plan(memory=memory, executor="thread")
        threads = plan.pool.cost.of(plan.pool.most_workers)
        assert plan.num_workers <= plan.pool.most_workers <= 64
        assert plan.forecast.workers == threads
        assert plan.forecast.allocated <= plan.memory_bytes
        rest = (
            plan.memory_bytes
            - plan.memory.batches_bytes
            - threads
            - plan.forecast.engine
            - plan.forecast.side
        )
        assert rest >= plan.forecast.index
    native = sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).plan(memory="2GiB")
    assert native.pool.most_workers == native.num_workers  # they compute: one for each processor
    stream = sp.Pipeline(sp.IterableSource(lambda: iter([{"x": 1}]))).batch(4).plan(memory="2GiB")
    assert (stream.pool.most_workers, stream.tunes_workers) == (1, False)


@pytest.mark.parametrize(("rows", "slots", "most"), [(256, 3, 64), (32, 5, 64), (4, 33, 64)])
def test_slots_are_for_the_most_workers_that_may_be_tried(rows: int, slots: int, most: int) -> None:
    """Two rows in hand for each, and one batch that the caller holds; all of them in the forecast."""
    described = sp.Pipeline(sp.Arrays(x=np.arange(256.0))).map(doubled, field="x").batch(rows)
    plan = described.plan(memory="1GiB", executor="thread")
    assert (plan.pool.most_workers, plan.slots) == (most, slots)
    assert plan.forecast.slots == slots * plan.batch.layout.stride_bytes
    assert f"{slots} slots of" in plan.explain()
    assert f"up to {most} are tried" in plan.explain()
    assert described.plan(memory="1GiB", executor="thread", prefetch=1).slots == 2
    assert described.plan(memory="1GiB", executor="thread", autotune=False).slots <= slots


@pytest.mark.parametrize(("rows", "filling"), [(256, 1), (96, 2), (32, 6), (1, 192)])
def test_slots_of_small_images_hold_three_times_the_rows_that_are_read_at_once(
    tmp_path: Path, rows: int, filling: int
) -> None:
    small = sp.Pipeline(write_photos(tmp_path, 8)).map(sp.Resize((8, 8))).batch(rows, last_batch="pad")
    assert small.plan(memory="1GiB", num_workers=2).slots == 1 + filling
    large = sp.Pipeline(write_photos(tmp_path, 8)).map(sp.Resize((1024, 1024))).batch(8, last_batch="pad")
    assert large.plan(memory="1GiB", num_workers=2).slots == 1 + 1 + 2  # of 24 MiB: 64 MiB more at most
    copied = sp.Pipeline(sp.Arrays(x=np.arange(512))).batch(rows)
    assert copied.plan(memory="1GiB", num_workers=2).slots == 1 + -(-8 // rows)


def test_workers_that_need_much_memory_in_slots_are_not_tried(tmp_path: Path) -> None:
    photos = sp.Pipeline(write_photos(tmp_path, 8)).map(sp.Resize((1024, 1024)))
    large = photos.map(doubled, field="label").batch(1)
    plan = large.plan(memory="8GiB", executor="thread")
    begin = large.plan(memory="8GiB", executor="thread", autotune=False)
    assert begin.num_workers == plan.num_workers < plan.pool.most_workers < 64
    assert begin.slots < plan.slots <= begin.slots + 21  # 64 MiB


def test_a_loader_that_tunes_tries_something_and_its_batches_stay_the_same() -> None:
    """A function that draws and waits, so that more threads are tried."""
    import time

    def waits(x: Any, rng: np.random.Generator) -> Any:
        time.sleep(0.002)
        return x + rng.random()

    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(256.0))).shuffle(seed=3).map(waits, field="x").batch(8)
    with pipeline.loader(memory="512MiB", num_workers=1, executor="thread") as loader:
        expected = [batch["x"].tolist() for batch in loader]
    with pipeline.loader(memory="512MiB", executor="thread") as loader:
        most = loader.plan.pool.most_workers
        while not any(trial.kept for trial in loader.tuning().trials):
            loader.set_epoch(0)
            assert [batch["x"].tolist() for batch in loader] == expected
            assert loader.stats().transform.threads <= most
        trial = loader.tuning().trials[0]
        assert trial.before == loader.plan.num_workers
        assert trial.why in " ".join(loader.explain().split())
        run: Any = loader._run
        while True:  # until both are of one time: the thread that fills batches may begin another
            since = run.monitor.since
            later, diagnosis = loader.stats() - since, loader.diagnose()
            if run.monitor.since is since:
                break
        assert since.step.steps > 0
        assert diagnosis.wait_share == pytest.approx(later.step.wait_share, abs=0.2)  # a step later


def test_before_the_first_batch_it_is_what_is_planned(tmp_path: Path) -> None:
    loader = sp.Pipeline(write_photos(tmp_path, 8)).map(sp.Resize((8, 8))).batch(2).loader(memory="128MiB")
    tuning = loader.tuning()
    assert (tuning.num_workers, tuning.prefetch, tuning.settled) == (
        loader.plan.num_workers,
        loader.plan.prefetch,
        False,
    )
    assert "not settled yet" in loader.explain()
    assert loader.explain().startswith(loader.plan.explain())
