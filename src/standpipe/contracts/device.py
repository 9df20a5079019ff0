"""The contract of the device place, and the work on images and batches that a device may do itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from standpipe.spec import AnyArray, ArraySpec, Layout, UInt8Array


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step of an image: a table converts each byte of (H, W, C) uint8, and the axes get their order.

    field   name of the field
    table   (C, 256) of 16 or 32 bits: the new value for each channel and byte
    output  shape and dtype of a finished image
    layout  order of a finished image's axes
    """

    field: str
    table: AnyArray
    output: ArraySpec
    layout: Layout


@dataclass(frozen=True, slots=True)
class Mix:
    """The mixing of a batch: each row is mixed with the row before, and the first row with the last.

    image, label  names of the fields
    num_classes   number of classes
    share         weight of a row's own label, the other row's is 1 − share; without a box, of its own image
                  too
    box           (top, left, bottom, right) in pixels: the region that the other row's image fills; None:
                  each pixel is a weighted mean of both images
    planar        True if images are (channels, H, W)
    """

    image: str
    label: str
    num_classes: int
    share: float
    box: tuple[int, int, int, int] | None
    planar: bool


@dataclass(frozen=True, slots=True)
class SlotField:
    """The memory of a field in a slot.

    nbytes       largest size in bytes
    dtype        dtype of the field's numbers
    keeps_dtype  True if the field has this dtype on every device, such as boxes beside images of another one
    """

    nbytes: int
    dtype: np.dtype[np.generic]
    keeps_dtype: bool = False


@runtime_checkable
class Device(Protocol):
    """A description of the device on which the training step gets batches, such as host memory or a GPU."""

    @property
    def lends(self) -> bool:
        """True if the caller's arrays are views of slots, so that held batches occupy slots and may need more
        of them.
        """

    @property
    def mixes(self) -> bool:
        """True if the device can apply ``Mix`` to batches."""

    @property
    def same_shapes(self) -> bool:
        """True if all batches must have the same shapes, as each overwrites the one before it."""

    def writes(self, finish: Finish) -> Finish | None:
        """Return the ``Finish`` that kernels apply to images in slots; None: kernels write bytes.

        finish  the last step that the pipeline describes
        """

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs near the device; None if all are equally near, or that isn't known."""

    def check(self) -> None:
        """Raise ``PlanError`` if this machine doesn't have the device."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Return lines about the device for ``explain()``."""

    def open(self, fields: Mapping[str, SlotField], finish: Finish | None) -> OpenDevice:
        """Return an ``OpenDevice`` for batches with these fields of slots."""


class OpenDevice(Protocol):
    """An opened device, which moves batches from slots to the device. One thread at a time calls its methods."""

    @property
    def copying_s(self) -> float:
        """Seconds that asynchronous copies of delivered batches took, as far as they are known to be
        complete.
        """

    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Start to copy a ready slot's batch to the device, before the caller asks for it.

        memory  the slot's memory
        batch   arrays by field, most of them views of ``memory``

        Return True if the copy has started; False if there is no room for it before the next ``take``.
        """

    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Mix]
    ) -> Mapping[str, Any]:
        """Return the batch on the device. The slot is free when no part of ``batch`` is referenced any more.

        mixes  mixings to apply, in this order; empty unless the device ``mixes``
        """

    def settle(self) -> bool:
        """Release delivered batches whose copies are complete; return True if all are. This doesn't wait."""

    def rest(self) -> None:
        """Drop batches that were sent and not taken, and free memory that delivered batches don't need."""

    def close(self) -> bool:
        """Release all slots.

        Return False if the device may still read them, so that they must stay allocated.
        """
