"""Batches of a fleet: the same bytes as without, whatever makers come, end, hang or are late."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from fleets import Makers
from gates import Gate, Log
from photos import WAIT_S, Watched, encoded, picture, write_list
from programs import census, started_since
from samples import Samples
from standpipe.engine.remote import workers as remote
from standpipe.engine.remote.copying import copying
from standpipe.plan.remote_images import sends_bytes
from standpipe.spec import PIXEL_CONTRACT

MEMORY = "400MiB"
ROWS = 40


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_list(folder, [encoded(picture(number)) for number in range(ROWS)])
    return folder / "list.txt"


def images(photos: Path) -> sp.Pipeline:
    crop = sp.RandomResizedCrop(24)
    return (
        sp.Pipeline(sp.FileList(photos))
        .shuffle(seed=3)
        .map(crop, sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(8)
    )


def numbered(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "drawn": rng.random(3), "text": f"sample {sample['x']}"}


def doubled(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**batch, "x": batch["x"] * 2 + rng.integers(5), "apart": np.arange(len(batch["x"]) + 1)}


def fleet(pipeline: sp.Pipeline, makers: int = 2, executor: Any = None, **rest: Any) -> Makers:
    plans = [
        pipeline.plan(num_workers=1, prefetch=3, memory=MEMORY, executor=executor, check_generators=False)
        for _ in range(makers)
    ]
    return Makers(plans, **rest)


def digest(loader: sp.Loader, epochs: int = 2) -> str:
    """A digest of all fields of all batches, and of their order."""
    found = blake2b()
    for _ in range(epochs):
        for batch in loader:
            found.update(repr([of_batch(batch)]).encode())
    return found.hexdigest()


def of_batch(batch: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        (name, (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
        for name, value in sorted(batch.items())
    ]


def masks() -> sp.Pipeline:
    pictures = np.stack([picture(number) for number in range(ROWS)])
    source = sp.Arrays(image=pictures, mask=pictures[..., 0] % 5)
    return sp.Pipeline(source).shuffle(seed=2).map(sp.RandomResizedCrop(24), sp.Normalize()).batch(8)


PIPELINES: dict[str, Callable[[Path], sp.Pipeline]] = {
    "images, normalized here": images,
    "bytes": lambda photos: (
        sp.Pipeline(sp.FileList(photos)).map(sp.CenterCrop(24)).batch(7, last_batch="pad")
    ),
    "erased": lambda photos: images(photos).batch(8).map(sp.RandomErasing(p=0.9)),
    "views": lambda photos: (
        sp.Pipeline(sp.FileList(photos))
        .shuffle(seed=1)
        .map(sp.Views(a=[sp.RandomResizedCrop(16), sp.Normalize()], b=[sp.CenterCrop(8)]))
        .batch(8)
    ),
    "policies": lambda photos: (
        sp.Pipeline(sp.FileList(photos))
        .map(
            sp.RandomResizedCrop(24), sp.AugMix(), sp.TimmRandAugment(), sp.Normalize(), sp.ToDtype("float16")
        )
        .batch(8)
    ),
    "sizes by epoch": lambda photos: (
        sp.Pipeline(sp.FileList(photos))
        .map(sp.RandomResizedCrop(sp.Schedule({0: 16, 1: 24})), sp.Normalize())
        .batch(8)
    ),
    "sizes by step": lambda photos: (
        sp.Pipeline(sp.FileList(photos))
        .map(sp.RandomResizedCrop(sp.PerStep([32, 64])), sp.Normalize())
        .batch(8)
    ),
    "masks": lambda _: masks(),
    "columns": lambda _: (
        sp.Pipeline(sp.Arrays(x=np.arange(40), y=np.eye(40, dtype=np.float16))).shuffle(seed=1).batch(6)
    ),
    "Python": lambda _: (
        sp.Pipeline(sp.MapSource(Samples(lambda n: {"x": n}, 40))).shuffle(seed=1).map(numbered).batch(8)
    ),
    "functions of batches": lambda _: (
        sp.Pipeline(sp.MapSource(Samples(lambda n: {"x": n}, 40))).map(numbered).batch(8).map_batch(doubled)
    ),
    "padded": lambda _: sp.Pipeline(sp.MapSource(Samples(lambda n: {"x": np.arange(n % 5 + 1)}, 40))).batch(
        8, collate={"x": sp.Pad(max_shape=8)}
    ),
    "weighted": lambda _: (
        sp.Pipeline(sp.Arrays(x=np.arange(40))).sample(weights=np.arange(1.0, 41.0), seed=4).batch(8)
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_those_of_local_workers(name: str, photos: Path) -> None:
    pipeline = PIPELINES[name](photos)
    with pipeline.loader(num_workers=1, executor="thread", check_generators=False) as loader:
        expected = digest(loader)
    for makers in (1, 3):
        made = fleet(pipeline, makers, "thread")
        with pipeline.loader(fleet=made, memory=MEMORY) as loader:
            assert digest(loader) == expected
        assert {maker for maker, _ in made.asked} == set(range(makers))


def test_images_travel_as_bytes_where_the_recipe_ends_in_normalize(photos: Path) -> None:
    plan = images(photos).plan(memory=MEMORY)
    assert sends_bytes(plan)
    assert not sends_bytes(PIPELINES["erased"](photos).plan(memory=MEMORY))
    assert copying(plan).samples.kernel.image.output == plan.fields["image"]  # type: ignore[union-attr]
    made = fleet(images(photos))
    text = images(photos).plan(fleet=made, memory=MEMORY).explain()
    assert "13.6KiB travel per batch: images as bytes" in text
    assert "at most 4 batches on the way" in text
    assert f"at most {2 * made.makers} more for a time" in text


def test_batches_are_writable_and_arrays_of_answers_are_dropped_when_copied(photos: Path) -> None:
    kept: list[weakref.ref[Any]] = []

    class Seen(Makers):
        def open(self, receiver: Any) -> Makers:
            opened = super().open(receiver)
            answered = receiver.answered

            def seen(maker: int, number: int, answer: Any) -> None:
                kept.append(weakref.ref(answer.arrays["image"]))
                answered(maker, number, answer)

            receiver.answered = seen
            return opened

    seen = Seen(fleet(images(photos), 1).plans)
    with images(photos).loader(fleet=seen, memory=MEMORY, prefetch=2) as loader:
        for batch in loader:
            batch["image"] += 1
        assert sum(each() is not None for each in kept) <= 2  # those on the way
    assert len(kept) >= 5


@pytest.mark.parametrize("makers", [1, 3])
def test_bad_samples_are_replaced_and_counted_once(makers: int) -> None:
    def sample(number: int) -> dict[str, int]:
        if number in (3, 11, 12, 30):
            raise ValueError(f"no sample {number}")
        return {"x": number}

    source = sp.MapSource(Samples(sample, ROWS))
    pipeline = sp.Pipeline(source).shuffle(seed=5).map(numbered).on_error(sp.Replace(at_most=10)).batch(8)
    with pipeline.loader(num_workers=1, executor="thread", check_generators=False) as loader:
        expected, bad, state = digest(loader), loader.bad_samples, loader.state_dict()
    assert len(bad) > 4
    with pipeline.loader(fleet=fleet(pipeline, makers, "thread"), memory=MEMORY) as loader:
        assert digest(loader) == expected
        assert loader.bad_samples == bad
        assert loader.state_dict() == state


def test_counters_of_makers_are_those_of_the_loader(tmp_path: Path) -> None:
    photos = write_list(tmp_path, [encoded(picture(number)) for number in range(4)])
    pipeline = sp.Pipeline(photos).map(sp.CenterCrop(16)).batch(2)
    with pipeline.loader(fleet=fleet(pipeline), memory=MEMORY) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 4
        stats = loader.stats()
    assert stats.rows == stats.transform.rows == sum(maker.rows for maker in stats.workers) >= 4
    assert stats.opens >= 4
    assert 0 < stats.slowest_read_s <= stats.read.busy_s + stats.transform.busy_s


def test_a_bad_sample_raises_with_its_record_and_the_loader_stays_usable(tmp_path: Path) -> None:
    broken = write_list(tmp_path, [encoded(picture(1)), b"no image", encoded(picture(2))])
    pipeline = sp.Pipeline(broken).map(sp.CenterCrop(16)).batch(1)
    with pipeline.loader(fleet=fleet(pipeline), memory=MEMORY) as loader:
        batches = iter(loader)
        next(batches)
        for _ in range(2):
            with pytest.raises(sp.DecodeError, match=r"record 1.*001\.jpg"):
                next(batches)
        loader.skip_steps(1)
        assert next(iter(loader.steps(1)))["index"].tolist() == [2]


def test_a_run_resumes_with_other_makers_and_without_any(photos: Path) -> None:
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        whole = [of_batch(batch) for _ in range(2) for batch in loader]
    found: list[object] = []
    state: dict[str, object] | None = None
    for makers in (2, 0, 1, 3):
        options: dict[str, Any] = {"fleet": fleet(pipeline, makers)} if makers else {"num_workers": 1}
        with pipeline.loader(memory=MEMORY, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found += [of_batch(batch) for batch in loader.steps(2 if makers != 3 else 4)]
            state = loader.state_dict()
    assert found == whole


def test_batches_that_were_asked_for_ahead_are_dropped_when_the_loop_leaves_an_epoch(photos: Path) -> None:
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        _, second = ([of_batch(batch) for batch in loader] for _ in range(2))
    with pipeline.loader(fleet=fleet(pipeline, 3), memory=MEMORY, prefetch=4) as loader:
        for _ in loader:
            break
        assert [of_batch(batch) for batch in loader] == second


def test_batches_of_a_lost_maker_are_made_by_others(photos: Path) -> None:
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        expected = digest(loader)
    stays = threading.Event()

    def gate(maker: int, task: Any) -> None:
        if maker == 0 and task.consumed >= 16:
            made.kill(0)
            stays.wait(WAIT_S)

    made = fleet(pipeline, 2, gate=gate)
    with pipeline.loader(fleet=made, memory=MEMORY) as loader:
        assert digest(loader) == expected
        assert loader.stats().deaths >= 1
        stays.set()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_local_workers_go_on_while_no_maker_is_left(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ALONE_S", 0.05)

    def sample(number: int) -> dict[str, int]:
        if number in (3, 21):
            raise ValueError("no sample")
        return {"x": number}

    source = sp.MapSource(Samples(sample, ROWS))
    pipeline = sp.Pipeline(source).shuffle(seed=5).map(numbered).on_error(sp.Replace(at_most=10)).batch(8)
    with pipeline.loader(num_workers=1, executor="thread", check_generators=False) as loader:
        expected, bad = digest(loader, 3), loader.bad_samples
    made = fleet(pipeline, 2, "thread", fallback="local")
    found = blake2b()
    with pipeline.loader(fleet=made, memory=MEMORY, executor=executor, num_workers=1) as loader:
        for epoch in range(3):
            for place, batch in enumerate(loader):
                found.update(repr([of_batch(batch)]).encode())
                if (epoch, place) == (0, 2):
                    for maker in range(2):
                        made.kill(maker)
                if (epoch, place) == (1, 3):
                    asked = len(made.asked)
                    made.join(1)
        assert loader.bad_samples == bad
    assert found.hexdigest() == expected
    assert len(made.asked) > asked


class LoadsAtGate(Samples):
    """Samples that a worker server can load when the gate is open."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(lambda number: {"x": number}, ROWS)
        self.gate = gate

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.gate.wait()


def test_close_while_local_workers_start_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ALONE_S", 0.05)
    gate, before, threads = Gate.closed(tmp_path / "gate"), census(), set(threading.enumerate())
    pipeline = sp.Pipeline(sp.MapSource(LoadsAtGate(gate))).batch(8)
    made = fleet(pipeline, 1, "thread", fallback="local")
    options: dict[str, Any] = {"executor": "process", "num_workers": 2, "slow_sample_s": 0.1}
    with Log() as log, pipeline.loader(fleet=made, memory=MEMORY, **options) as loader:
        iter(loader)
        made.kill(0)
        log.wait_for("the start of worker processes has taken", "loading the dataset")
        started = set(threading.enumerate()) - threads
        (filling,) = (each for each in started if each.name == "standpipe-fill")
    assert started_since(before)
    with gate.opened():
        filling.join(WAIT_S)
    assert not started_since(before)


def test_a_batch_fails_while_no_maker_is_left_and_comes_when_one_is_back(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ALONE_S", 0.05)
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        expected = [of_batch(batch) for batch in loader]
    made = fleet(pipeline, 1, fallback="raise")
    found = []
    with pipeline.loader(fleet=made, memory=MEMORY, prefetch=1) as loader:
        batches = iter(loader)
        found.append(of_batch(next(batches)))
        made.kill(0)
        with pytest.raises(sp.WorkerDiedError, match="no maker of batches is left; maker 0: killed"):
            found.extend(map(of_batch, batches))
        made.join(0)
        found += [of_batch(batch) for batch in batches]
    assert found == expected


def test_a_loader_that_waits_for_makers_ends_at_its_deadline(photos: Path) -> None:
    pipeline = images(photos)
    made = fleet(pipeline, 1, fallback="wait")
    with pipeline.loader(fleet=made, memory=MEMORY, prefetch=1, stall_timeout_s=0.2) as loader:
        batches = iter(loader)
        next(batches)
        made.kill(0)
        with pytest.raises(sp.StalledError, match="waiting for a maker of batches: maker 0: killed"):
            for _ in batches:
                pass


def test_a_start_without_makers_ends_at_its_deadline(photos: Path) -> None:
    pipeline = images(photos)
    made = fleet(pipeline, 1)
    made.dead.add(0)
    with (
        pipeline.loader(fleet=made, memory=MEMORY, stall_timeout_s=0.2) as loader,
        pytest.raises(
            sp.StalledError, match=r"the start of 1 makers in this process.*the cluster may have no room"
        ),
    ):
        iter(loader)


@pytest.mark.parametrize("name", ["bytes", "Python"])
def test_local_workers_begin_if_no_maker_starts_in_time(
    name: str, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = PIPELINES[name](photos)
    with pipeline.loader(num_workers=1, executor="thread", check_generators=False) as loader:
        expected = [of_batch(batch) for _ in range(2) for batch in loader]
    made = fleet(pipeline, 1, "thread", fallback="local")
    made.dead.add(0)
    options: dict[str, Any] = {"num_workers": 1, "executor": "thread", "stall_timeout_s": 2.0}
    with (
        caplog.at_level(logging.WARNING, "standpipe"),
        pipeline.loader(fleet=made, memory=MEMORY, **options) as loader,
    ):
        found = [of_batch(batch) for batch in loader]
        assert not made.asked
        assert "1 makers in this process was not done" in caplog.text
        assert "Workers here make the batches until a maker comes" in caplog.text
        made.join(0)
        found += [of_batch(batch) for batch in loader]
    assert made.asked
    assert found == expected


def test_a_late_batch_is_made_twice_and_used_once(photos: Path) -> None:
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        expected = digest(loader)
    goes = threading.Event()
    held = []

    def gate(maker: int, task: Any) -> None:
        if (task.epoch, task.consumed) == (1, 16) and not held:
            held.append(maker)
            goes.wait(WAIT_S)

    made = fleet(pipeline, 2, gate=gate)
    with pipeline.loader(fleet=made, memory=MEMORY) as loader:
        assert digest(loader) == expected
        goes.set()
    numbers = [number for _, number in made.asked]
    assert len(numbers) > len(set(numbers))


def test_a_maker_that_gives_no_sign_of_life_is_started_again(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = images(photos)
    goes = threading.Event()

    def gate(maker: int, task: Any) -> None:
        if task.consumed == 16 and not made.restarts:
            made.deaf.add(maker)
            made.dead.add(maker)
            goes.wait(WAIT_S)

    made = fleet(pipeline, 1, gate=gate)
    options = {"slow_sample_s": 0.05, "stall_timeout_s": 8}  # a maker that lives answers in half of it
    with (
        caplog.at_level(logging.WARNING, "standpipe"),
        pipeline.loader(fleet=made, memory=MEMORY, **options) as loader,
    ):
        original = made.restart
        made.restart = lambda maker: (made.dead.discard(maker), original(maker))  # type: ignore[method-assign,assignment,func-returns-value]
        assert sum(1 for _ in loader) == 5
        goes.set()
    assert made.restarts == [0]
    assert made.pokes >= 1
    assert "maker 0 gave no sign of life for 4 s" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("version", "0.0.1", "standpipe's version is '0.0.1' there"),
        ("decoder", "1.5", "decoder is '1.5' there"),
        ("pixel_contract", 0, f"pixel_contract is 0 there and {PIXEL_CONTRACT} here"),
        ("source", "other", r"source is 'other' there.*other files"),
        ("rows", 4, "batches of 4 rows"),
    ],
)
def test_a_maker_that_would_make_other_batches_is_refused(
    photos: Path, key: str, value: object, text: str
) -> None:
    def changed(maker: int, facts: dict[str, Any]) -> dict[str, Any]:
        if key in ("pixel_contract", "source"):
            return {**facts, "recipe": {**facts["recipe"], key: value}}
        return {**facts, key: value}

    pipeline = images(photos)
    with (
        pipeline.loader(fleet=fleet(pipeline, 1, changed=changed), memory=MEMORY) as loader,
        pytest.raises(sp.PlanError, match=f"maker 0.*{text}"),
    ):
        iter(loader)


def test_slow_and_stuck_samples_name_the_maker(caplog: pytest.LogCaptureFixture) -> None:
    goes = threading.Event()

    def sample(number: int) -> dict[str, int]:
        if number == 5:
            goes.wait(WAIT_S)
        return {"x": number}

    pipeline = sp.Pipeline(sp.MapSource(Samples(sample, 8))).on_error(sp.Replace(at_most=1)).batch(4)
    timeouts: dict[str, Any] = {"slow_sample_s": 0.05, "stall_timeout_s": 0.3, "executor": "thread"}
    made = Makers([pipeline.plan(num_workers=1, memory=MEMORY, check_generators=False, **timeouts)])
    with (
        caplog.at_level(logging.WARNING, "standpipe"),
        pipeline.loader(fleet=made, memory=MEMORY) as loader,
    ):
        assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 4, 6, 7]]
        goes.set()
        slow = [each for each in loader.slow_samples if each.index == 5]
        assert slow[0].worker.endswith(" of maker 0")
        assert loader.stats().slow == 1
        assert "it was in maker 0" in loader.bad_samples[0].reason
    assert re.search(r"record 5 took \d.*of maker 0", caplog.text)


