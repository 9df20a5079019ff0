"""Deliver a loader's batches on a CUDA device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from standpipe import PlanError
from standpipe.torch.finishing import Finisher
from standpipe.torch.numa import cpus_near
from standpipe.torch.sending import Sender, Wanted, aligned, copied_to_device
from standpipe.torch.streams import CudaStreams

MOST_SLOTS = 64  # batches
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A CUDA device that batches are copied to. It satisfies standpipe's ``Device``, and can be pickled.

    device  such as ``cuda:1``; ``cuda`` without a number is the current device when the loader starts
    wanted  fields, dtype and memory format of a batch on the device
    slots   batches on the device at once: the caller's one, and those copied ahead
    """

    device: torch.device
    wanted: Wanted
    slots: int

    lends = False
    mixes = True

    @property
    def same_shapes(self) -> bool:
        """True with static buffers: each batch overwrites the one before it."""
        return self.wanted.static_buffers

    def writes(self, finish: Any) -> None:
        """Return None: kernels write bytes into slots, and the device converts them to numbers.

        finish  how the pipeline wants bytes converted to numbers
        """

    def check(self) -> None:
        """Raise ``PlanError`` if torch has no such device."""
        if not torch.cuda.is_available():
            cuda: Any = torch.backends.cuda
            why = "sees none" if cuda.is_built() else "was built without CUDA"
            raise PlanError(
                f"device={str(self.device)!r} can't be used: torch {torch.__version__} {why}. Use device='cpu'"
            )
        count = torch.cuda.device_count()
        if (self.device.index or 0) >= count:
            raise PlanError(
                f"device={str(self.device)!r} doesn't exist: the last GPU that torch sees is cuda:{count - 1}"
            )

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs of the GPU's NUMA node; None with a single node, or if the node isn't known."""
        found = torch.cuda.get_device_properties(self._index())
        place: list[Any] = [
            getattr(found, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")
        ]
        return cpus_near(None if None in place else "{:04x}:{:02x}:{:02x}.0".format(*place))

    def describe(self, fields: Mapping[str, Any], finish: Any) -> Sequence[str]:
        """Return the lines on this device for ``explain()``.

        fields  the fields of a slot by name, each a ``SlotField``
        finish  how the bytes of the image field become numbers; None: they stay bytes
        """
        coming, held = self.memory(fields, finish)
        ahead = "1 batch" if self.slots == 2 else f"{self.slots - 1} batches"
        lines = [f"{self.device}: {', '.join(self._brought(fields))}, copied {ahead} ahead"]
        if finish is not None:
            dtype = str(self.wanted.dtype or finish.output.dtype.name).removeprefix("torch.")
            lines += [f"{finish.field} as bytes, made {dtype} there, in one step with its layout"]
        till = "always in one place" if self.wanted.static_buffers else "until it is dropped"
        return [
            *lines,
            f"{coming / MIB:.1f}MiB of its memory for what comes, during an epoch",
            f"{held / MIB:.1f}MiB for each batch, {till}",
        ]

    def memory(self, fields: Mapping[str, Any], finish: Any) -> tuple[int, int]:
        """Return bytes of device memory: of all buffers for copies ahead, and of one delivered batch."""
        brought = self._brought(fields)
        dtypes = {name: each.dtype for name, each in brought.items()}
        if finish is not None and finish.field in dtypes:
            dtypes[finish.field] = finish.table.dtype
        held = sum(
            each.nbytes // each.dtype.itemsize * self._item_bytes(dtypes[name], kept=each.keeps_dtype)
            for name, each in brought.items()
        )
        return (self.slots - 1) * sum(aligned(each.nbytes) for each in brought.values()), held

    def open(self, fields: Mapping[str, Any], finish: Any) -> Sender:
        """Return a ``Sender``, which copies batches from slots to the device."""
        streams = self.streams()
        finishers = {}
        if finish is not None and self.wanted.has(finish.field):
            table = torch.from_numpy(finish.table)
            finishers[finish.field] = Finisher(
                table,
                self.wanted.dtype_of(table.dtype),
                planar=finish.layout.value == "NCHW",
                place=lambda tensor: copied_to_device(streams, tensor),
            )
        sizes = {name: each.nbytes for name, each in self._brought(fields).items()}
        wanted = replace(self.wanted, kept=frozenset(name for name in sizes if fields[name].keeps_dtype))
        return Sender(streams, sizes, wanted, ahead=self.slots - 1, finishers=finishers)

    def streams(self) -> CudaStreams:
        """Return the CUDA streams of this device."""
        return CudaStreams(self._index())

    def _index(self) -> int:
        return torch.cuda.current_device() if self.device.index is None else self.device.index

    def _brought(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in fields.items() if self.wanted.has(name)}

    def _item_bytes(self, dtype: np.dtype[Any], *, kept: bool) -> int:
        """Return the size in bytes of one number on the device, for a field of this dtype on the host.

        kept  True if the field keeps its dtype
        """
        if self.wanted.dtype is not None and dtype.kind == "f" and not kept:
            return self.wanted.dtype.itemsize
        return dtype.itemsize
