"""What limits a run: by what was counted of runs that are made to have one limit, and of real ones."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from fleets import Makers
from photos import encoded, picture, write_list
from standpipe._native import latency_bucket
from standpipe.observe import Diagnosis
from standpipe.observe.judge import diagnose
from standpipe.plan.tuning import untried
from standpipe.stats.latency import BUCKETS

LOOP_S = 10.0
ROWS = 1000
NONE = sp.Latency((0,) * BUCKETS)
FREE = sp.PlaceStats(threads=1, rows=ROWS, busy_s=0.01)


def times(seconds: float) -> sp.Latency:
    counts = [0] * BUCKETS
    counts[latency_bucket(int(seconds * 1e9))] = ROWS
    return sp.Latency(tuple(counts))


def counted(wait: float, work: float, *, read: float = 0.0, **more: Any) -> sp.Stats:
    """Ten seconds of a loop that waited for a share of them, while workers worked and read for so many seconds."""
    idle = max(2 * LOOP_S - work - (0 if more.get("reading_ahead") else read), 0.0)
    stats = sp.Stats(
        rows=ROWS,
        order=FREE,
        batch=FREE,
        device=FREE,
        read=sp.PlaceStats(rows=ROWS, busy_s=read, latency=times(read / ROWS)),
        transform=sp.PlaceStats(threads=2, rows=ROWS, busy_s=work, wait_s=idle),
        step=sp.StepStats(steps=100, rows=ROWS, step_s=LOOP_S * (1 - wait), wait_s=LOOP_S * wait),
    )
    return replace(stats, **more)


def workers_of(*rates: float) -> tuple[sp.WorkerStats, ...]:
    return tuple(sp.WorkerStats(f"worker {n}", int(rate * LOOP_S), LOOP_S) for n, rate in enumerate(rates))


def tuning_of(plan: sp.Plan, **more: Any) -> sp.Tuning:
    """What a loader has that was never tuned, unless it is said."""
    return replace(untried(plan), **more)


def in_python(cpu_s: float) -> sp.PlaceStats:
    return sp.PlaceStats(threads=2, rows=ROWS, busy_s=19.0, wait_s=1.0, cpu_s=cpu_s)


SLOW = {"augment": 15.0, "the dataset": 2.0}
READERS = sp.PlaceStats(threads=16, rows=ROWS, busy_s=150.0, wait_s=10.0, latency=times(0.15))
FEW_READS = replace(READERS, busy_s=15.0, wait_s=145.0)

CASES = {
    # what was counted, what else there is; the place, words of it, the rate that is left
    "steps": (counted(0.01, 4.0), {}, "step", "could make 500 rows/s", 500.0),
    "decoding": (counted(0.5, 19.0), {}, "transform", "all 2 workers", 200.0),
    "decoding, cores free": (
        counted(0.5, 19.0), {"cores": 8}, "transform", "num_workers=8 instead of 2, on all cores: about 200 rows/s",
        200.0,
    ),
    "decoding, then storage": (counted(0.5, 15.0, read=5.0), {}, "transform", "all 2 workers", 200.0),
    "reading here": (counted(0.8, 4.0, read=15.0), {}, "read", "a file takes 15.", 500.0),
    "reading ahead": (counted(0.8, 4.0, read=150.0, reading_ahead=True) , {}, "read", "near", 500.0),
    "too few reads at once": (
        replace(counted(0.8, 4.0, reading_ahead=True), read=FEW_READS), {}, "read", "larger batches", 500.0,
    ),
    "Pillow": (counted(0.5, 19.0, foreign=ROWS), {}, "transform", "Pillow decodes 100%", 200.0),
    "Python that computes": (
        counted(0.5, 19.0, transform=in_python(18.0), functions=SLOW), {"executor": "process"},
        "transform", "augment takes 88% of making rows, and computes", 200.0,
    ),
    "Python in turn": (
        counted(0.9, 19.0, transform=in_python(9.5), functions=SLOW), {"executor": "thread"},
        "transform", 'executor="process": about 211 rows/s', 894.7,
    ),
    "Python in turn, beside a loop that computes": (
        counted(0.5, 19.0, transform=in_python(9.5), functions=SLOW, cpu_s=14.5), {"executor": "thread"},
        "transform", 'executor="process": about 138 rows/s', 200.0,
    ),
    "Python that waits": (
        counted(0.5, 19.0, transform=in_python(0.5), functions=SLOW), {"executor": "thread"},
        "transform", "num_workers=4 instead of 2", 200.0,
    ),
    "Python without processors": (
        counted(0.5, 19.0, transform=replace(in_python(5.0), queued_s=12.0), functions=SLOW),
        {"executor": "process"}, "transform", "for a processor, which others have", 200.0,
    ),
    "more workers than cores": (
        counted(0.5, 19.0, transform=replace(in_python(5.0), queued_s=12.0), functions=SLOW),
        {"executor": "process", "cores": 1}, "transform", "num_workers=1: more than", 200.0,
    ),
    "collating": (counted(0.5, 4.0, batch=replace(FREE, busy_s=9.0)), {}, "batch", "putting batches", 200.0),
    "the order": (counted(0.5, 4.0, order=replace(FREE, busy_s=9.0)), {}, "order", "make batches larger", 200.0),
    "the copy": (counted(0.5, 4.0, device=replace(FREE, busy_s=4.0, cpu_s=4.0)), {}, "device", "takes 40%", 200.0),
    "a copy beside the host": (
        counted(0.01, 4.0, device=replace(FREE, busy_s=9.0, cpu_s=0.1)), {}, "device", "takes 90%", 500.0,
    ),
    "a copy beside slow decoding": (
        counted(0.5, 19.0, device=replace(FREE, busy_s=5.0, cpu_s=0.1)), {}, "transform", "all 2 workers", 200.0,
    ),
    "no room": (
        counted(0.4, 8.0, slots=sp.SlotStats(most=2, no_slot_s=3.0)), {"prefetch": 1}, "slots", "prefetch= above 1",
        166.7,
    ),
    "a slow worker": (
        counted(0.5, 19.0, workers=workers_of(10, 100)), {}, "worker", "worker 0 makes 10 rows/s", 200.0,
    ),
    "equal workers": (counted(0.5, 19.0, workers=workers_of(60, 100)), {}, "transform", "all 2", 200.0),
    "small batches": (counted(0.9, 4.0), {}, "transform", "larger than 10 rows", 500.0),
    "small batches of arrays": (
        counted(0.9, 4.0, order=replace(FREE, busy_s=3.0)), {}, "order", "has takes the most, 30%", 332.2,
    ),
    "nobody": (counted(0.9, 0.1), {}, "unknown", "no place is busy", 1000.0),
    "too short a time": (
        replace(counted(0.5, 19.0), step=sp.StepStats(3, 12, 0.0001, 0.0009)), {}, "unknown", "1 ms are too short",
        None,
    ),
    "too few steps": (
        replace(counted(0.5, 19.0), step=sp.StepStats(2, 30, 1, 1)), {}, "unknown", "2 steps are too few", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_place_that_limits_is_named_with_what_to_do(name: str) -> None:
    done, more, place, words, upper = CASES[name]
    settings: Any = {name: more[name] for name in ("executor", "prefetch") if name in more}
    plan = pipeline().plan(**{"memory": "300MiB", "num_workers": 2, "executor": "thread", **settings})
    found = diagnose(done, plan, tuning_of(plan), cores=more.get("cores", 2))
    assert found.place == place
    assert words in " ".join([found.what, *found.advice])
    assert found.upper_rows_per_s == (None if upper is None else pytest.approx(upper, rel=0.01))
    bounds = {"steps": "step", "too few steps": "unknown", "too short a time": "unknown"}
    assert found.bound == bounds.get(name, "input")
    assert max(map(len, str(found).splitlines())) <= 80


def judged(
    done: sp.Stats, *, cores: int = 8, trials: tuple[sp.Trial, ...] = (), **settings: Any
) -> Diagnosis:
    """The diagnosis on a run of two workers that are set, unless ``settings`` say otherwise."""
    plan = pipeline().plan(**{"memory": "300MiB", "num_workers": 2, "executor": "thread", **settings})
    return diagnose(done, plan, tuning_of(plan, num_workers=2, trials=trials), cores=cores)


def tried(before: int, number: int) -> sp.Trial:
    """What didn't pay."""
    return sp.Trial(3.0, before, number, gain=0.98, kept=False, why="the training loop waits")


