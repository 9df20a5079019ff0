"""A device whose streams are threads that dawdle: whoever doesn't wait where he must, reads or writes too early."""

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

from penstock.torch.device import CudaDevice


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


class LateStreams:
    """Satisfies ``penstock.torch.streams.Streams``, in host memory.

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

    def record(self, stream: Stream) -> threading.Event:
        event = threading.Event()
        stream.put(event.set)
        return event

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
        array = np.empty(math.prod((size,) if isinstance(size, int) else size) * dtype.itemsize, np.uint8)
        if stream is self.side:
            self.sizes.append(array.nbytes)
        with self._lock:
            self._held[id(array)] = array.nbytes
            self.most = max(self.most, sum(self._held.values()))
        weakref.finalize(array, self._held.pop, id(array))
        return torch.from_numpy(array).view(dtype).view(size)

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
