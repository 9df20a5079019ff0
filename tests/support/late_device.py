"""A device whose streams are slow threads, so code that doesn't wait for them reads or writes too early."""

from __future__ import annotations

import math
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import standpipe as sp
from standpipe.torch.device import CudaDevice
from standpipe.torch.sending import Wanted


class Stream:
    """A thread that does what it is given, in order, each after a pause of its own."""

    def __init__(self, seed: int, pause_s: float = 0.004) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pauses, self._pause_s = random.Random(seed), pause_s
        self.broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def end(self) -> None:
        self._work.put(None)
        self._thread.join()
        if self.broken is not None:
            raise self.broken

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            time.sleep(self._pauses.random() * self._pause_s)  # a device takes its time
            try:
                work()
            except BaseException as error:
                self.broken = error


class Happened(threading.Event):
    """An event, and when it happened."""

    time_s = math.nan

    def happen(self) -> None:
        self.time_s = time.monotonic()
        self.set()


class LateStreams:
    """Does what ``standpipe.torch.streams.CudaStreams`` does, in host memory.

    pinned  memory that is pinned, and its size
    sizes   of the memory that was had for what comes
    copies  one for each copy on the side stream that is over
    most    bytes that were held at once
    """

    def __init__(self, *, pins: bool = True) -> None:
        self.device = torch.device("cpu")
        self.side = Stream(1)
        self.now = Stream(2)
        self.pinned: dict[int, int] = {}
        self.sizes: list[int] = []
        self.copies = threading.Semaphore(0)
        self.most = 0
        self._pins = pins
        self._held: dict[int, int] = {}
        self._lock = threading.Lock()

    def current(self) -> Stream:
        return self.now

    def record(self, stream: Stream) -> Happened:
        event = Happened()
        stream.put(event.happen)
        return event

    def seconds(self, begin: Happened, end: Happened) -> float:
        return end.time_s - begin.time_s

    def wait(self, stream: Stream, event: threading.Event) -> None:
        def work() -> None:
            assert event.wait(60)

        stream.put(work)

    def has_happened(self, event: threading.Event) -> bool:
        return event.is_set()

    def wait_here(self, event: threading.Event) -> None:
        assert event.wait(60)

    def on(self, stream: Stream, work: Callable[..., object], *arguments: Any) -> None:
        def timely() -> None:
            work(*arguments)
            if stream is self.side:
                self.copies.release()

        stream.put(timely)

    def empty(self, size: int | tuple[int, ...], dtype: torch.dtype, stream: Stream) -> torch.Tensor:
        nbytes = math.prod((size,) if isinstance(size, int) else size) * dtype.itemsize
        array = np.empty(max(nbytes, 1), np.uint8)
        if stream is self.side:
            self.sizes.append(nbytes)
        with self._lock:
            self._held[id(array)] = nbytes
            self.most = max(self.most, sum(self._held.values()))
        weakref.finalize(array, self._held.pop, id(array))
        return torch.from_numpy(array)[:nbytes].view(dtype).view(size)

    def held(self) -> int:
        """Bytes that somebody has."""
        return sum(self._held.values())

    def pin(self, address: int, size: int) -> str | None:
        if not self._pins:
            return "no such thing"
        self.pinned[address] = size
        return None

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def end(self) -> None:
        self.side.end()
        self.now.end()


@dataclass(frozen=True)
class LateDevice(CudaDevice):
    """A ``CudaDevice`` whose streams are ``LateStreams``."""

    late: LateStreams

    def cpus(self) -> frozenset[int] | None:
        return None

    def check(self) -> None:
        pass

    def streams(self) -> LateStreams:
        return self.late


ROWS, STEPS = 4, 6
EVERYTHING = Wanted(None, None, None, static_buffers=False)
SETTINGS: dict[str, Any] = {"memory": "256MiB", "num_workers": 2, "executor": "thread"}
TABLES = (
    3 * 256 * 4 + 3 * 4
)  # bytes of the device's memory: numbers of bytes as float32, and where channels begin


def images(records: int = ROWS * STEPS, *transforms: Any) -> sp.Pipeline:
    random = np.random.default_rng(0)
    source = sp.Arrays(
        image=random.integers(0, 256, (records, 9, 7, 3), np.uint8),
        label=np.arange(records),
        x=random.random((records, 3), np.float32),
    )
    return sp.Pipeline(source).shuffle(seed=5).map(*transforms or (sp.Normalize(),)).batch(ROWS)


def on(late: LateStreams, wanted: Wanted = EVERYTHING, slots: int = 2) -> LateDevice:
    return LateDevice(torch.device("cuda"), wanted, slots, late)


class Step:
    """A training step: reads batches in the order of the device's stream, and drops them at once."""

    def __init__(self, late: LateStreams) -> None:
        self._late = late
        self.seen: dict[int, dict[str, Any]] = {}
        self._number = 0

    def __call__(self, batch: dict[str, Any]) -> None:
        self._number += 1

        def read(number: int = self._number) -> None:
            self.seen[number] = {name: _copy(value) for name, value in batch.items()}

        self._late.on(self._late.now, read)

    def all(self) -> list[dict[str, Any]]:
        """Return the batches that it has read so far."""
        self._late.wait_here(self._late.record(self._late.now))
        return [self.seen[number] for number in sorted(self.seen)]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def host(pipeline: sp.Pipeline, epochs: int = 1, **settings: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**{**SETTINGS, **settings}) as loader:
        return [
            {name: _copy_of_array(value) for name, value in batch.items()}
            for _ in range(epochs)
            for batch in loader
        ]


def _copy_of_array(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def check_same(seen: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(seen) == len(wanted)
    for batch, expected in zip(seen, wanted, strict=True):
        for name, value in batch.items():
            same = expected[name]
            value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            if isinstance(same, torch.Tensor):
                assert torch.equal(value, same.to(value.dtype)), name
            else:
                assert value == same, name
