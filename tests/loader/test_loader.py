"""What an epoch delivers, and what ``iter()``, ``next()`` and ``break`` mean."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
import time
import weakref
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S, Watched, numbers, write_photos
from standpipe.spec import AnyArray

MEMORY = "64MiB"


def indices(loader: sp.Loader) -> list[list[int]]:
    """One epoch's record numbers, batch by batch."""
    return [batch["index"].tolist() for batch in loader]


def test_a_loader_of_a_pipeline_says_how_to_make_one() -> None:
    with pytest.raises(
        sp.PlanError, match=r"Loader takes a Plan, not a Pipeline\. Write pipeline\.loader\(…\)"
    ):
        sp.Loader(sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(2))  # type: ignore[arg-type]


def test_an_epoch_is_every_record_once_in_the_orders_order() -> None:
    pipeline = sp.Pipeline(numbers(12)).shuffle(seed=3).batch(4)
    plan = pipeline.plan()
    with pipeline.loader(memory=MEMORY, num_workers=2) as loader:
        for epoch in range(3):
            expected = plan.order.indices(epoch, 0, 12).reshape(3, 4).tolist()
            assert loader.epoch == epoch
            assert indices(loader) == expected
        assert sorted(chain.from_iterable(expected)) == list(range(12))


def test_rows_belong_to_their_index(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 10)
    one_by_one = {}
    with sp.Pipeline(source).map(sp.CenterCrop(16)).batch(1).loader(memory=MEMORY, num_workers=1) as loader:
        for batch in loader:
            one_by_one[int(batch["index"][0])] = batch["image"][0].tobytes()
    assert len(set(one_by_one.values())) == 10
    with sp.Pipeline(source).shuffle(seed=1).map(sp.CenterCrop(16)).batch(3).loader(num_workers=3) as loader:
        for batch in loader:
            assert batch["image"].shape == (3, 16, 16, 3)
            assert batch["label"].tolist() == batch["index"].tolist()
            for row, index in enumerate(batch["index"].tolist()):
                assert batch["image"][row].tobytes() == one_by_one[index]


def test_fields_and_dtypes_are_those_of_the_plan(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(write_photos(tmp_path, 3)).map(sp.CenterCrop(8), sp.Normalize()).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        batch = next(iter(loader))
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
            name: ((2, *spec.shape), spec.dtype) for name, spec in loader.plan.fields.items()
        }


@pytest.mark.parametrize(
    ("last_batch", "expected", "valid"),
    [
        ("drop", [[0, 1, 2], [3, 4, 5]], None),
        ("partial", [[0, 1, 2], [3, 4, 5], [6, 7]], None),
        ("pad", [[0, 1, 2], [3, 4, 5], [6, 7, 0]], [[True] * 3, [True] * 3, [True, True, False]]),
    ],
)
def test_tails(last_batch: str, expected: list[list[int]], valid: list[list[bool]] | None) -> None:
    with (
        sp.Pipeline(numbers(8)).batch(3, last_batch=last_batch).loader(memory=MEMORY, num_workers=1) as loader
    ):
        for _ in range(2):
            batches = list(loader)
            assert len(loader) == len(batches) == len(expected)
            assert [batch["index"].tolist() for batch in batches] == expected
            assert [batch["x"][:, 0].tolist() for batch in batches] == [[3 * i for i in b] for b in expected]
            assert [b["valid"].tolist() for b in batches if "valid" in b] == (valid or [])


@pytest.mark.parametrize(
    ("last_batch", "rows", "world_size", "batch"),
    [("drop", 23, 3, 2), ("drop", 24, 4, 3), ("pad", 23, 3, 2), ("pad", 23, 2, 5), ("pad", 5, 4, 3)],
)
def test_ranks_add_up_to_one_loader_with_the_whole_step(
    last_batch: str, rows: int, world_size: int, batch: int
) -> None:
    pipeline = sp.Pipeline(numbers(rows)).shuffle(seed=5)
    ranks = []
    for rank in range(world_size):
        with (
            pipeline.shard(rank, world_size)
            .batch(batch, last_batch=last_batch)
            .loader(memory=MEMORY, num_workers=1) as loader
        ):
            ranks.append([batch for _ in range(2) for batch in loader])
    with pipeline.batch(batch * world_size, last_batch=last_batch).loader(
        memory=MEMORY, num_workers=1
    ) as loader:
        together = [batch for _ in range(2) for batch in loader]
    assert len({len(batches) for batches in ranks}) == 1
    for step, whole in enumerate(together):
        for name in whole:
            slices = [batches[step][name] for batches in ranks]
            assert np.array_equal(np.concatenate(slices), whole[name])


def photo_bytes(source: sp.FileList, **settings: object) -> list[bytes]:
    pipeline = sp.Pipeline(source).shuffle(seed=2)
    pipeline = pipeline.map(sp.RandomResizedCrop(12), sp.RandomHorizontalFlip(), sp.Normalize()).batch(4)
    with pipeline.loader(**settings) as loader:
        return [batch["image"].tobytes() for _ in range(2) for batch in loader]


def test_workers_depth_and_memory_change_no_byte(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 13)
    expected = photo_bytes(source, num_workers=1, prefetch=1, memory="32MiB")
    assert photo_bytes(source, num_workers=7, prefetch=8, memory="1GiB") == expected


def test_break_leaves_the_epoch() -> None:
    with sp.Pipeline(numbers(8)).shuffle(seed=1).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        expected = [loader.plan.order.indices(epoch, 0, 8).reshape(4, 2).tolist() for epoch in range(4)]
        for batch in loader:
            assert batch["index"].tolist() == expected[0][0]
            break
        for number, batch in enumerate(loader):
            assert batch["index"].tolist() == expected[1][number]
            if number == 3:  # in the last batch: the epoch is over already
                break
        with contextlib.suppress(ZeroDivisionError):
            for _ in loader:
                _ = 1 // 0
        assert indices(loader) == expected[3]


def test_an_epoch_that_nothing_was_asked_of_is_not_left() -> None:
    with sp.Pipeline(numbers(4)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iter(loader)
        assert next(iter(loader))["index"].tolist() == [0, 1]
        assert loader.epoch == 0


def test_a_break_before_the_last_batch_never_delivers_that_batch_later() -> None:
    # With one batch left in hand, the one after it begins the very epoch that is asked for.
    with sp.Pipeline(numbers(6)).shuffle(seed=1).batch(2).loader(memory=MEMORY, num_workers=2) as loader:
        for epoch in range(300):
            iterator = iter(loader)
            expected = loader.plan.order.indices(epoch, 0, 4).reshape(2, 2).tolist()
            assert [next(iterator)["index"].tolist() for _ in range(2)] == expected


def test_the_next_epoch_is_filled_before_it_is_asked_for() -> None:
    located: queue.Queue[list[int]] = queue.Queue()
    source = Watched(numbers(4), lambda rows: located.put(rows.tolist()))
    with sp.Pipeline(source).batch(2).loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        assert indices(loader) == [[0, 1], [2, 3]]
        assert [located.get(timeout=WAIT_S) for _ in range(3)] == [[0, 1], [2, 3], [0, 1]]
        assert indices(loader) == [[0, 1], [2, 3]]
        assert located.get(timeout=WAIT_S) == [2, 3], "what was filled ahead was filled again"


def test_an_old_iterator_says_that_another_took_over() -> None:
    with sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        with pytest.raises(sp.StandpipeError, match="replaced it"):
            next(old)
        assert next(new)["index"].tolist() == [0, 1]


def test_an_iterator_at_its_end_stays_there() -> None:
    with sp.Pipeline(numbers(2)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == 1
        assert next(iterator, None) is None
        next(iter(loader))
        assert next(iterator, None) is None
    assert next(iterator, None) is None


def test_an_iterator_keeps_its_loader() -> None:
    iterator = iter(sp.Pipeline(numbers(4)).batch(2).loader(memory=MEMORY, num_workers=1))
    gc.collect()
    assert len(list(iterator)) == 2


def test_a_dropped_loader_ends_its_threads() -> None:
    loader = sp.Pipeline(numbers(4)).batch(2).loader(memory=MEMORY, num_workers=1)
    gone = weakref.ref(loader)
    before = set(threading.enumerate())
    next(iter(loader))
    assert set(threading.enumerate()) - before
    del loader
    assert gone() is None
    assert not set(threading.enumerate()) - before


def test_a_loader_that_is_dropped_after_an_error_ends_its_threads() -> None:
    table = sp.Pipeline(sp.Arrays(x=np.array([1.0, np.nan]))).batch(1).check_finite("x")
    before = set(threading.enumerate())
    with pytest.raises(sp.SampleError):
        list(table.loader(memory=MEMORY, num_workers=1))
    ends = time.monotonic() + WAIT_S
    while set(threading.enumerate()) - before:  # one of them may be about to drop the error
        assert time.monotonic() < ends
        gc.collect()


def test_what_a_closed_loader_says() -> None:
    loader = sp.Pipeline(numbers(4)).batch(2).loader(memory=MEMORY, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(sp.StandpipeError, match="closed"):
        next(iterator)
    with pytest.raises(sp.StandpipeError, match="closed"):
        iter(loader)
    assert len(loader) == 2
    loader.close()


def test_stats_count_rows(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 6)
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(3)
    loader = pipeline.loader(memory=MEMORY, num_workers=1)
    assert loader.stats() == sp.Stats()
    with loader:
        list(loader)
        stats = loader.stats()
        assert stats.rows >= 6
        assert stats.read.bytes >= sum(path.stat().st_size for path in tmp_path.glob("*.jpg"))
        assert (stats.step.steps, stats.step.rows) == (2, 6)


def test_what_goes_wrong_in_a_source_reaches_the_consumer_in_its_place() -> None:
    def broken(rows: AnyArray) -> None:
        if 4 in rows:
            raise RuntimeError("the disk is gone")

    with sp.Pipeline(Watched(numbers(8), broken)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iterator = iter(loader)
        assert [next(iterator)["index"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the disk is gone"):
                next(iterator)
        assert loader.state_dict()["consumed"] == 4


def test_a_source_that_always_fails_is_asked_no_more_often_than_there_are_slots() -> None:
    asked = []

    def broken(rows: AnyArray) -> None:
        asked.append(rows)
        raise RuntimeError("no")

    with (
        sp.Pipeline(Watched(numbers(8), broken))
        .batch(2)
        .loader(memory=MEMORY, num_workers=1, prefetch=2) as loader
    ):
        iterator = iter(loader)
        for attempt in range(1, 20):
            with pytest.raises(RuntimeError, match="no"):
                next(iterator)
            assert len(asked) <= (3 + 1) * attempt  # one more where a slot comes back just then


def test_a_source_that_fails_while_all_batches_but_one_are_held() -> None:
    def broken(rows: AnyArray) -> None:
        if 4 in rows:
            raise RuntimeError("no")

    with (
        sp.Pipeline(Watched(numbers(8), broken))
        .batch(2)
        .loader(memory=MEMORY, num_workers=1, prefetch=1) as loader
    ):
        iterator = iter(loader)
        kept = [next(iterator), next(iterator)]
        sorted(range(300_000), key=lambda number: -number)  # work, in which the filling thread comes to rest
        with pytest.raises(RuntimeError, match="no"):
            next(iterator)
        assert len(kept) == 2


def test_a_filling_thread_that_breaks_is_an_error_and_no_wait() -> None:
    def broken(rows: AnyArray) -> None:
        raise SystemExit

    with sp.Pipeline(Watched(numbers(8), broken)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        with pytest.raises(sp.StandpipeError, match="standpipe-fill ended by an error") as caught:
            next(iter(loader))
        assert isinstance(caught.value.__cause__, SystemExit)


def test_steps_go_on_across_epochs() -> None:
    pipeline = sp.Pipeline(numbers(7)).shuffle(seed=1).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        by_epoch = [batch["index"].tolist() for _ in range(4) for batch in loader]
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        assert list(loader.steps(0)) == []
        by_step = [batch["index"].tolist() for batch in loader.steps(5)]
        assert (loader.epoch, len(by_step)) == (1, 5)
        by_step += [batch["index"].tolist() for batch in loader.steps(7)]
    assert by_step == by_epoch[:12]


def test_steps_and_states_and_epochs_go_together() -> None:
    pipeline = sp.Pipeline(numbers(12)).shuffle(seed=1).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        expected = [batch["index"].tolist() for batch in loader.steps(20)]
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        seen = [batch["index"].tolist() for batch in loader.steps(8)]
        state = loader.state_dict()
        for batch in loader.steps(100):
            seen.append(batch["index"].tolist())
            if len(seen) == 10:
                break
        seen += [batch["index"].tolist() for batch in loader.steps(2)]
        seen += [batch["index"].tolist() for batch in loader]  # the epoch was over
    assert seen == expected[:18]
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        loader.load_state_dict(state)
        assert [batch["index"].tolist() for batch in loader.steps(12)] == expected[8:]


def test_steps_keep_no_batch() -> None:
    with sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        steps = loader.steps(8)
        for _ in range(8):
            held = weakref.ref(next(steps)["index"])
            assert held() is None


@pytest.mark.parametrize("number", [-1, 1.5, "8", True])
def test_steps_of_no_number(number: object) -> None:
    with (
        sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1) as loader,
        pytest.raises(sp.PlanError, match="the number of batches must be an integer"),
    ):
        loader.steps(number)  # type: ignore[arg-type]


def test_a_second_thread_inside_next_is_an_error_and_no_hang() -> None:
    waits, go_on = threading.Event(), threading.Event()

    def block(_: AnyArray) -> None:
        waits.set()
        assert go_on.wait(WAIT_S)

    with sp.Pipeline(Watched(numbers(8), block)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iterator = iter(loader)
        taken: queue.Queue[list[int]] = queue.Queue()
        taker = threading.Thread(target=lambda: taken.put(next(iterator)["index"].tolist()))
        taker.start()
        assert waits.wait(WAIT_S)
        while not loader._turn:  # private: that the other thread is inside next(), which nothing else tells
            threading.Event().wait(0)
        with pytest.raises(sp.StandpipeError, match="another thread is inside next"):
            next(iterator)
        go_on.set()
        assert taken.get(timeout=WAIT_S) == [0, 1]
        taker.join()
        assert [batch["index"].tolist() for batch in loader.steps(3)] == [[2, 3], [4, 5], [6, 7]]


def test_threads_that_take_turns_get_every_batch_once() -> None:
    lock = threading.Lock()
    taken: list[list[int]] = []
    with sp.Pipeline(numbers(600)).batch(2).loader(memory=MEMORY, num_workers=2) as loader:
        iterator = iter(loader)

        def take() -> None:
            while True:
                with lock:
                    batch = next(iterator, None)
                if batch is None:
                    return
                taken.append(batch["index"].tolist())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(chain.from_iterable(taken)) == list(range(600))


def test_set_epoch() -> None:
    with sp.Pipeline(numbers(8)).shuffle(seed=3).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        first, second = ([batch["index"].tolist() for batch in loader] for _ in range(2))
        loader.set_epoch(0)
        iterator = iter(loader)
        assert [next(iterator)["index"].tolist() for _ in range(3)] == first[:3]
        loader.set_epoch(0)
        with pytest.raises(sp.StandpipeError, match="replaced it"):
            next(iterator)
        assert [batch["index"].tolist() for batch in loader] == first
        loader.set_epoch(1)
        assert (loader.epoch, [batch["index"].tolist() for batch in loader]) == (1, second)


def test_set_epoch_keeps_what_a_state_left_of_it() -> None:
    pipeline = sp.Pipeline(numbers(8)).shuffle(seed=3).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        whole = [batch["index"].tolist() for batch in loader]
    state = loader.state_dict() | {"epoch": 0, "consumed": 4}
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert [batch["index"].tolist() for batch in loader] == whole[2:]
        loader.load_state_dict(state)
        loader.set_epoch(1)
        assert (loader.state_dict()["epoch"], loader.state_dict()["consumed"]) == (1, 0)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", True, None])
def test_what_is_no_epoch(epoch: object) -> None:
    with pytest.raises(sp.PlanError, match="set_epoch: the epoch must be an integer"):
        sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1).set_epoch(epoch)  # type: ignore[arg-type]