BUSY = counted(0.5, 19.0, cpu_s=19.0)
NO_ROOM = counted(0.4, 8.0, slots=sp.SlotStats(most=2, no_slot_s=3.0))


def test_what_tuning_does_or_has_rejected_is_not_advised() -> None:
    assert "num_workers=8 instead of 2" in judged(BUSY).advice[0]
    assert "num_workers=" not in " ".join(judged(BUSY, num_workers="auto").advice)
    assert "num_workers=" not in " ".join(judged(BUSY, trials=(tried(2, 4),)).advice)
    assert "num_workers=8" in judged(BUSY, trials=(tried(2, 1),)).advice[0]


def test_batches_in_reserve_are_advised_as_no_loader_takes_them_by_itself() -> None:
    """The loop waits, and at other times the workers wait for it."""
    assert "prefetch= above 1" in judged(NO_ROOM, prefetch=1).advice[0]
    assert "prefetch= above 2" in judged(NO_ROOM).advice[0]


def test_what_is_set_is_not_advised(tmp_path: Path) -> None:
    decoded = sp.Pipeline(write_list(tmp_path, [encoded(picture(0))])).map(sp.Resize((4, 4)))
    cropped = sp.Pipeline(decoded.source).map(sp.RandomResizedCrop(4))
    cache = sp.Cache("diagnosis", "1MiB", directory=tmp_path)
    for described, words in (
        (decoded, {".cache(", "decode("}),
        (decoded.decode("fast"), {".cache("}),
        (decoded.cache(cache), {"decode("}),
        (cropped, {"decode("}),  # whose draws no cache may keep
        (cropped.decode("fast"), {"nothing that can be set"}),
    ):
        plan = described.batch(1).plan(memory="300MiB", num_workers=2)
        advice = " ".join(diagnose(BUSY, plan, tuning_of(plan), cores=2).advice)
        assert {word for word in (".cache(", "decode(", "nothing that") if word in advice} == {
            word[:12] for word in words
        }


