"""A batch belongs to whoever holds any view of it, for as long as that is."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S, numbers
from standpipe.spec import AnyArray

MEMORY = "64MiB"
MIB = 1 << 20


def moving_images(rows: int = 4, side_px: int = 8) -> sp.Pipeline:
    """Batches of 2 images that differ in every epoch."""
    image = np.random.default_rng(0).integers(0, 256, (rows, 4 * side_px, 4 * side_px, 3), np.uint8)
    return sp.Pipeline(sp.Arrays(image=image)).shuffle(seed=1).map(sp.RandomResizedCrop(side_px)).batch(2)


def torch_view(row: AnyArray) -> object:
    return pytest.importorskip("torch").from_numpy(row)


def torch_import(row: AnyArray) -> object:
    return pytest.importorskip("torch").from_dlpack(row)


def bytes_of(view: object) -> bytes:
    return (view.numpy() if hasattr(view, "numpy") else np.asarray(view)).tobytes()


@pytest.mark.parametrize(
    "keep",
    [
        lambda row: row,
        lambda row: row[2:5, ::3, 1],
        lambda row: row.transpose(2, 0, 1).view(np.int8),
        np.from_dlpack,
        memoryview,
        torch_view,
        torch_import,
        lambda row: torch_view(row)[3:].permute(2, 0, 1),
    ],
    ids=["row", "slice", "view", "dlpack", "memoryview", "torch", "torch dlpack", "torch slice"],
)
def test_one_kept_row_stays_as_it_is_over_1000_batches(keep: Callable[[AnyArray], object]) -> None:
    with moving_images().loader(memory=MEMORY, num_workers=2) as loader:
        kept = keep(next(iter(loader))["image"][0])
        before = bytes_of(kept)
        others = set()
        for _ in range(500):
            for batch in loader:
                others.add(batch["image"][0].tobytes())
        assert len(others) > 900, "the batches should differ for this to mean anything"
        assert bytes_of(kept) == before


def test_batches_that_are_kept_are_all_their_own() -> None:
    with sp.Pipeline(numbers(600)).batch(2).loader(memory=MEMORY, num_workers=2) as loader:
        batches = list(loader)
        assert [batch["x"][:, 0].tolist() for batch in batches] == [[6 * i, 6 * i + 3] for i in range(300)]
        addresses = {batch["x"].ctypes.data for batch in batches}
        assert len(addresses) == 300


def test_too_many_kept_batches_are_an_error_that_counts_them_and_passes() -> None:
    pipeline = sp.Pipeline(numbers(10_000)).batch(1)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, num_workers=1)
    smallest = caught.value.smallest_bytes
    assert smallest is not None
    plan = pipeline.plan(memory=smallest + 8 * MIB, num_workers=1)
    assert 100 < plan.most_slots < 9_000
    with sp.Loader(plan) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(plan.most_slots)]
        with pytest.raises(sp.BudgetError, match=f"all {plan.most_slots} batches") as caught:
            next(iterator)
        assert caught.value.budget_bytes == plan.memory_bytes
        assert caught.value.asked_bytes == (plan.most_slots + 1) * plan.batch.layout.stride_bytes
        assert "batch_release_timeout_s" in str(caught.value)
        assert [batch["x"].item() for batch in kept] == [3 * i for i in range(len(kept))]


def small_loader(**settings: object) -> sp.Loader:
    """A loader of ten records that has memory for two batches."""
    pipeline = sp.Pipeline(numbers(10)).batch(1)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, num_workers=1, prefetch=1)
    loader = pipeline.loader(memory=caught.value.smallest_bytes, num_workers=1, prefetch=1, **settings)
    assert loader.plan.most_slots == 2
    return loader


def test_a_dropped_batch_makes_room_at_once() -> None:
    with small_loader() as loader:
        iterator = iter(loader)
        kept = [next(iterator), next(iterator)]
        for expected in range(2, 10):
            with pytest.raises(sp.BudgetError, match="all 2 batches"):
                next(iterator)
            del kept[0]
            kept.append(next(iterator))
            assert kept[-1]["index"].item() == expected


def test_batches_in_garbage_are_no_reason_to_fail() -> None:
    with small_loader() as loader:
        gc.disable()
        try:
            for batch in loader:
                cycle = [batch]
                cycle.append(cycle)
        finally:
            gc.enable()


def test_waiting_for_another_thread_that_drops_batches() -> None:
    with small_loader(batch_release_timeout_s=WAIT_S) as loader:
        iterator = iter(loader)
        kept = [next(iterator), next(iterator)]
        dropper = threading.Timer(0.05, kept.clear)
        dropper.start()
        assert next(iterator)["index"].item() == 2
        dropper.join()


def test_waiting_for_nobody_ends() -> None:
    with small_loader(batch_release_timeout_s=0.05) as loader:
        iterator = iter(loader)
        kept = [next(iterator), next(iterator)]
        begin = time.perf_counter()
        with pytest.raises(sp.BudgetError, match="all 2 batches"):
            next(iterator)
        assert 0.05 <= time.perf_counter() - begin < WAIT_S
        assert len(kept) == 2


def test_the_last_view_may_be_dropped_in_any_thread() -> None:
    """The thread has the only reference; then the slot is free, and the same memory comes again."""
    with small_loader() as loader:
        iterator = iter(loader)
        held, addresses = next(iterator), set()
        for expected in range(1, 10):
            batch = next(iterator)  # an error, if the slot hadn't come back
            assert batch["index"].item() == expected
            addresses.add(batch["x"].ctypes.data)
            kept = [batch["x"][0].view(np.uint8)]
            del batch
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
            assert not kept
        assert len(addresses) == 1
        assert held["index"].item() == 0


def slot_memory_bytes() -> int:
    """Memory that slots of all loaders of this process take."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            inside = "memfd:standpipe" in line
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def large_batches() -> sp.Pipeline:
    """Ten batches of 1 MiB."""
    return sp.Pipeline(sp.Arrays(x=np.zeros((10, MIB), np.uint8))).batch(1)


