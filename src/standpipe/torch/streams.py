"""A device's work beside the program: streams, events between them, pinned host memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

cuda: Any = torch.cuda  # half of it has no types

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device


class Streams(Protocol):
    """One device's streams. What is put on a stream happens in order; across streams, only where one waits.

    device  where tensors are
    side    the stream on which batches come, the same for all loaders of the process: what one of them frees there
            another one takes
    """

    device: torch.device
    side: Any

    def current(self) -> Any:
        """The stream on which the caller's work is now."""

    def record(self, stream: Any) -> Any:
        """An event: that all work which is on the stream by now has been done."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two events that lie behind."""

    def wait(self, stream: Any, event: Any) -> None:
        """Work that comes onto the stream from now on happens after the event."""

    def has_happened(self, event: Any) -> bool:
        """Return True if the event has happened."""

    def on(self, stream: Any, work: Callable[..., object], *arguments: Any) -> None:
        """Put work on a stream: torch operations, which also take their memory from it."""

    def empty(self, size: int | tuple[int, ...], dtype: torch.dtype, stream: Any) -> torch.Tensor:
        """Memory for the work of a stream, and no other."""

    def pin(self, address: int, size: int) -> str | None:
        """Make host memory one that copies read without the host's help; or why it can't be."""

    def unpin(self, address: int) -> None:
        """Undo ``pin``."""


@functools.cache
def _driver() -> Any:
    """CUDA's driver; None where torch's devices are another maker's."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """Call CUDA without disturbing a graph that another thread captures.

    By default a capture fails if any thread of the process asks whether an event has happened.
    """
    if (driver := _driver()) is None:
        yield
        return
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))  # back to what it was


class CudaStreams:
    """The streams of a CUDA device. Satisfies ``Streams``."""

    _sides: dict[int, torch.cuda.Stream] = {}  # noqa: RUF012 (of the process)
    _lock = threading.Lock()

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        with self._lock:
            if index not in self._sides:
                self._sides[index] = cuda.Stream(self.device)
            self.side = self._sides[index]

    def current(self) -> torch.cuda.Stream:
        """Return this thread's stream."""
        return torch.cuda.current_stream(self.device)

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Record an event on a stream."""
        with torch.cuda.device(self.device):
            event: torch.cuda.Event = cuda.Event(enable_timing=True)
            event.record(stream)
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two events."""
        with beside_captures():
            return float(begin.elapsed_time(end)) / 1000

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Make a stream wait for an event."""
        stream.wait_event(event)

    def has_happened(self, event: torch.cuda.Event) -> bool:
        """Return True if the event has happened."""
        with beside_captures():
            return bool(cuda.Event.query(event))

    def on(self, stream: torch.cuda.Stream, work: Callable[..., object], *arguments: Any) -> None:
        """Run ``work`` with a stream as the current one."""
        with self._on(stream):
            work(*arguments)

    def empty(
        self, size: int | tuple[int, ...], dtype: torch.dtype, stream: torch.cuda.Stream
    ) -> torch.Tensor:
        """Allocate a tensor on a stream."""
        with self._on(stream), beside_captures():
            return torch.empty(size, dtype=dtype, device=self.device)

    def pin(self, address: int, size: int) -> str | None:
        """Pin host memory; return an error text if that fails."""
        runtime: Any = cuda.cudart()
        with torch.cuda.device(self.device), beside_captures():
            error = runtime.cudaHostRegister(address, size, PORTABLE)
            if int(error) == 0:
                return None
            with contextlib.suppress(RuntimeError):  # the next launch reports the error too
                torch.zeros(1, device=self.device)
        return str(runtime.cudaGetErrorString(error))

    def unpin(self, address: int) -> None:
        """Unpin host memory."""
        with torch.cuda.device(self.device), beside_captures():
            cuda.cudart().cudaHostUnregister(address)

    @contextlib.contextmanager
    def _on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        # The device first, here and below: a thread's own is device 0 until it says another, and would begin a context
        # there, half a gigabyte on a GPU of somebody else's.
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield
