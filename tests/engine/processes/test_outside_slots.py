"""Values that worker processes hand over beside the slots: counted, bounded, and given their turn."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from preloaded import SERVER
from programs import wait_for_end
from standpipe import _native  # an account whose process dies at an exact place can't be had otherwise

MIB = 1 << 20
ROWS = 8


class Grows:
    """The first sample is small, as it is measured; the others hold ``mebibytes`` in an array, or as bytes."""

    def __init__(self, mebibytes: int, plain: bool = False) -> None:
        self.mebibytes, self.plain = mebibytes, plain

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Any]:
        size = self.mebibytes * MIB if index else 1000
        return {"x": index, "much": bytes(size) if self.plain else np.full(size, index % 251, np.uint8)}


def pipeline(mebibytes: int, plain: bool = False) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(Grows(mebibytes, plain))).batch(ROWS, collate={"much": list})


def loader(of: sp.Pipeline, **settings: Any) -> sp.Loader:
    return of.loader(
        **{"executor": "process", "num_workers": 2, "memory": "512MiB", "mp_context": SERVER, **settings}
    )


@pytest.mark.parametrize("plain", [False, True])
def test_the_ledger_counts_what_lies_in_no_slot(plain: bool) -> None:
    with loader(pipeline(1, plain)) as batches:
        iterator = iter(batches)
        first = next(iterator)
        held = [next(iterator), next(iterator)]
        ledger = batches.memory()
        outside = ledger["outside the slots"]
        assert 2 * ROWS * MIB <= outside.now <= outside.peak <= 6.1 * ROWS * MIB
        assert outside.most is not None
        assert outside.now <= outside.most
        assert ledger["growth of this process"].now < 2 * ROWS * MIB  # what lies outside isn't counted twice
        del held, first
        for batch in iterator:
            del batch
        assert batches.memory()["outside the slots"].peak <= 6.1 * ROWS * MIB
    assert batches.memory()["outside the slots"].now == 0


def test_batches_are_filled_ahead_only_as_far_as_there_is_room() -> None:
    """Of 40 MiB each, above a forecast of nothing: four slots would be filled, and 100 MiB are left."""
    with loader(
        pipeline(5), prefetch=5, memory="200MiB", large_image_memory="60MiB", num_workers=1
    ) as batches:
        for batch in batches:
            assert [values[0] for values in batch["much"][1:]] == [index % 251 for index in batch["x"][1:]]
        outside = batches.memory()["outside the slots"]
        assert 40 * MIB < outside.peak <= 3 * 40.1 * MIB
        del batch


def test_held_batches_are_an_error_when_what_they_hold_outside_their_slots_fills_the_budget() -> None:
    with (
        loader(pipeline(2), memory="200MiB", large_image_memory="20MiB", num_workers=1) as batches,
        pytest.raises(
            sp.BudgetError, match=r"all \d batches of .*, with \d+\.\dMiB outside the slots, that fit"
        ),
    ):
        list(batches)


def test_an_answer_above_the_cap_is_an_error_that_names_it() -> None:
    """That of one row: several that are below it together pass one after another."""
    with (
        loader(pipeline(9), large_image_memory="8MiB", num_workers=1) as batches,
        pytest.raises(
            sp.SampleError,
            match=r"outside the slots take 9,\d+,\d+ bytes.*large_image_memory=8388608.*record 1",
        ),
    ):
        next(iter(batches))
    with loader(pipeline(5), large_image_memory="8MiB", num_workers=1) as batches:
        assert sum(len(batch["x"]) for batch in batches.steps(3)) == 24


def test_a_batch_above_the_cap_is_an_error_that_names_it() -> None:
    """Where one worker makes all of it."""

    def together(samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"x": [sample["x"] for sample in samples], "all": [sample["much"] for sample in samples]}

    gathering = sp.Pipeline(sp.MapSource(Grows(3))).batch(ROWS, collate_fn=together)
    with (
        loader(gathering, large_image_memory="8MiB", num_workers=1) as batches,
        pytest.raises(sp.SampleError, match=r"the batch's values .* large_image_memory=8388608"),
    ):
        next(iter(batches))
    with loader(gathering, large_image_memory="32MiB", num_workers=1) as batches:
        assert next(iter(batches))["x"] == list(range(ROWS))


def test_large_answers_take_turns() -> None:
    """Together they would need more than there is."""
    with loader(pipeline(3), large_image_memory="26MiB", num_workers=3) as batches:
        for batch in batches:
            assert [len(values) for values in batch["much"][1:]] == [3 * MIB] * (ROWS - 1)
        side = batches.memory()["side arena"]
    assert 3 * MIB < side.peak <= side.most == 26 * MIB
    assert batches.memory()["side arena"].now == 0


def test_what_a_killed_process_had_is_somebody_elses() -> None:
    """Also when it only waits, and others behind it."""
    shared = _native.SharedSide(3)
    shared.cap_bytes = 10
    first = child(lambda: _native.SideArena(shared, 0).acquire(8))
    second = child(lambda: _native.SideArena(shared, 1).acquire(8), waits=True)
    third = child(lambda: _native.SideArena(shared, 2).acquire(8), waits=True)
    assert (shared.used_by(0), shared.used_bytes) == (8, 8)
    for process, account in ((second, 1), (first, 0)):
        os.kill(process, signal.SIGKILL)
        assert os.waitpid(process, 0)[0] == process
        shared.clear(account)
    assert wait_for_end([third], WAIT_S) == []
    os.waitpid(third, 0)
    assert (shared.used_by(2), shared.used_bytes, shared.peak_bytes) == (8, 8, 8)


def child(take: Any, *, waits: bool = False) -> int:
    """A process that takes something of the arena: it stays when it has it, or ends where it is to wait for it."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        if waits:
            os.write(write_end, b".")
        take()
        if waits:
            os._exit(0)
        os.write(write_end, b".")
        signal.pause()
    os.read(read_end, 1)
    os.close(read_end)
    os.close(write_end)
    return process
