"""Images through native kernels, one at a time, where Python code takes part in a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import RaggedRows
from standpipe.engine.moves import traced, unmoved
from standpipe.engine.python.cached_samples import NO_FILE
from standpipe.engine.python.encoded import EncodedBytes, EncodedRow, encoded_image, name_and_offset
from standpipe.engine.python.instances import in_image
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.rows import CantWork, EncodedFile, RowFailed, RowKey, Sample
from standpipe.engine.watchdog.board import READING, STEP, Heartbeat
from standpipe.errors import PlanError
from standpipe.plan.memory import READ_BYTES
from standpipe.source.targets import BOXES
from standpipe.spec import BOXES_PX, KINDS, SIZE, AnyArray, ArraySpec, Decoding, Int32Array, UInt8Array
from standpipe.stats.counters import Counts, added_up
from standpipe.transform import (
    ANY_PX,
    Input,
    Move,
    NativeKernel,
    NativeStep,
    as_bytes,
    moves,
    with_outputs,
)
from standpipe.transform.decoders.channels import Undecodable, form_of
from standpipe.transform.decoders.foreign import decode_input, encoded_size
from standpipe.transform.image import Size
from standpipe.transform.python.values import as_array, is_picture, is_tensor

ODD = ("damaged", "truncated", "redecoded")  # counters of rows that were made in spite of a problem
NO_BOXES: AnyArray = np.zeros((0, 4), np.float32)
KEPT_PROGRAMS = 256  # compiled kernels for images of different sizes

Compiled = tuple[_native.Program, NativeKernel]
Seeds = tuple[int, int, int, int]  # seed, epoch, position and attempt of a sample
# The step, the size before it, its pictures, and the size after it.
ProgramKey = tuple[NativeStep, Size | None, tuple[Input, ...], Size | None]


class ImageMaker:
    """Runs the native kernels of a program for one thread: files, the cache of files, and values of Python.

    supplies   objects that all makers of this process share
    heartbeat  the thread's heartbeat; native code writes there that it reads a file or waits for memory
    """

    def __init__(self, setup: WorkerSetup, supplies: Supplies, heartbeat: Heartbeat) -> None:
        self._setup, self._heartbeat = setup, heartbeat
        self._reader, self._side = supplies.reader, supplies.side
        decode = partial(decode_input, setup.decoding)
        self._native = _native.RowMaker(supplies.side, READ_BYTES, heartbeat, decode)
        # The cache of files. The maker of samples has the cache of samples.
        self._kept = None if setup.keeps_samples else supplies.kept
        self.moved: list[Move] | None = None  # the transforms that moved an image; None: they aren't recorded
        self.stamp = NO_FILE  # of the image's file that was read last
        # Of reads; of images that were kept; less rows that were made twice.
        self._counts: dict[str, float] = dict.fromkeys((*ODD, "read.rows", "read.bytes", "read.busy_s"), 0)
        self._programs: dict[ProgramKey, Compiled] = {}

    @property
    def counters(self) -> Counts:
        """The counters of damaged and truncated images, and of file reads."""
        return added_up(self._counts, dict(zip(ODD, self._native.counts, strict=True)))

    def count(self, damaged: bool, truncated: bool) -> None:
        """Count a cached image, if it was made from a damaged or truncated file."""
        self._counts["damaged"] += damaged
        self._counts["truncated"] += truncated

    def recount(self) -> Callable[[], None]:
        """Return a function that sets the counts of odd images back to the present ones."""
        counters = self.counters

        def set_back() -> None:
            for name, count in zip(ODD, self._native.counts, strict=True):
                self._counts[name] = counters[name] - count

        return set_back

    def make(
        self, number: int, step: NativeStep, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]
    ) -> Sample:
        """Apply a step's kernel to a sample, and return the sample with the results in place of what it read.

        number  number of the step
        sample  its pictures are pixels, or encoded
        out     memory for results by field, used if shape and dtype fit

        Raises ``RowFailed`` if the kernel fails, or a result has the name of another field.
        """
        seeds = self._setup.seed, key.epoch, key.position, key.attempt
        inputs = step.inputs_in(sample)
        # Of a file, as annotations have it; a dataset's samples keep the size of their image.
        reference_px, field = (0, 0) if self._setup.instances else sample.pop(SIZE, (0, 0)), ""
        value: UInt8Array | EncodedFile | EncodedBytes | None = None
        data: UInt8Array | None = None
        values = []
        try:
            for each in inputs:
                field = each.field
                values.append(self._value(sample, step, each))
            inputs = tuple(map(_with_channels, inputs, values))
            for place, each in enumerate(inputs):
                field, value = each.field, values[place]
                data = self._data(number, key, place, value)
                if place == 0:
                    program, kernel, windows = self._program(step, data, inputs, seeds, sample)
                    made = {name: _memory(out.get(name), spec) for name, spec in kernel.outputs.items()}
                    rows = [row.reshape(-1).view(np.uint8) for row in kernel.rows(made)]
                wrong = self._native.make(program, place, data, *seeds, rows, reference_px, windows)
                data = None  # it may be in memory that is given back now
                self._native.release()
                if wrong:
                    raise RowFailed("decode", wrong)
                if place == 0:
                    reference_px = self._native.source_px
        except RowFailed as failed:
            failed.field = field
            if isinstance(value, EncodedFile | EncodedBytes):
                failed.path, failed.offset = name_and_offset(value)
            raise
        finally:
            data = None
            self._native.release()
        if self.moved is not None:
            self.moved += moves(
                step.transforms, sample, {each.field: each.kind for each in inputs}, reference_px
            )
        if self._setup.instances:
            sample.setdefault(SIZE, reference_px)
        try:
            return with_outputs(sample, kernel.reads, made)
        except PlanError as error:
            raise CantWork("transform", str(error)) from None

    def make_many(self, step: NativeStep, rows: Sequence[EncodedRow], out: AnyArray) -> list[str]:
        """Decode many images in one call with the kernel of step 0, and write their rows of ``out``.

        The call writes into the heartbeat that a row begins. Return ``""`` or the error for each row.
        """
        self._heartbeat[STEP] = 1
        program, _ = self._compiled(
            (step, None, step.inputs, None), lambda: step.kernel_for(ANY_PX, step.inputs)
        )
        images = [(each.image.data, each.key.position, each.key.attempt, each.row) for each in rows]
        table = out.reshape(len(out), -1).view(np.uint8)
        return self._native.make_many(program, images, self._setup.seed, rows[0].key.epoch, table)

    def _value(
        self, sample: Sample, step: NativeStep, given: Input
    ) -> UInt8Array | EncodedFile | EncodedBytes:
        """Return a picture of a sample as pixels, or encoded. Raises ``RowFailed`` for another value."""
        field = given.field
        value = sample.get(field)
        if not given.kind.is_image:
            return _exact_or_encoded(value, given)
        if field not in step.decodes:
            if field not in sample:
                raise RowFailed(
                    "transform",
                    f"{step.transforms[0].describe()} takes the field {field!r}, but the sample's fields are "
                    f"{', '.join(map(str, sample))}. Say which are images: decode(images=('left', 'right'))",
                )
            return _as_pixels(value, field, step, self._setup.decoding)
        if value is None:
            raise RowFailed("source", _no_image(sample, field))
        return encoded_image(value, field)

    def _data(
        self, number: int, key: RowKey, place: int, value: UInt8Array | EncodedFile | EncodedBytes
    ) -> UInt8Array:
        """Return pixels, or the bytes of an encoded picture after waiting for their part of the memory budget."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, EncodedBytes):
            return self._admitted(value.data)
        self._heartbeat[STEP] = READING
        data = self._read(key, value) if place == 0 else self._read_file(value)[0]
        self._heartbeat[STEP] = 1 + number
        return data

    def _measured(self, data: UInt8Array) -> Size:
        """Return the (height, width) of an image in pixels."""
        if data.ndim > 1:
            return data.shape[0], data.shape[1]
        try:
            return encoded_size(data, self._setup.decoding)
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error

    def _admitted(self, data: UInt8Array) -> UInt8Array:
        """Return a dataset's bytes, after waiting for their part of the memory budget."""
        if data.size == 0:
            raise RowFailed("decode", "the image has no bytes")
        if data.size > self._side.cap_bytes or not self._native.admit(data.size):
            raise RowFailed(
                "read",
                f"too large: {data.size} encoded bytes are more than large_image_memory={self._side.cap_bytes}",
            )
        return data

    def _read(self, key: RowKey, file: EncodedFile) -> UInt8Array:
        stale = None
        if self._kept is not None:
            self._kept.enter(key.epoch)
            found, stale = self._kept.file(key.index, file.path, self._native.admit)
            if found is not None:
                return found
        data, self.stamp = self._read_file(file)
        if self._kept is not None:
            self._kept.keep(key.index, data, self.stamp, stale=stale)
        return data

    def _read_file(self, file: EncodedFile) -> tuple[UInt8Array, _native.Stamp]:
        begin = time.perf_counter()
        data, wrong, stamp = self._native_read(file)
        self._counts["read.rows"] += 1
        self._counts["read.bytes"] += data.size
        self._counts["read.busy_s"] += time.perf_counter() - begin
        if wrong:
            raise RowFailed("read", wrong)
        return data, stamp

    def _native_read(self, file: EncodedFile) -> tuple[UInt8Array, str, _native.Stamp]:
        """Read a file; return its bytes, an error message or '', and its stamp."""
        known = (file.file_bytes, file.mtime_ns, file.crc32c)
        return self._native.read(self._reader, file.path, file.offset, file.length, *known)

    def with_bytes(self, sample: Sample) -> Sample:
        """Return the sample with the bytes of further encoded fields, (n,) uint8, for Python functions."""
        others = [name for name, value in sample.items() if isinstance(value, EncodedFile)]
        return sample if not others else {**sample, **{name: self._bytes(sample[name]) for name in others}}

    def _bytes(self, file: EncodedFile) -> UInt8Array:
        data, wrong, _ = self._native_read(file)
        self._native.release()
        if wrong:
            raise RowFailed("read", wrong)
        return data.copy()  # the reader uses its memory again

    def _program(
        self,
        step: NativeStep,
        data: UInt8Array,
        inputs: tuple[Input, ...],
        seeds: Seeds,
        sample: Sample,
    ) -> tuple[_native.Program, NativeKernel, Int32Array | None]:
        """Return a step's kernel for a sample, its program, and the crops that boxes decide: its row of windows.

        data  the reference, pixels or encoded
        """
        known = None if step.kernel is not None else self._measured(data)
        program, kernel = self._compiled(
            (step, known, inputs, None), lambda: step.kernel_for(known or ANY_PX, inputs)
        )
        if not kernel.image.varies and not program.windows:
            return program, kernel, None
        size, boxes = known or self._measured(data), sample.pop(BOXES_PX, NO_BOXES)
        if program.windows and self._setup.instances:
            given = {**sample, SIZE: size}
            boxes = in_image(given, self._setup.instances, self._setup.box_form)[BOXES]
        keys = (*seeds[:2], *np.array(seeds[2:])[:, None])
        of_row = RaggedRows(boxes, np.array([len(boxes)]))
        moves, windows = traced(kernel, program, unmoved(np.array([size])), keys, of_row)
        if kernel.image.varies:
            height, width = map(int, moves[kernel.image.field][0, -1, 9:11])
            program, kernel = self._compiled(
                (step, None, inputs, (height, width)), lambda: kernel.sized((height, width))
            )
        return program, kernel, windows[0]

    def _compiled(self, at: ProgramKey, make: Callable[[], NativeKernel]) -> Compiled:
        """Return the kernel that ``make`` makes, and its program; ``at`` says what it depends on."""
        found = self._programs.get(at)
        if found is None:
            kernel = make()
            found = kernel.compile(self._setup.decoding, self._setup.simd), kernel
            if len(self._programs) == KEPT_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[at] = found
        return found