def test_nothing_is_foretold_of_what_hardly_worked() -> None:
    idle = counted(0.9999, 19.0, cpu_s=19.0)
    assert judged(idle, cores=2).upper_rows_per_s is None
    assert judged(idle, cores=2).forecasts == {}
    assert "at most" not in str(judged(idle, cores=2))
    assert judged(idle).forecasts == {"after the first advice": pytest.approx(421, rel=0.01)}


def test_no_forecast_is_above_the_next_limit() -> None:
    assert (
        judged(BUSY).fixed_rows_per_s == judged(BUSY).upper_rows_per_s == pytest.approx(200)
    )  # the loop's own
    costly = counted(0.9, 19.0, cpu_s=78.0)
    assert judged(costly).advice[0].startswith("keep what was made")  # processors are all taken


def test_native_workers_without_processors_are_not_told_to_decode_less(tmp_path: Path) -> None:
    decoded = sp.Pipeline(write_list(tmp_path, [encoded(picture(0))])).map(sp.Resize((4, 4))).batch(1)

    def advice(cpu_s: float, cores: int, foreign: int = 0) -> str:
        plan = decoded.plan(memory="300MiB", num_workers=2)
        done = counted(0.9, 19.0, cpu_s=cpu_s, foreign=foreign)
        return " ".join(diagnose(done, plan, tuning_of(plan), cores=cores).advice)

    assert advice(9.0, 8).startswith(
        "cores of its own for this run, or less of what else runs there: about 222 rows/s"
    )
    assert "decode(" not in advice(9.0, 8)
    assert advice(5.0, 1).startswith("num_workers=1: more than there are cores make nothing faster")
    assert 'decode("fast")' in advice(19.0, 2)
    assert 'decode("fast")' in advice(9.0, 1)  # this run has the only one
    assert "store images as JPEG" in advice(9.0, 2, ROWS)  # Pillow's threads wait for one another


