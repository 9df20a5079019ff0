"""Batches on their way from slots to a device, one ahead of the training step.

::

    slot ──copy on the side stream──▶ bytes on the device ──finished on the step's stream──▶ batch

Bytes come ahead: the copy of the next batch runs while the step works on this one. Finishing it, which reads and
writes the device's memory once, happens on the step's own stream when the batch is asked for: so whatever the step
does with a batch, and however long it holds it, comes in the order of one stream, and memory is torch's to give and
take back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import mmap
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from standpipe.torch.finishing import Finisher
from standpipe.torch.mixing import mix_images, mix_labels
from standpipe.torch.streams import Streams

UInt8Array = NDArray[np.uint8]

ALIGNMENT = 256  # bytes: what kernels load at once, and more
PATIENCE_S = 10.0  # at the end, with a device that has work yet
LOOKS_S = 0.001  # between two looks at it

Method = TypeVar("Method", bound=Callable[..., Any])


def normal_tensors(method: Method) -> Method:
    """A caller in ``torch.inference_mode()`` would make memory that other threads mustn't write into."""
    made: Method = torch.inference_mode(mode=False)(method)
    return made


@dataclass(slots=True)
class Buffer:
    """Memory on the device for the bytes of one batch.

    read  an event after which nothing reads it any more
    """

    memory: torch.Tensor
    read: Any = None


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A batch whose bytes are being copied.

    fields  the fields in the buffer
    begun   event: the copy starts
    copied  event: the copy is complete
    """

    buffer: Buffer
    fields: Mapping[str, torch.Tensor]
    begun: Any
    copied: Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """The form of a batch on the device.

    fields          fields that are copied there; None: all
    dtype           dtype of floating-point fields; None: their own
    memory_format   memory format of fields of four dimensions that aren't uint8; None: their own
    static_buffers  True if each batch overwrites the one before it
    """

    fields: frozenset[str] | None
    dtype: torch.dtype | None
    memory_format: torch.memory_format | None
    static_buffers: bool

    def has(self, name: str) -> bool:
        """Return True if a field is copied to the device."""
        return self.fields is None or name in self.fields

    def dtype_of(self, own: torch.dtype) -> torch.dtype:
        """Return the dtype on the device."""
        return self.dtype if self.dtype is not None and own.is_floating_point else own

    def is_channels_last(self, dimensions: int, dtype: torch.dtype) -> bool:
        """Return True if channels come last in memory."""
        return self.memory_format is torch.channels_last and dimensions == 4 and dtype != torch.uint8


class Sender:
    """Brings batches to a device. Satisfies the ``OpenDevice`` of standpipe's contracts.

    sizes      most bytes, in a slot, of each field that is brought there
    ahead      batches whose bytes come before they are asked for, at most
    finishers  of fields that are finished there
    copying_s  seconds that the side stream has copied batches which were taken
    """

    def __init__(
        self,
        streams: Streams,
        sizes: Mapping[str, int],
        wanted: Wanted,
        *,
        ahead: int,
        finishers: Mapping[str, Finisher],
    ) -> None:
        self._streams, self._wanted, self._finishers = streams, wanted, finishers
        self._sizes = sizes
        self._most = self._ahead = ahead
        self._spare: list[Buffer] = []
        self._coming: dict[int, OnItsWay] = {}  # by slot
        self._copying: deque[tuple[OnItsWay, Mapping[str, Any]]] = deque()  # taken; their slots are read yet
        self.copying_s = 0.0
        self._pinned: set[int] = set()
        self._pins = True
        self._places: dict[str, torch.Tensor] = {}  # of static batches
        self._last: Any = None  # the stream of the batch before

    @normal_tensors
    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Start to copy a batch's bytes; return False while no buffer is free.

        Errors, such as for lack of memory, are raised when the batch is taken: ``take`` tries again.
        """
        if slot not in self._coming:
            if len(self._coming) >= self._ahead:
                return False
            try:
                self._coming[slot] = self._sent(memory, batch)
            except RuntimeError:
                # Asking once more, torch would empty its cache once more.
                self._ahead = max(len(self._coming) + len(self._spare), 1)
                return False
        return True

    @normal_tensors
    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Any]
    ) -> Mapping[str, Any]:
        """The batch on the device, ready for what the caller's current stream does next."""
        if slot not in self._coming:
            self._drop()  # what is on its way comes later, if ever
        coming = self._coming.pop(slot, None) or self._sent(memory, batch)
        self._copying.append((coming, batch))
        stream = self._streams.current()
        self._streams.wait(stream, coming.copied)
        if self._places and self._last != stream:
            self._streams.wait(stream, self._streams.record(self._last))
        self._last = stream
        try:
            taken = {
                name: self._finished(name, coming.fields[name], mixes, stream)
                if name in coming.fields
                else self._apart(value)
                for name, value in batch.items()
                if self._wanted.has(name)
            }
        finally:  # what was begun reads the buffer, also where memory for the rest is wanting
            coming.buffer.read = self._streams.record(stream)
            self._spare.append(coming.buffer)
        return {"index": batch["index"].copy(), **taken}

    def settle(self) -> bool:
        """Let go of batches that were taken and have left their slots; whether all have."""
        while self._copying and self._streams.has_happened(self._copying[0][0].copied):
            copied = self._copying.popleft()[0]
            self.copying_s += self._streams.seconds(copied.begun, copied.copied)
        return not self._copying

    def rest(self) -> None:
        """Give the memory back, for the next user of the side stream."""
        self._ahead = self._most
        self._drop()
        with contextlib.suppress(RuntimeError):  # of a device that has failed, and writes nothing any more
            for buffer in self._spare:
                self._after_reading(buffer)
        self._spare.clear()

    @normal_tensors
    def close(self) -> bool:
        """Wait until nothing of it is read any more, and let go of slots. False where that takes for ever."""
        self.rest()
        with contextlib.suppress(RuntimeError):  # likewise
            if not self._comes_to_rest():
                return False
        self._copying.clear()
        self._places.clear()
        for address in self._pinned:
            with contextlib.suppress(RuntimeError):
                self._streams.unpin(address)
        self._pinned.clear()
        return True

    def _comes_to_rest(self) -> bool:
        """Wait for the side stream; return False if a step hangs."""
        over = self._streams.record(self._streams.side)
        ends = time.monotonic() + PATIENCE_S
        while not self._streams.has_happened(over):
            if time.monotonic() > ends:
                logging.getLogger("standpipe").warning(
                    "%s was still busy after %.0f s: what it may read yet stays pinned",
                    self._streams.device,
                    PATIENCE_S,
                )
                return False
            time.sleep(LOOKS_S)
        return True

    def _drop(self) -> None:
        self._spare += (coming.buffer for coming in self._coming.values())
        self._coming.clear()

    def _sent(self, memory: UInt8Array, batch: Mapping[str, Any]) -> OnItsWay:
        """A batch whose copy has begun."""
        self._pin(memory)
        side = self._streams.side
        buffer = self._spare.pop() if self._spare else Buffer(self._new_memory())
        self._after_reading(buffer)
        fields: dict[str, torch.Tensor] = {}
        begun = self._streams.record(side)

        def copy(source: torch.Tensor, target: torch.Tensor) -> None:
            target.copy_(source, non_blocking=True)

        for name, source, begin in self._placed(memory, batch):
            target = buffer.memory[begin : begin + source.nbytes].view(source.dtype).view(source.shape)
            self._streams.on(side, copy, source, target)
            fields[name] = target
        return OnItsWay(buffer, fields, begun, self._streams.record(side))

    def _after_reading(self, buffer: Buffer) -> None:
        """Make later work on the side stream wait until the buffer was read."""
        if buffer.read is not None:
            self._streams.wait(self._streams.side, buffer.read)
            buffer.read = None

    def _new_memory(self) -> torch.Tensor:
        size = sum(map(aligned, self._sizes.values()))
        return self._streams.empty(size, torch.uint8, self._streams.side)

    def _placed(
        self, memory: UInt8Array, batch: Mapping[str, Any]
    ) -> Iterator[tuple[str, torch.Tensor, int]]:
        """Yield the fields that are stored in the slot, as tensors of its memory, and their offsets in a
        buffer.
        """
        begin = 0
        for name, size in self._sizes.items():
            value = batch.get(name)
            if _lies_in(memory, value) and (source := as_tensor(value)) is not None:
                yield name, source, begin
            begin += aligned(size)

    def _pin(self, memory: UInt8Array) -> None:
        address = memory.ctypes.data
        if not self._pins or address in self._pinned:
            return
        pages = -(-memory.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE  # all of them the slot's
        if (reason := self._streams.pin(address, pages)) is None:
            self._pinned.add(address)
            return
        self._pins = False
        logging.getLogger("standpipe").warning(
            "slots can't be pinned, so copies to %s take the host's time: %s", self._streams.device, reason
        )

    def _finished(self, name: str, value: torch.Tensor, mixes: Sequence[Any], stream: Any) -> torch.Tensor:
        """A field as the batch has it, in memory of its own."""
        on = self._streams.on
        if mixes and name == mixes[0].label:
            shares = (len(value), mixes[0].num_classes)
            out = self._out(
                name, value, shares, self._wanted.dtype_of(torch.float32), stream, each=mixes[0].num_classes
            )
            on(stream, mix_labels, value, mixes, out)
            return out
        finisher = self._finishers.get(name)
        shape, own = tuple(value.shape), value.dtype
        if finisher is not None:
            shape, own = finisher.shape(shape), finisher.dtype
        out = self._out(name, value, shape, self._wanted.dtype_of(own), stream)
        mixed = bool(mixes) and name == mixes[0].image
        made = self._streams.empty(shape, own, stream) if mixed and own != out.dtype else out
        if finisher is None:
            on(stream, made.copy_, value)
        else:
            on(stream, finisher.finish, value, made)
        if mixed:
            on(stream, mix_images, made, mixes)
        if made is not out:
            on(stream, out.copy_, made)
        return out

    def _out(
        self,
        name: str,
        source: torch.Tensor,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        stream: Any,
        *,
        each: int = 1,
    ) -> torch.Tensor:
        """Memory for what is made of ``source``, ``each`` numbers of one."""
        last = self._wanted.is_channels_last(len(shape), dtype)
        in_memory = (shape[0], *shape[2:], shape[1]) if last else shape
        if self._wanted.static_buffers:
            out = self._place(name, self._sizes[name] // source.itemsize * each, dtype, stream)
            out = out[: math.prod(shape)].view(in_memory)
        else:
            out = self._streams.empty(in_memory, dtype, stream)
        return out.permute(0, 3, 1, 2) if last else out

    def _place(self, name: str, most: int, dtype: torch.dtype, stream: Any) -> torch.Tensor:
        """Return a field's place in every batch: a flat tensor of its largest size."""
        if name not in self._places:
            self._places[name] = self._streams.empty(most, dtype, stream)
        return self._places[name]

    def _apart(self, value: Any) -> Any:
        """Convert a value that isn't stored in a slot, or is no number."""
        tensor = as_tensor(value)
        if tensor is None:
            return value.copy() if isinstance(value, np.ndarray) else value
        # Nobody waits: memory that isn't pinned has been read when this returns.
        return tensor.to(self._streams.device, self._wanted.dtype_of(tensor.dtype), non_blocking=True)


@normal_tensors
def placed(streams: Streams, tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the device, there before all that is copied on the side stream from now on."""
    there = streams.empty(tuple(tensor.shape), tensor.dtype, streams.side)
    streams.on(streams.side, there.copy_, tensor, True)  # memory that isn't pinned is read at once
    return there


def aligned(size: int) -> int:
    """Bytes of a field in a buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _lies_in(memory: UInt8Array, value: object) -> bool:
    begin = memory.ctypes.data
    return isinstance(value, np.ndarray) and begin <= value.ctypes.data < begin + memory.nbytes


def as_tensor(value: object) -> torch.Tensor | None:
    """A tensor of an array's memory, a copy where torch has no such strides; None for what is no array of numbers."""
    if not isinstance(value, np.ndarray):
        return None
    try:
        return torch.from_numpy(value)
    except ValueError:  # backwards, or with the other order of bytes
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))
    except TypeError:  # text, say
        return None