def test_slots_take_memory_from_their_first_use_on_and_give_it_back() -> None:
    with large_batches().loader(memory="256MiB", num_workers=1, prefetch=1) as loader:
        before = slot_memory_bytes()
        iter(loader)
        assert slot_memory_bytes() - before <= 2.1 * MIB
        kept = list(loader)
        assert 9.9 * MIB <= slot_memory_bytes() - before <= 12.1 * MIB
        kept.clear()
        # The filling thread gives memory back before it fills: by the third batch it has.
        for _ in range(3):
            next(iter(loader))
        assert slot_memory_bytes() - before <= 3.1 * MIB


def test_a_ceiling_of_millions_of_slots_costs_nothing() -> None:
    before = slot_memory_bytes()
    with sp.Pipeline(numbers(1000)).batch(1).loader(memory="64GiB", num_workers=1) as loader:
        assert loader.plan.most_slots > 10_000_000
        begin = time.perf_counter()
        assert sum(1 for _ in loader) == 1000
        assert time.perf_counter() - begin < WAIT_S
        assert slot_memory_bytes() - before < MIB


def test_close_gives_back_all_memory_but_that_of_kept_batches() -> None:
    before = slot_memory_bytes()
    loader = large_batches().loader(memory="256MiB", num_workers=1, prefetch=3)
    kept = next(iter(loader))
    loader.close()
    assert MIB <= slot_memory_bytes() - before <= 1.1 * MIB
    del kept
    assert slot_memory_bytes() == before


def test_batches_outlive_close_and_their_loader() -> None:
    loader = moving_images().loader(memory=MEMORY, num_workers=2)
    iterator = iter(loader)
    kept = [next(iterator)["image"][0] for _ in range(2)]
    before = [row.tobytes() for row in kept]
    loader.close()
    assert [row.tobytes() for row in kept] == before
    del loader, iterator
    gc.collect()
    with moving_images().loader(memory=MEMORY, num_workers=2) as another:
        list(another)
        assert [row.tobytes() for row in kept] == before
    kept[0][...] = 7
    assert kept[1].tobytes() == before[1]


def test_batches_are_writable_and_independent() -> None:
    source = np.arange(8).reshape(8, 1)
    with sp.Pipeline(sp.Arrays(x=source)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        for _ in range(3):
            batches = []
            for batch in loader:
                assert batch["x"].flags.writeable
                assert batch["index"].flags.writeable
                batches.append(batch)
            assert [batch["x"][:, 0].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]
            for value, batch in enumerate(batches):
                batch["x"][...] = batch["index"][...] = -value
            assert [batch["x"][0, 0] for batch in batches] == [0, -1, -2, -3]
    assert source[:, 0].tolist() == list(range(8))


def test_fields_of_a_batch_share_no_memory() -> None:
    pipeline = sp.Pipeline(sp.Arrays(a=np.zeros((5, 3), np.int8), b=np.zeros((5, 7), np.int16)))
    with pipeline.batch(3, last_batch="pad").loader(memory=MEMORY, num_workers=1) as loader:
        batch = next(iter(loader))
        for value, array in enumerate(batch.values()):
            array[...] = value
        for value, array in enumerate(batch.values()):
            assert (array == (value != 0 if array.dtype == bool else value)).all()
            assert array.ctypes.data % 64 == 0