def images(dtype: str) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(image=np.zeros((8, 512, 512, 3), np.uint8))).map(sp.ToDtype(dtype)).batch(4)


COPIED = {
    "float32 images": (images("float32"), "uint8 and normalise them on the device, a quarter", 444.4),
    "float16 images": (images("float16"), "half of the bytes of float16", 222.2),
    "uint8 images": (images("uint8"), "image is uint8, and comes at 83 MiB/s", None),
    "other floats": (sp.Pipeline(sp.Arrays(x=np.zeros((64, 9)))).batch(4), "x be float16, a quarter", 444.4),
}


@pytest.mark.parametrize("of", COPIED)
def test_batches_that_take_long_to_copy_could_have_fewer_bytes(of: str) -> None:
    described, words, fixed = COPIED[of]
    done = counted(0.01, 4.0, device=replace(FREE, busy_s=9.0, cpu_s=0.1))
    plan = described.plan(memory="300MiB", num_workers=2)
    found = diagnose(done, plan, tuning_of(plan), cores=2)
    assert found.place == "device"
    assert words in found.advice[0]
    assert found.fixed_rows_per_s == (None if fixed is None else pytest.approx(fixed, rel=0.01))


@pytest.mark.parametrize("decodes", [True, False])
def test_of_a_native_step_nobody_is_told_to_make_it_native(tmp_path: Path, decodes: bool) -> None:
    source = write_list(tmp_path, [encoded(picture(0))]) if decodes else images("uint8").source
    described = sp.Pipeline(source).map(sp.Resize((4, 4))).map(Slow(0), field="image").batch(1)
    plan = described.plan(memory="300MiB", num_workers=2, executor="process")
    assert plan.samples.program is not None
    (step,) = plan.samples.program.native
    done = counted(0.5, 19.0, transform=in_python(18.0), functions={step: 15.0, "Slow": 2.0})
    found = diagnose(done, plan, tuning_of(plan), cores=2)
    assert f"{step} takes 88% of making rows, natively" in found.what
    assert [each for each in found.advice if "native" in each] == []
    assert ('decode("fast")' in found.advice[0]) == decodes


def test_of_a_stream_nobody_is_told_to_give_it_more_workers() -> None:
    described = sp.Pipeline(sp.IterableSource(lambda: iter([{"x": 1}] * 8))).batch(4)
    plan = described.plan(memory="300MiB", num_workers=2, executor="process")
    for cpu_s in (0.5, 19.0):  # it waits, or computes
        done = counted(0.5, 19.0, transform=in_python(cpu_s), functions={"the dataset": 18.0})
        found = diagnose(done, plan, tuning_of(plan), cores=8)
        assert [each for each in found.advice if "num_workers=" in each] == []


def test_of_busy_makers_more_are_advised() -> None:
    plan = pipeline().plan(memory="300MiB", num_workers=1, executor="thread")
    made = Makers([plan, plan])
    for done in (counted(0.5, 19.0, cpu_s=1.0), counted(0.5, 1.0, read=18.0)):
        found = diagnose(done, pipeline().plan(memory="300MiB", fleet=made), tuning_of(plan), cores=1)
        assert "all 2 workers of 2 makers are busy" in found.what
        assert found.advice == ("more makers, such as actors= above this number",)


def test_the_loops_own_rate_bounds_what_the_input_can_bring_where_it_was_measured() -> None:
    plan = pipeline().plan(memory="300MiB", num_workers=2)
    found = diagnose(counted(0.5, 19.0), plan, tuning_of(plan), cores=2, step_rows_per_s=130.0)
    assert found.upper_rows_per_s == 130
    assert found.gain == pytest.approx(1.3)
    empty = diagnose(counted(0.5, 19.0), plan, tuning_of(plan), cores=2, step_rows_per_s=1e7)
    assert empty.upper_rows_per_s is None, "a loop that does nothing tells no limit"


