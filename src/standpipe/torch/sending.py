"""Copy batches from slots to a CUDA device, ahead of the training step.

::

    slot ──copy on the side stream──▶ bytes on the device ──finished on the step's stream──▶ batch

The side stream copies the next batch's bytes while the training step works on the current batch. When the training
loop asks for the batch, the step's own stream finishes it: bytes become numbers, in one pass over device memory. So
one stream orders everything that the step does with a batch, and torch's allocator can manage the batch's memory.
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
from standpipe.torch.streams import CudaStreams

UInt8Array = NDArray[np.uint8]

ALIGNMENT = 256  # bytes: at least as much as a kernel loads at once
PATIENCE_S = 10.0  # how long close() waits for a busy device
LOOKS_S = 0.001  # between two checks while it waits

Method = TypeVar("Method", bound=Callable[..., Any])


def normal_tensors(method: Method) -> Method:
    """Decorate a method so that it runs outside ``torch.inference_mode()``.

    Other threads couldn't write into tensors that were made in inference mode.
    """
    made: Method = torch.inference_mode(mode=False)(method)
    return made


@dataclass(slots=True)
class Buffer:
    """Memory on the device for the bytes of one batch.

    read  CUDA event after which no work reads the buffer; None: it is free now
    """

    memory: torch.Tensor
    read: Any = None


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A batch whose bytes are being copied.

    fields  tensors over the buffer, by field
    begun   CUDA event: the copy starts
    copied  CUDA event: the copy is complete
    """

    buffer: Buffer
    fields: Mapping[str, torch.Tensor]
    begun: Any
    copied: Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """The form of a batch on the device.

    fields          names of the fields that are copied to the device; None: all
    dtype           dtype of floating-point fields; None: as in the slot
    memory_format   memory format of fields of four dimensions that aren't uint8; None: as in the slot
    static_buffers  True if each batch overwrites the one before it
    kept            fields that keep their dtype
    """

    fields: frozenset[str] | None
    dtype: torch.dtype | None
    memory_format: torch.memory_format | None
    static_buffers: bool
    kept: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Return True if a field is copied to the device."""
        return self.fields is None or name in self.fields

    def dtype_of(self, own: torch.dtype, name: str | None = None) -> torch.dtype:
        """Return the dtype that a field of dtype ``own`` has on the device. ``name``: one that may be ``kept``."""
        return (
            self.dtype if self.dtype is not None and own.is_floating_point and name not in self.kept else own
        )

    def is_channels_last(self, dimensions: int, dtype: torch.dtype) -> bool:
        """Return True if a field with so many dimensions and this dtype is stored with channels last."""
        return self.memory_format is torch.channels_last and dimensions == 4 and dtype != torch.uint8


class Sender:
    """Copies batches from slots to a device. It satisfies standpipe's ``OpenDevice``.

    sizes      the most bytes of each copied field in a slot, by name
    wanted     the form of a batch on the device
    ahead      the most batches that are copied before ``take`` asks for them
    finishers  for each field whose bytes the device converts to numbers
    copying_s  seconds of the side stream's copies, of batches that were taken
    """

    def __init__(
        self,
        streams: CudaStreams,
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
        self._copying: deque[tuple[OnItsWay, Mapping[str, Any]]] = deque()  # taken; slots may still be read
        self.copying_s = 0.0
        self._pinned: set[int] = set()
        self._pins = True
        self._places: dict[str, torch.Tensor] = {}  # of static batches
        self._last: Any = None  # the stream on which the previous batch was finished

    @normal_tensors
    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Start to copy the batch of a slot to the device. Return False if no buffer is free.

        slot    number of the slot
        memory  the slot's memory
        batch   the batch's arrays

        It raises no error, such as for lack of memory: ``take`` tries again, and raises it then.
        """
        if slot not in self._coming:
            if len(self._coming) >= self._ahead:
                return False
            try:
                self._coming[slot] = self._sent(memory, batch)
            except RuntimeError:
                # From now on, send only as many batches as had room: each failure makes torch empty its cache.
                self._ahead = max(len(self._coming) + len(self._spare), 1)
                return False
        return True

    @normal_tensors
    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Any]
    ) -> Mapping[str, Any]:
        """Return the batch on the device, for work that follows on the caller's current stream.

        mixes  MixUp and CutMix to apply to the batch, in this order
        """
        if slot not in self._coming:
            self._drop()  # forget the batches that are being copied: the caller wants another one first
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
        finally:  # work that was started reads the buffer, even if memory for the other fields is lacking
            coming.buffer.read = self._streams.record(stream)
            self._spare.append(coming.buffer)
        return {"index": batch["index"].copy(), **taken}

    def settle(self) -> bool:
        """Release slots from which copies are complete. Return True if no copy reads a slot any more."""
        while self._copying and self._streams.has_happened(self._copying[0][0].copied):
            copied = self._copying.popleft()[0]
            self.copying_s += self._streams.seconds(copied.begun, copied.copied)
        return not self._copying

    def rest(self) -> None:
        """Free all buffers, and forget batches that weren't taken."""
        self._ahead = self._most
        self._drop()
        with contextlib.suppress(RuntimeError):  # the device has failed, and no longer writes
            for buffer in self._spare:
                self._after_reading(buffer)
        self._spare.clear()

    @normal_tensors
    def close(self) -> bool:
        """Wait until no copy reads a slot, then unpin all slots.

        Return False if the device is still busy after ``PATIENCE_S``; slots then stay pinned.
        """
        self.rest()
        with contextlib.suppress(RuntimeError):  # the device has failed, and no longer reads
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
        """Wait for the side stream's work. Return False if it isn't done within ``PATIENCE_S``."""
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
        """Start to copy a batch on the side stream, and return it with its buffer and events."""
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
        """Make the side stream's later work wait for the last work that reads this buffer."""
        if buffer.read is not None:
            self._streams.wait(self._streams.side, buffer.read)
            buffer.read = None

    def _new_memory(self) -> torch.Tensor:
        size = sum(map(aligned, self._sizes.values()))
        return self._streams.empty(size, torch.uint8, self._streams.side)

    def _placed(
        self, memory: UInt8Array, batch: Mapping[str, Any]
    ) -> Iterator[tuple[str, torch.Tensor, int]]:
        """Yield (name, tensor, offset) for each field to be copied whose array is in the slot's memory.

        The tensor shares the slot's memory; the offset is in a device buffer, in bytes.
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
        pages = -(-memory.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE  # these pages belong to this slot alone
        if (reason := self._streams.pin(address, pages)) is None:
            self._pinned.add(address)
            return
        self._pins = False
        logging.getLogger("standpipe").warning(
            "slots can't be pinned, so copies to %s take the host's time: %s", self._streams.device, reason
        )

    def _finished(self, name: str, value: torch.Tensor, mixes: Sequence[Any], stream: Any) -> torch.Tensor:
        """Return a field of the delivered batch in new memory: bytes converted to numbers, and mixed.

        value   the field in the buffer
        mixes   MixUp and CutMix of this batch
        stream  the stream that does the work
        """
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
        out = self._out(name, value, shape, self._wanted.dtype_of(own, name), stream)
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
        """Return memory on the device for a field of the delivered batch, in the wanted memory format.

        source  the field in the buffer
        each    numbers in the result for each number of ``source``, to size static buffers
        """
        last = self._wanted.is_channels_last(len(shape), dtype)
        in_memory = (shape[0], *shape[2:], shape[1]) if last else shape
        if self._wanted.static_buffers:
            out = self._place(name, self._sizes[name] // source.itemsize * each, dtype, stream)
            out = out[: math.prod(shape)].view(in_memory)
        else:
            out = self._streams.empty(in_memory, dtype, stream)
        return out.permute(0, 3, 1, 2) if last else out

    def _place(self, name: str, most: int, dtype: torch.dtype, stream: Any) -> torch.Tensor:
        """Return the static buffer of a field, a flat tensor of ``most`` numbers; allocate it at first use."""
        if name not in self._places:
            self._places[name] = self._streams.empty(most, dtype, stream)
        return self._places[name]

    def _apart(self, value: Any) -> Any:
        """Return a value that isn't in the slot's memory: numbers on the device, other values on the host."""
        tensor = as_tensor(value)
        if tensor is None:
            return value.copy() if isinstance(value, np.ndarray) else value
        # Needs no event: a copy from unpinned memory has read all of it when the call returns.
        return tensor.to(self._streams.device, self._wanted.dtype_of(tensor.dtype), non_blocking=True)


@normal_tensors
def copied_to_device(streams: CudaStreams, tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the device on the side stream, before all later work of that stream."""
    there = streams.empty(tuple(tensor.shape), tensor.dtype, streams.side)
    streams.on(streams.side, there.copy_, tensor, True)  # unpinned memory is read before the call returns
    return there


def aligned(size: int) -> int:
    """Return ``size`` in bytes rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _lies_in(memory: UInt8Array, value: object) -> bool:
    begin = memory.ctypes.data
    return isinstance(value, np.ndarray) and begin <= value.ctypes.data < begin + memory.nbytes


def as_tensor(value: object) -> torch.Tensor | None:
    """Return a tensor over an array's memory, or a copy if torch can't have its strides or byte order.

    Return None if the value is no array of numbers.
    """
    if not isinstance(value, np.ndarray):
        return None
    try:
        return torch.from_numpy(value)
    except ValueError:  # negative strides, or the other byte order
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C"))
    except TypeError:  # text, say
        return None
