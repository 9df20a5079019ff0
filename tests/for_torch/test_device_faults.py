"""Devices that have no memory, fail or hang, callers in other threads and processes, and batches of odd shapes."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import standpipe as sp
from late_device import (
    EVERYTHING,
    ROWS,
    SETTINGS,
    LateStreams,
    Step,
    check_same,
    host,
    images,
    on,
)
from standpipe.torch.tensors import Form


class Failing(LateStreams):
    """A device of which calls raise ``error``, while there is one: those for memory of ``of``, or all."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.of: object = None

    def _may_raise(self, stream: object = None) -> None:
        if self.error is not None and self.of in (None, stream):
            raise self.error

    def empty(self, size: Any, dtype: torch.dtype, stream: Any) -> torch.Tensor:
        self._may_raise(stream)
        return super().empty(size, dtype, stream)

    def record(self, stream: Any) -> Any:
        self._may_raise()
        return super().record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        self._may_raise()
        super().wait(stream, event)

    def has_happened(self, event: Any) -> bool:
        self._may_raise()
        return super().has_happened(event)

    def on(self, stream: Any, work: Callable[..., object], *arguments: Any) -> None:
        self._may_raise()
        super().on(stream, work, *arguments)

    def unpin(self, address: int) -> None:
        super().unpin(address)
        self._may_raise()


@pytest.fixture
def failing() -> Iterator[Failing]:
    streams = Failing()
    yield streams
    streams.error = None
    streams.end()
    assert not streams.pinned


@pytest.mark.parametrize("of", ["side", "now"])
def test_a_device_without_memory_is_asked_again(failing: Failing, of: str) -> None:
    """Whoever wants the batch gets the device's own error, whichever thread saw it first, and may try again."""
    step = Step(failing)
    with images().loader(**SETTINGS, device=on(failing)) as loader:
        batches = iter(loader)
        for at in (0, 3):
            failing.error, failing.of = torch.OutOfMemoryError("no memory"), getattr(failing, of)
            if at == 0 or of == "now":  # later there is memory for bytes
                for _ in range(2):
                    with pytest.raises(torch.OutOfMemoryError):
                        next(batches)
            failing.error = None
            for _ in range(3):
                step(next(batches))
        check_same(step.all(), host(images()))