def pipeline(rows: int = 64) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(rows))).batch(4)


class Slow:
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, x: object) -> object:
        pause(self._seconds)
        return x


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def found_of(described: sp.Pipeline, step_s: float, **settings: Any) -> Diagnosis:
    with described.loader(memory="300MiB", num_workers=2, prefetch=2, **settings) as loader:
        for _ in loader:
            pause(step_s)
        return loader.diagnose()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_slow_function_limits_a_real_run(executor: str) -> None:
    found = found_of(pipeline(256).map(Slow(0.01), field="x"), 0.0, executor=executor)
    assert (found.bound, found.place) == ("input", "transform")
    assert "Slow" in found.what
    assert found.advice[0].startswith(("num_workers=4 instead of 2", "cores of its own"))  # on a busy machine


def test_a_slow_loop_limits_a_real_run() -> None:
    with pipeline().loader(memory="300MiB", num_workers=2, prefetch=2) as loader:
        next(iter(loader))
        before = loader.stats()
        for _ in loader:
            pause(0.02)
            while loader.stats().slots.ready == 0:
                pause(0.001)
        found = loader.diagnose(before)
    assert (found.bound, found.place) == ("step", "step")


def test_what_the_loop_takes_without_waiting_is_measured() -> None:
    with (
        pipeline()
        .map(Slow(0.005), field="x")
        .loader(memory="300MiB", num_workers=2, prefetch=2, executor="thread") as loader
    ):
        seen = []
        for batch in loader.benchmark_steps(10, batches=2):
            seen.append(batch["x"].tolist())
            pause(0.005)
        assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]] * 6
        assert next(iter(loader))["x"].tolist() == [0, 1, 2, 3]  # training sees them again
        for _ in loader:
            pause(0.005)
        measured = loader.diagnose()
    assert measured.upper_rows_per_s is not None
    assert measured.upper_rows_per_s > measured.rows_per_s


def test_of_batches_that_are_given_none_are_repeated() -> None:
    with pipeline().batch(4, batch_sampler=True).loader(memory="80MiB", num_workers=1) as loader:
        for steps in (loader.benchmark_steps, loader.steps):
            with pytest.raises(sp.PlanError, match="from_batches"):
                steps(2)


def test_repeated_steps_leave_an_epoch_where_it_was() -> None:
    with pipeline(16).loader(memory="80MiB", num_workers=1) as loader:
        batches = iter(loader)
        first = next(batches)["x"].tolist()
        state = loader.state_dict()
        for _ in loader.benchmark_steps(3, batches=4):
            break
        assert loader.state_dict() == state
        assert [first, *(batch["x"].tolist() for batch in batches)] == np.arange(16).reshape(4, 4).tolist()
        with pytest.raises(sp.PlanError, match="benchmark_steps"):
            loader.benchmark_steps(0)


def fails(x: np.int64) -> np.int64:
    if x in (1, 6):
        raise ValueError(f"no {x}")
    return x


def test_batches_that_are_repeated_are_no_steps_of_training_and_their_bad_samples_come_once() -> None:
    described = pipeline(16).map(fails, field="x").on_error(sp.Replace(at_most=8))
    with described.loader(memory="300MiB", num_workers=1, executor="thread") as loader:
        assert sum(1 for _ in loader.benchmark_steps(6, batches=2)) == 8
        assert loader.stats().step == sp.StepStats(step=NONE, wait=NONE)
        assert loader.bad_samples == []
        assert loader.state_dict()["bad_rows"] == 0
        trained = [batch["x"].tolist() for batch in loader]
        assert loader.stats().step.steps == len(trained) == 4
        places = [(bad.position, bad.attempt) for bad in loader.bad_samples]
    assert len(places) == len(set(places)) >= 2
