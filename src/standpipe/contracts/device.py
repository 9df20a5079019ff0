"""The contract of the device place, and what it learns of images and mixtures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from standpipe.spec import AnyArray, ArraySpec, Layout, UInt8Array


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step of an image: each byte of (H, W, 3) becomes a number, and axes take their order.

    field   name of the field
    table   (3, 256) of 16 or 32 bits: what the bytes of each channel become
    output  what an image is then
    layout  the order of its axes
    """

    field: str
    table: AnyArray
    output: ArraySpec
    layout: Layout


@dataclass(frozen=True, slots=True)
class Mix:
    """The mixing of a batch: each row with the one before it, the first with the last.

    image, label  names of fields
    classes       number of classes
    share         weight of a row's own label in its new one; without a box, of its own image too
    box           top, left, bottom, right: pixels that come from the other image; None: all are weighted means
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

    nbytes  size in bytes, at most
    dtype   dtype of its numbers
    """

    nbytes: int
    dtype: np.dtype[np.generic]


@runtime_checkable
class Device(Protocol):
    """A description of where the training step sees a batch. Planning with it starts nothing."""

    @property
    def lends(self) -> bool:
        """True if the caller gets the slots themselves: while batches are held, more slots may be needed."""

    @property
    def mixes(self) -> bool:
        """True if the device mixes batches."""

    def writes(self, finish: Finish) -> Finish | None:
        """Return how kernels finish images in slots, for a pipeline that asks for ``finish``; None: they
        write bytes.
        """

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs near the device; None if all are equally near, or that isn't known."""

    def check(self) -> None:
        """Raise ``PlanError`` where there is no such device."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Lines for ``explain()``."""

    def open(self, fields: Mapping[str, SlotField], finish: Finish | None) -> OpenDevice:
        """Return an object that brings batches to the device."""


class OpenDevice(Protocol):
    """Brings batches from slots to where the training step sees them. Called by one thread at a time."""

    @property
    def copying_s(self) -> float:
        """Seconds that copies took beside the host: of batches that were taken, as far as that is known."""

    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Begin to bring the batch of a slot that is ready, before anybody asks for it.

        memory  the slot's
        batch   arrays, most of them in that memory

        Whether it is on its way; if not, for want of room, that changes with the next ``take``.
        """

    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Mix]
    ) -> Mapping[str, Any]:
        """The batch as the training step sees it. The slot is free once nobody holds any part of ``batch``.

        mixes  what is done to it there, in this order: only where the device ``mixes``
        """

    def settle(self) -> bool:
        """Let go of slots whose batches were taken, as far as they aren't read any more; whether that is all.

        It waits for nothing.
        """

    def rest(self) -> None:
        """Forget what is on its way, and give back memory that batches which were taken don't need."""

    def close(self) -> bool:
        """Let go of the slots; False where it may read them yet, and they have to stay."""
