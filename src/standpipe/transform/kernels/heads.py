"""Kernels with several outputs: one decoded image, of which each head makes an output with its own transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from standpipe import _native
from standpipe.spec import AnyArray, ArraySpec, Decoding

if TYPE_CHECKING:  # it makes heads
    from standpipe.transform.kernels.fuse import ImageKernel


@dataclass(frozen=True, slots=True)
class Head:
    """One output of a kernel.

    field   the name of the output's field
    kernel  the transforms of this output alone
    place   its number in a field that has several outputs in one row; None: it is the field's only output
    salt    64 bits that make its random numbers differ from other heads'
    """

    field: str
    kernel: ImageKernel
    place: int | None
    salt: int


@dataclass(frozen=True, slots=True)
class HeadsKernel:
    """A kernel that decodes an image once and makes several outputs of it.

    heads  the outputs; those of one field follow each other
    """

    heads: tuple[Head, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The field that image transforms read: ``image``, in a tuple."""
        return ("image",)

    @property
    def outputs(self) -> Mapping[str, ArraySpec]:
        """The shape and dtype of each output field in one row of the slot, by name."""
        outputs: dict[str, ArraySpec] = {}
        for name, several in groupby(self.heads, lambda head: head.field):
            heads = list(several)
            spec = heads[0].kernel.output
            outputs[name] = (
                spec if heads[0].place is None else ArraySpec((len(heads), *spec.shape), spec.dtype)
            )
        return outputs

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """Return the kernel as a native program with a head for each output. ``ImageKernel`` documents the rest."""
        programs = [head.kernel.compile(decoding, simd) for head in self.heads]
        return _native.Program.together(programs, [head.salt for head in self.heads])

    @property
    def finish(self) -> None:
        """None: the kernel does the last step of each output itself, on every device."""
        return None

    def places(self, offsets: Mapping[str, int]) -> list[tuple[int, int]]:
        """Return, for each head, the first byte of its first row in the slot, and the bytes from row to row.

        offsets  first byte of each field in the slot
        """
        outputs, places = self.outputs, []
        for head in self.heads:
            begin = offsets[head.field] + (head.place or 0) * head.kernel.output.row_bytes
            places.append((begin, outputs[head.field].row_bytes))
        return places

    def rows(self, out: Mapping[str, AnyArray]) -> list[AnyArray]:
        """Return the part of ``out`` that each head writes: one row of each output field, by name."""
        return [out[head.field] if head.place is None else out[head.field][head.place] for head in self.heads]

    def describe(self) -> str:
        """Return one line for ``explain()`` about the steps after decoding."""
        parts = []
        for name, several in groupby(self.heads, lambda head: head.field):
            heads = list(several)
            times = "" if heads[0].place is None else f"{len(heads)} × "
            parts.append(f"{name}: {times}{heads[0].kernel.describe()}")
        return "; ".join(parts)


def salt_of(field: str, place: int) -> int:
    """Return the 64 bits that key the random numbers of a head by its field's name and its place in it."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    return int.from_bytes(blake2b(f"{field}/{place}".encode(), digest_size=8).digest(), "little")