def whose_second_batch_fails() -> sp.Pipeline:
    """So nothing is on its way after the first."""
    second = host(images())[1]["index"][0].item()

    def check(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["index"][0] != second
        return batch

    return images().map_batch(check)


def test_memory_that_isnt_there_is_asked_for_once_an_epoch(
    late: LateStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is some for two buffers, where four are wanted."""
    asked: list[int] = []
    empty = late.empty

    def scarce(size: Any, dtype: torch.dtype, stream: Any) -> torch.Tensor:
        if isinstance(size, int):  # bytes that come
            asked.append(size)
            if len(asked) > 2:
                raise torch.OutOfMemoryError("no memory")
        return empty(size, dtype, stream)

    monkeypatch.setattr(late, "empty", scarce)
    step = Step(late)
    with images(ROWS * 12).loader(**SETTINGS, prefetch=7, device=on(late, slots=5)) as loader:
        for _ in range(2):
            asked.clear()
            for batch in loader:
                step(batch)
                ends = time.monotonic() + 20
                while len(asked) < 3 and time.monotonic() < ends:
                    time.sleep(0.001)
            assert len(asked) == 3
        check_same(step.all(), host(images(ROWS * 12), 2))


@pytest.mark.parametrize("left_by", ["close", "an error", "dropping the iterator"])
def test_a_device_that_has_failed_is_let_go_quietly(
    failing: Failing, left_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    dropped = left_by == "dropping the iterator"
    loader = (whose_second_batch_fails() if dropped else images()).loader(**SETTINGS, device=on(failing))
    batches = iter(loader)
    next(batches)
    failing.error = RuntimeError("CUDA error: device-side assert triggered")
    failing.of = None
    if left_by == "an error":
        with pytest.raises(RuntimeError, match="device-side assert"):
            next(batches)
    if dropped:
        del batches
        gc.collect()
    run: Any = loader._run
    loader.close()
    assert not unraisable
    assert not run._filling.thread.is_alive()
    failing.error.__traceback__ = None  # its frames hold a batch
    failing.error = None
    failing.wait_here(failing.record(failing.side))  # what waits on the stream holds what it copies
    assert run._ring.used == 0


def test_a_device_that_fails_while_it_reads_all_slots_says_so(failing: Failing) -> None:
    goes_on = threading.Event()
    with images(ROWS * 20).loader(**SETTINGS, device=on(failing)) as loader:
        batches = iter(loader)
        failing.on(failing.side, goes_on.wait)
        for _ in range(loader.plan.slots):
            next(batches)
        failing.error = RuntimeError("CUDA error: device-side assert triggered")
        with pytest.raises(RuntimeError, match="device-side assert"):
            next(batches)
        goes_on.set()


def test_a_device_that_hangs_keeps_its_slots(
    late: LateStreams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("standpipe.torch.sending.PATIENCE_S", 0.01)
    kept: list[Any] = []
    monkeypatch.setattr("standpipe.engine.deliver._read_yet", kept)
    goes_on = threading.Event()
    loader = images().loader(**SETTINGS, device=on(late))
    batches = iter(loader)
    late.on(late.now, goes_on.wait)
    next(batches)
    with caplog.at_level(logging.WARNING):
        loader.close()
    assert late.pinned
    assert len(kept) == 1
    assert "still busy" in caplog.text
    goes_on.set()
    late.pinned.clear()


def test_whoever_waits_for_a_device_is_interrupted(late: LateStreams) -> None:
    """A step may hang for ever, and slots with it."""
    goes_on = threading.Event()
    with images(ROWS * 20).loader(**SETTINGS, device=on(late)) as loader:
        batches = iter(loader)
        late.on(late.side, goes_on.wait)
        held = [next(batches) for _ in range(loader.plan.slots)]

        def interrupted() -> None:
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()
            next(batches)

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        goes_on.set()
        held += batches
        late.wait_here(late.record(late.now))
        check_same(held, host(images(ROWS * 20)))


def test_a_loader_that_another_thread_closes_meanwhile_says_so(late: LateStreams) -> None:
    goes_on = threading.Event()
    loader = images(ROWS * 20).loader(**SETTINGS, device=on(late))
    batches = iter(loader)
    late.on(late.side, goes_on.wait)
    held = [next(batches) for _ in range(loader.plan.slots)]
    run: Any = loader._run

    def go_on() -> None:
        while not run._closed:
            os.sched_yield()
        goes_on.set()

    closer, opener = threading.Timer(0.1, loader.close), threading.Thread(target=go_on)
    opener.start()
    closer.start()
    with pytest.raises(sp.StandpipeError, match="closed"):
        next(batches)
    closer.join()
    opener.join()
    late.wait_here(late.record(late.now))
    check_same(held, host(images(ROWS * 20))[: len(held)])


def test_a_loader_ends_once_its_last_batch_is_made(late: LateStreams) -> None:
    """What the step's stream reads to make it belongs to the side stream, and would be anybody's."""
    goes_on = threading.Event()
    with whose_second_batch_fails().loader(**SETTINGS, device=on(late)) as loader:
        late.on(late.now, goes_on.wait)
        batches = iter(loader)
        batch = next(batches)
        threading.Timer(0.2, goes_on.set).start()
    assert goes_on.is_set()
    late.wait_here(late.record(late.now))
    check_same([batch], host(images())[:1])


def test_a_forked_child_that_drops_the_iterator_goes_on() -> None:
    with images(ROWS * 20).loader(**SETTINGS) as loader:
        batches = iter(loader)
        next(batches)
        run: Any = loader._run
        held, over = threading.Event(), threading.Event()

        def hold() -> None:
            with run._queue.lock:
                held.set()
                over.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        if (child := os.fork()) == 0:
            threading.Thread(target=lambda: threading.Event().wait(20) or os._exit(1), daemon=True).start()
            del batches
            os._exit(0)
        over.set()
        holder.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_device_without_a_number_is_the_batchs_own() -> None:
    """Another thread's current device is another one."""
    form = Form.of(("image", "label", "valid"), "cuda", None, None)
    with FakeTensorMode():
        there = torch.device(
            "cuda", max(torch.cuda.device_count() - 1, 0) if torch.cuda.is_available() else 1
        )
        image, label = torch.empty((4, 3, 2, 2), device=there), torch.empty(4, device=there)
        batch = form.batch({"image": image, "label": label, "index": label})
        assert [tensor.device for tensor in batch] == [there] * 3


class Odd:
    """Samples of many lengths, from none on."""

    lengths = np.arange(1, 61) * 11 % 13 + 1

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        few = np.full(0 if index < 2 * ROWS else 2, index, np.float32)
        return {"x": np.full(self.lengths[index], index, np.float32), "few": few}


@pytest.mark.parametrize("static_buffers", [False, True])
@pytest.mark.parametrize(
    "batch",
    [
        {
            "budget": 40,
            "length_column": "length",
            "collate": {"x": sp.Pad(), "few": sp.Ragged(max_values=80)},
        },
        {"batch_size": ROWS, "collate": {"x": sp.Pad(max_shape=13), "few": sp.Pad(max_shape=2)}},
    ],
)
def test_shapes_that_differ(late: LateStreams, static_buffers: bool, batch: dict[str, Any]) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Odd(), columns={"length": Odd.lengths})).batch(**batch)
    step = Step(late)
    with pipeline.loader(
        **SETTINGS, device=on(late, replace(EVERYTHING, static_buffers=static_buffers))
    ) as loader:
        for each in loader:
            step(each)
        check_same(step.all(), host(pipeline))


def test_arrays_that_go_backwards(late: LateStreams) -> None:
    def turned(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "turned": np.arange(ROWS)[::-1], "big": np.arange(ROWS, dtype=">i4")}

    step = Step(late)
    with images().map_batch(turned).loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        for seen in step.all():
            assert seen["turned"].tolist() == [3, 2, 1, 0]
            assert seen["big"].tolist() == [0, 1, 2, 3]


def test_training_and_validation_take_turns_within_an_epoch(late: LateStreams) -> None:
    train, val = images(ROWS * 8), images()
    of_train, of_val = Step(late), Step(late)
    with train.loader(**SETTINGS, device=on(late)) as outer, val.loader(**SETTINGS, device=on(late)) as inner:
        for number, batch in enumerate(outer):
            of_train(batch)
            if number in (2, 5):
                for other in inner:
                    of_val(other)
        check_same(of_train.all(), host(train))
        check_same(of_val.all(), host(val, 2))