def _memory(row: AnyArray | None, spec: ArraySpec) -> AnyArray:
    """Return ``row`` if its shape and dtype fit, else new memory."""
    if row is not None and row.shape == spec.shape and row.dtype == spec.dtype:
        return row
    return np.empty(spec.shape, spec.dtype)


def _with_channels(given: Input, value: UInt8Array | EncodedFile | EncodedBytes) -> Input:
    """Return an input with the channels of a sample's pixels."""
    if not isinstance(value, np.ndarray):
        return given
    channels = value.shape[2] if value.ndim == 3 else 1
    return given if channels == given.channels else replace(given, channels=channels)


def _exact_or_encoded(value: Any, given: Input) -> UInt8Array | EncodedFile | EncodedBytes:
    """Return the pixels of a mask or another exact kind, or it encoded. Raises ``RowFailed`` for another value."""
    kind, field = given.kind, given.field
    array = isinstance(value, np.ndarray) and value.ndim != 1
    if not (value is None or array or is_picture(value) or is_tensor(value)):
        return encoded_image(value, field)
    numbers = as_array(value)
    if numbers is None or kind.bytes_of(ArraySpec(numbers.shape, numbers.dtype)) is None:
        got = type(value).__name__ if numbers is None else str(ArraySpec(numbers.shape, numbers.dtype))
        mode = f" of mode {value.mode}" if is_picture(value) else ""
        raise RowFailed(
            "transform",
            f"{field!r} must be {kind.form}, a Pillow image of them, or an encoded image of one channel, but it is "
            f"{got}{mode}",
        )
    return as_bytes(numbers)


