"""Host memory as the place where a loader's batches go: tensors over the slot."""

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
    """Batches where they were made. Satisfies the ``Device`` of standpipe's contracts; it can be pickled.

    Native kernels write images in the dtype and the order of memory that are wanted, so nothing is copied.
    """

    wanted: Wanted

    lends = True
    mixes = False

    def cpus(self) -> None:
        """Return None: all CPUs are equally near."""

    def check(self) -> None:
        """Check nothing: memory always exists."""

    def describe(self, fields: Mapping[str, Any], finish: Any) -> Sequence[str]:
        """Lines for ``explain()``."""
        if finish is None:
            return ["host memory: tensors over the slot"]
        own = getattr(torch, finish.output.dtype.name)
        dtype = str(self.wanted.dtype_of(own)).removeprefix("torch.")
        last = ", channels last" if self.writes(finish).layout is not finish.layout else ""
        return [f"host memory: tensors over the slot, {finish.field} written as {dtype}{last}"]

    def writes(self, finish: Any) -> Any:
        """Return the finish, if kernels can write it."""
        table = torch.from_numpy(finish.table)
        if (dtype := self.wanted.dtype_of(table.dtype)) in WRITTEN:
            table = table.to(dtype)
        numbers = (table.view(torch.uint16) if table.dtype is torch.bfloat16 else table).numpy()
        layout, shape = finish.layout, finish.output.shape
        if layout.value == "NCHW" and self.wanted.is_channels_last(4, table.dtype):
            layout, shape = type(layout)("NHWC"), (*shape[1:], shape[0])
        return replace(finish, table=numbers, output=ArraySpec(shape, numbers.dtype), layout=layout)

    def open(self, fields: Mapping[str, Any], finish: Any) -> Tensors:
        """Return an object that makes tensors of images."""
        return Tensors(finish, None if finish is None else self.writes(finish))


class Tensors:
    """Satisfies the ``OpenDevice`` of standpipe's contracts.

    finish   the last step of images, as the pipeline says it; None where there is none
    written  as it was done
    """

    copying_s = 0.0

    def __init__(self, finish: Any, written: Any) -> None:
        self._finish, self._written = finish, written

    def send(self, slot: int, memory: Any, batch: Mapping[str, Any]) -> bool:
        """Do nothing: the batch is in place."""
        return True

    def take(
        self, slot: int, memory: Any, batch: Mapping[str, Any], mixes: Sequence[Any]
    ) -> Mapping[str, Any]:
        """The batch, with images as tensors."""
        if self._finish is None:
            return batch
        image = torch.from_numpy(batch[self._finish.field])
        if self._written.table.dtype == np.uint16:
            image = image.view(torch.bfloat16)
        if self._written.layout is not self._finish.layout:
            image = image.permute(0, 3, 1, 2)
        return {**batch, self._finish.field: image}

    def settle(self) -> bool:
        """The caller has the slots."""
        return True

    def rest(self) -> None:
        """Do nothing: no copy is pending."""

    def close(self) -> bool:
        """Do nothing: no memory was allocated."""
        return True
