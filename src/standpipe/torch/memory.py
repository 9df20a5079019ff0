"""Deliver a loader's batches in host memory, as tensors that share the slot's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from standpipe import ArraySpec
from standpipe.torch.sending import Wanted

WRITTEN = (torch.float32, torch.float16, torch.bfloat16)  # by native kernels


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """Host memory as the device of batches. It satisfies standpipe's ``Device``, and can be pickled.

    Native kernels write images in the wanted dtype and memory format, so batches are not copied.

    wanted  fields, dtype and memory format of a batch
    """

    wanted: Wanted

    lends = True
    same_shapes = False
    mixes = False

    def cpus(self) -> None:
        """Return None: all CPUs are equally near."""

    def check(self) -> None:
        """Check nothing: memory always exists."""

    def describe(self, fields: Mapping[str, Any], finish: Any) -> Sequence[str]:
        """Return the lines on this device for ``explain()``.

        fields  the fields of a slot by name
        finish  how the bytes of the image field become numbers; None: they stay bytes
        """
        if finish is None:
            return ["host memory: tensors over the slot"]
        own = getattr(torch, finish.output.dtype.name)
        dtype = str(self.wanted.dtype_of(own)).removeprefix("torch.")
        last = ", channels last" if self.writes(finish).layout is not finish.layout else ""
        return [f"host memory: tensors over the slot, {finish.field} written as {dtype}{last}"]

    def writes(self, finish: Any) -> Any:
        """Return ``finish`` with the wanted dtype and channel order, as far as native kernels can write them.

        finish  how the pipeline converts the bytes of images to numbers
        """
        table = torch.from_numpy(finish.table)
        if (dtype := self.wanted.dtype_of(table.dtype)) in WRITTEN:
            table = table.to(dtype)
        numbers = (table.view(torch.uint16) if table.dtype is torch.bfloat16 else table).numpy()
        layout, shape = finish.layout, finish.output.shape
        if layout.value == "NCHW" and self.wanted.is_channels_last(4, table.dtype):
            layout, shape = type(layout)("NHWC"), (*shape[1:], shape[0])
        return replace(finish, table=numbers, output=ArraySpec(shape, numbers.dtype), layout=layout)

    def open(self, fields: Mapping[str, Any], finish: Any) -> Tensors:
        """Return a ``Tensors``, which turns image arrays into tensors."""
        return Tensors(finish, None if finish is None else self.writes(finish))


class Tensors:
    """Turns image arrays of a slot into tensors. It satisfies standpipe's ``OpenDevice``.

    finish   how the pipeline converts image bytes to numbers; None: images stay bytes
    written  the same, with the dtype and layout that kernels wrote into the slot
    """

    copying_s = 0.0

    def __init__(self, finish: Any, written: Any) -> None:
        self._finish, self._written = finish, written

    def send(self, slot: int, memory: Any, batch: Mapping[str, Any]) -> bool:
        """Return True without doing anything: the batch already is in host memory."""
        return True

    def take(
        self, slot: int, memory: Any, batch: Mapping[str, Any], mixes: Sequence[Any]
    ) -> Mapping[str, Any]:
        """Return the batch of a slot, with images as tensors that share the slot's memory."""
        if self._finish is None:
            return batch
        image = torch.from_numpy(batch[self._finish.field])
        if self._written.table.dtype == np.uint16:
            image = image.view(torch.bfloat16)
        if self._written.layout is not self._finish.layout:
            image = image.permute(0, 3, 1, 2)
        return {**batch, self._finish.field: image}

    def settle(self) -> bool:
        """Return True: no copy reads a slot."""
        return True

    def rest(self) -> None:
        """Do nothing: no copy is pending."""

    def close(self) -> bool:
        """Return True without doing anything: no memory was allocated."""
        return True