def _no_image(sample: Sample, field: str) -> str:
    if field in sample:
        return f"{field!r} is None, and encoded={field!r} requires the bytes of an image"
    return (
        f"the sample has no field {field!r}, as encoded={field!r} requires. Its fields are "
        f"{', '.join(map(str, sample))}"
    )


def _as_pixels(image: Any, field: str, step: NativeStep, decoding: Decoding) -> UInt8Array:
    if is_picture(image):
        try:
            array = as_array(form_of(decoding)(image))
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error
        except Exception as error:  # Pillow loads an image that was only opened now, and it may be damaged
            raise RowFailed("decode", f"Pillow can't load {field!r}: {error}", error) from error
    else:
        array = as_array(image) if is_tensor(image) else image
    if isinstance(array, np.ndarray) and array.dtype == np.uint8:
        pixels = array[..., None] if array.ndim == 2 else array
        if pixels.ndim == 3 and pixels.shape[2] in KINDS:
            return np.ascontiguousarray(pixels)
    got = (
        type(image).__name__
        if not isinstance(array, np.ndarray)
        else str(ArraySpec(array.shape, array.dtype))
    )
    if isinstance(image, bytes | bytearray | memoryview):
        got += f". For encoded images say MapSource(…, encoded={field!r})"
    raise RowFailed(
        "transform",
        f"{step.describe()} takes a Pillow image, or an array (H, W) or (H, W, C) uint8 with 1 to 4 channels; "
        f"{field!r} is {got}",
    )