def test_an_index_that_hangs_in_a_maker_is_named(photos: Path) -> None:
    goes = threading.Event()

    def before(indices: Any) -> None:
        if 16 in indices and threading.current_thread().name == "standpipe-make":
            goes.wait(WAIT_S)

    pipeline = sp.Pipeline(Watched(sp.FileList(photos), before)).map(sp.CenterCrop(16)).batch(8)
    made = Makers([pipeline.plan(num_workers=1, memory=MEMORY, stall_timeout_s=0.2)])
    with pipeline.loader(fleet=made, memory=MEMORY) as loader:
        batches = iter(loader)
        found = [next(batches)["index"].tolist() for _ in range(2)]
        with pytest.raises(
            sp.StalledError,
            match=r"batch at position 16 .*: looking up its records, in the thread that makes batches",
        ):
            next(batches)
        goes.set()
        found += [batch["index"].tolist() for batch in batches]
    assert found == [list(range(begin, begin + 8)) for begin in range(0, ROWS, 8)]


def test_a_maker_that_is_refused_later_is_left_out(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = images(photos)
    with pipeline.loader(num_workers=1) as loader:
        expected = digest(loader)

    def changed(maker: int, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "decoder": "1.5"} if maker else facts

    made = fleet(pipeline, 2, changed=changed)
    with pipeline.loader(fleet=made, memory=MEMORY) as loader, caplog.at_level(logging.WARNING, "standpipe"):
        assert digest(loader) == expected
    assert "maker 1 would make other batches" in caplog.text
    assert {maker for maker, _ in made.asked} == {0}


@pytest.mark.parametrize(
    ("pipeline", "options", "text"),
    [
        (sp.Pipeline(sp.IterableSource(lambda: iter([{"x": 1}] * 8))).batch(2), {}, "a stream has a place"),
        (sp.Pipeline(sp.MapSource([{"x": 1}] * 8)).batch(2), {"executor": "inline"}, "executor='inline'"),
    ],
)
def test_what_only_this_process_can_make_is_refused(
    pipeline: sp.Pipeline, options: dict[str, Any], text: str
) -> None:
    made = Makers([])
    made.makers = 1
    with pytest.raises(sp.PlanError, match=f"a fleet can't make these batches: {text}"):
        pipeline.loader(fleet=made, **options)


def test_a_fleet_is_an_object(photos: Path) -> None:
    pipeline = images(photos)
    with pytest.raises(sp.PlanError, match="fleet must be a Fleet object"):
        pipeline.plan(fleet=3)  # type: ignore[arg-type]
