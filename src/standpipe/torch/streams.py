"""The CUDA streams, events and pinned host memory that ``Sender`` uses."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

cuda: Any = torch.cuda  # half of it has no types

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device


@functools.cache
def _driver() -> Any:
    """Return the library of CUDA's driver; None if there is none, as with AMD's GPUs."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """A context for calls of CUDA that mustn't disturb another thread's capture of a CUDA graph.

    By default a capture fails if any thread of the process queries an event.
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
    """The streams of a CUDA device. Work on one stream runs in order; two streams run independently.

    device  the device
    side    the stream that copies batches. All loaders of the process share it, so one loader can use
            memory that another one has freed on this stream
    """

    _sides: dict[int, torch.cuda.Stream] = {}  # noqa: RUF012 (of the process)
    _lock = threading.Lock()

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        with self._lock:
            if index not in self._sides:
                self._sides[index] = cuda.Stream(self.device)
            self.side = self._sides[index]

    def current(self) -> torch.cuda.Stream:
        """Return the calling thread's current stream on the device."""
        return torch.cuda.current_stream(self.device)

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Return an event that happens when all work that is on the stream now is done."""
        with torch.cuda.device(self.device):
            event: torch.cuda.Event = cuda.Event(enable_timing=True)
            event.record(stream)
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two events that have both happened."""
        with beside_captures():
            return float(begin.elapsed_time(end)) / 1000

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Make later work on the stream wait for the event."""
        stream.wait_event(event)

    def has_happened(self, event: torch.cuda.Event) -> bool:
        """Return True if the event has happened."""
        with beside_captures():
            return bool(cuda.Event.query(event))

    def on(self, stream: torch.cuda.Stream, work: Callable[..., object], *arguments: Any) -> None:
        """Call ``work(*arguments)`` with the stream as torch's current one.

        Its operations run on that stream, and their memory is allocated for that stream.
        """
        with self._on(stream):
            work(*arguments)

    def empty(
        self, size: int | tuple[int, ...], dtype: torch.dtype, stream: torch.cuda.Stream
    ) -> torch.Tensor:
        """Allocate an uninitialised tensor that only work on this stream may use."""
        with self._on(stream), beside_captures():
            return torch.empty(size, dtype=dtype, device=self.device)

    def pin(self, address: int, size: int) -> str | None:
        """Pin ``size`` bytes of host memory, so that the device copies it by itself.

        Return None, or CUDA's error text.
        """
        runtime: Any = cuda.cudart()
        with torch.cuda.device(self.device), beside_captures():
            error = runtime.cudaHostRegister(address, size, PORTABLE)
            if int(error) == 0:
                return None
            with contextlib.suppress(RuntimeError):  # the next launch reports the error too
                torch.zeros(1, device=self.device)
        return str(runtime.cudaGetErrorString(error))

    def unpin(self, address: int) -> None:
        """Unpin the host memory at this address."""
        with torch.cuda.device(self.device), beside_captures():
            cuda.cudart().cudaHostUnregister(address)

    @contextlib.contextmanager
    def _on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        # Select the device first, here and elsewhere: a thread starts with device 0, and would create a context of
        # half a gigabyte there, on a GPU that another process may use.
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield
