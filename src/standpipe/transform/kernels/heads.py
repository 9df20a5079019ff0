"""Native kernels: the fields of a record that a kernel reads, and the heads that make an output each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import get_args

import numpy as np

from standpipe import _native
from standpipe.contracts import Finish
from standpipe.spec import AnyArray, ArraySpec, ChannelsName, DecodeMode, Decoding, Int64Array, Layout
from standpipe.transform.image import RowTransform, Size
from standpipe.transform.kernels.native import only_libjpeg
from standpipe.transform.kernels.stages import Stage
from standpipe.transform.kinds import IMAGE, FieldKind


@dataclass(frozen=True, slots=True)
class Input:
    """A field of a record of which a kernel makes outputs.

    field     its name
    kind      what its pixels mean
    channels  number of the image's channels before the stages; of other kinds, the bytes of an element
    twin      name of the field whose row it writes where pixels are mirrored; None: its own
    grid      pixels of which sizes and places are multiples. Sizes of inputs differ as their grids do
    canvas    where outputs differ in size, the largest shape of them, empty if it isn't known, and the value beside
              them in their row; else None
    """

    field: str = "image"
    kind: FieldKind = IMAGE
    channels: int = 3
    twin: str | None = None
    grid: int = 1
    canvas: tuple[tuple[int, ...], float] | None = None

    def compile(self, decoding: Decoding) -> _native.Input:
        """Return the native form. ``decoding``: how images are decoded, and their limits."""
        return _native.Input(
            kind=self.kind.number,
            channels=self.channels,
            grid=self.grid,
            decoded=get_args(ChannelsName).index(decoding.channels),
            fast=decoding.mode is DecodeMode.FAST,
            max_pixels=decoding.limits.max_pixels,
            max_scans=decoding.limits.max_scans,
            allow_truncated=decoding.allow_truncated,
            only_libjpeg=only_libjpeg(),
            upright=decoding.upright,
        )


@dataclass(frozen=True, slots=True)
class Head:
    """One output of a kernel.

    input      the field of which it is made
    stages     passes over the pixels, in order
    output     shape and dtype of the output in one row of the slot, or in its place there
    layout     order of its axes
    table      (channels, 256) float: the number written for each channel's byte values; None: bytes are written
    normalize  True if ``Normalize`` made ``table``
    erases     the transform that changes the finished image, with its part of the key of random numbers; or None
    field      the name of the output's field
    place      its number in a field that has several outputs in one row; None: it is the field's only output
    salt       64 bits that make the random numbers of a view differ from other views'; 0: they are the sample's
    varies     True if outputs differ in size: ``output`` is the largest one, and each job says where its rows are
    """

    input: Input
    stages: tuple[Stage, ...]
    output: ArraySpec
    layout: Layout = Layout.NHWC
    table: AnyArray | None = dataclasses.field(default=None, compare=False)
    normalize: bool = False
    erases: tuple[RowTransform, int] | None = None
    field: str = "image"
    place: int | None = None
    salt: int = 0
    varies: bool = False

    def shapes(self, sizes: Int64Array) -> Int64Array:
        """Return the shapes of outputs, (n, axes) int64. ``sizes``: (n, 2) int64, height and width in pixels."""
        shapes = np.tile(np.array(self.output.shape, np.int64), (len(sizes), 1))
        shapes[:, self.axes] = sizes
        return shapes

    @property
    def axes(self) -> slice:
        """The axes of height and width in the output's shape."""
        return slice(1, 3) if self.layout is Layout.NCHW else slice(0, 2)

    @property
    def size_px(self) -> Size:
        """The (height, width) of the output, in pixels."""
        height, width = self.output.shape[self.axes]
        return height, width

    @property
    def channels_after(self) -> int:
        """The number of the output's channels."""
        if not self.input.kind.is_image:
            return self.input.channels
        return self.output.shape[0 if self.layout is Layout.NCHW else 2]

    def compile(self, number: int, twin: int | None) -> _native.Head:
        """Return the native form. ``number``: of the input in the kernel. ``twin``: number of that head."""
        erases = self.erases
        return _native.Head(
            input=number,
            stages=[stage.compile() for stage in self.stages],
            format=self._row_format(),
            erasing=None if erases is None else erases[0].erasing(erases[1], self.output.dtype),
            salt=self.salt,
            twin=twin,
        )

    def _row_format(self) -> _native.RowFormat:
        height, width = (0, 0) if self.varies else self.size_px
        planar = self.layout is Layout.NCHW
        if self.table is None:
            made = _native.RowFormat.uint8(height, width, planar, self.channels_after)
        elif self.table.dtype == np.float32:
            made = _native.RowFormat.float32(height, width, planar, self.table.view(np.float32))
        else:
            made = _native.RowFormat.float16(height, width, planar, self.table.view(np.uint16))
        if self.input.canvas is not None:
            made.pad_with(np.array(self.input.canvas[1]).astype(self.output.dtype).tobytes())
        return made

    def describe(self) -> list[str]:
        """Return the steps after decoding, for ``explain()``, without the last one, which writes."""
        steps = [name for stage in self.stages for name in stage.names]
        steps += ["Normalize"] if self.normalize and self.table is not None else []
        return steps if self.erases is None else [*steps, type(self.erases[0]).__name__]


ANY_CANVAS = (), 0.0  # of an input: its outputs may have any size


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """Adjacent image transforms, fused into one kernel: it decodes each input once, and makes all outputs of it.

    heads  the outputs: those of the reference, the image whose size counts, then those of each other input. Outputs of
           one field follow each other
    """

    heads: tuple[Head, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The fields that the kernel reads, the reference first."""
        return tuple(dict.fromkeys(head.input for head in self.heads))

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the fields that the kernel reads."""
        return tuple(each.field for each in self.inputs)

    @property
    def image(self) -> Head:
        """The first output of the reference: its only one without ``Views``."""
        return self.heads[0]

    @property
    def views(self) -> int:
        """The number of views of each image; 0 without ``Views``."""
        return sum(head.input == self.image.input for head in self.heads) if self.image.salt else 0

    def _fields(self) -> Iterator[tuple[str, list[Head]]]:
        """Yield the name of each output field, and its heads."""
        for name, heads in groupby(self.heads, lambda head: head.field):
            yield name, list(heads)

    @property
    def outputs(self) -> Mapping[str, ArraySpec]:
        """The shape and dtype of each output field in one row of the slot, by name."""
        outputs: dict[str, ArraySpec] = {}
        for name, heads in self._fields():
            spec = heads[0].output
            several = heads[0].place is not None
            outputs[name] = ArraySpec((len(heads), *spec.shape), spec.dtype) if several else spec
        return outputs

    def compile(self, decoding: Decoding, simd: str | None = None) -> _native.Program:
        """Return the kernel as a native program.

        decoding  how images are decoded, and their limits
        simd      instruction set to use; None: the widest that this machine runs
        """
        inputs = self.inputs
        return _native.Program(
            inputs=[each.compile(decoding) for each in inputs],
            heads=[head.compile(inputs.index(head.input), self.twin_of(head)) for head in self.heads],
            simd=simd,
        )

    def twin_of(self, head: Head) -> int | None:
        """Return the number of the head whose row a head writes where it mirrors pixels; None: its own."""
        view = head.input.twin, head.salt, head.place
        return next(
            (n for n, each in enumerate(self.heads) if (each.input.field, each.salt, each.place) == view),
            None,
        )

    @property
    def finish(self) -> Finish | None:
        """The last step of the reference alone: the conversion of bytes to floats and the layout.

        None if bytes are written, if there are views, or if something follows that a device doesn't do.
        """
        image = self.image
        if self.views or image.table is None or image.erases is not None or image.varies:
            return None
        return Finish(image.field, image.table, image.output, image.layout)

    def sized(self, size_px: Size) -> NativeKernel:
        """Return the kernel for samples whose reference becomes (height, width) pixels, where they differ in size."""
        heads = []
        for head in self.heads:
            size = np.array([size_px], np.int64) * head.input.grid // self.image.input.grid
            (shape,) = head.shapes(size).tolist()
            input_ = replace(head.input, canvas=None)
            heads.append(
                replace(head, input=input_, varies=False, output=ArraySpec(tuple(shape), head.output.dtype))
            )
        return NativeKernel(tuple(heads))

    def finished_by(self, finish: Finish | None) -> NativeKernel:
        """Return the kernel with ``finish`` as the reference's last step; for None, it writes (H, W, C) uint8."""
        image, *others = self.heads
        if finish is not None:
            image = replace(image, output=finish.output, layout=finish.layout, table=finish.table)
        else:
            spec = ArraySpec((*image.size_px, image.channels_after), np.dtype(np.uint8))
            image = replace(image, output=spec, layout=Layout.NHWC, table=None)
        return NativeKernel((image, *others))

    def finishing(self) -> NativeKernel:
        """Return the kernel for references that are finished except for the last step, and for nothing else."""
        input_ = replace(self.image.input, channels=self.image.channels_after)
        return NativeKernel((replace(self.image, input=input_, stages=(), erases=None),))

    def places(self, offsets: Mapping[str, int]) -> list[tuple[int, int]]:
        """Return, for each head, the first byte of its first row in the slot, and the bytes from row to row.

        offsets  first byte of each field in the slot
        """
        outputs, places = self.outputs, []
        for head in self.heads:
            begin = offsets[head.field] + (head.place or 0) * head.output.row_bytes
            places.append((begin, outputs[head.field].row_bytes))
        return places

    def rows(self, out: Mapping[str, AnyArray]) -> list[AnyArray]:
        """Return the part of ``out`` that each head writes: one row of each output field, by name."""
        return [out[head.field] if head.place is None else out[head.field][head.place] for head in self.heads]

    def describe(self) -> str:
        """Return one line for ``explain()`` about the steps after decoding."""
        moved = [f"move the {each.field}, nearest pixels" for each in self.inputs if not each.kind.is_image]
        images = [(name, heads) for name, heads in self._fields() if heads[0].input.kind.is_image]
        parts = []
        for name, heads in images:
            head = heads[0]
            write = f"write {head.layout.value} {head.output.dtype.name}"
            line = " + ".join([*head.describe(), *moved, write])
            times = "" if head.place is None else f"{len(heads)} × "
            parts.append(f"{name}: {times}{line}" if self.views or len(images) > 1 else line)
        return "; ".join(parts)


def salt_of(field: str, place: int) -> int:
    """Return the 64 bits that key the random numbers of a head by its field's name and its place in it."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    return int.from_bytes(blake2b(f"{field}/{place}".encode(), digest_size=8).digest(), "little")
