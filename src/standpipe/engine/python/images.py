"""Images through native kernels, one at a time, where Python code takes part in a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.engine.python.cached_samples import NO_FILE
from standpipe.engine.python.encoded import EncodedBytes, EncodedRow, encoded_image, name_and_offset
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.rows import CantWork, EncodedFile, RowFailed, RowKey, Sample
from standpipe.engine.watchdog.board import READING, STEP, Heartbeat
from standpipe.plan.memory import READ_BYTES
from standpipe.spec import AnyArray, ArraySpec, UInt8Array
from standpipe.stats.counters import Counts, added_up
from standpipe.transform import MASK, MaskKernel, Move, NativeKernel, NativeStep, moves, other_size
from standpipe.transform.decoders.foreign import Undecodable, as_rgb, decode_foreign, decode_mask
from standpipe.transform.python.values import as_array, is_picture, is_tensor

ODD = ("damaged", "truncated", "redecoded")  # counters of rows that were made in spite of a problem
KEPT_PROGRAMS = 256  # compiled kernels for images of different sizes


class ImageMaker:
    """Runs the native kernels of a program for one thread, one image at a time.

    supplies   objects that all makers of this process share
    heartbeat  the thread's heartbeat; native code writes there that it reads a file or waits for memory
    """

    def __init__(self, setup: WorkerSetup, supplies: Supplies, heartbeat: Heartbeat) -> None:
        self._setup, self._heartbeat = setup, heartbeat
        self._reader, self._side = supplies.reader, supplies.side
        self._native = _native.SampleMaker(supplies.side, READ_BYTES, heartbeat)
        # The cache of files. The maker of samples has the cache of samples.
        self._kept = None if setup.keeps_samples else supplies.kept
        self.moved: list[Move] | None = None  # the transforms that moved an image; None: they aren't recorded
        self.stamp = NO_FILE  # of the file that was read last
        # Of reads; of rows of files other than JPEG, and of images that were kept; less rows that were made twice.
        self._counts: dict[str, float] = dict.fromkeys((*ODD, "read.rows", "read.bytes", "read.busy_s"), 0)
        self._programs: dict[
            tuple[str, NativeStep, int, int], tuple[_native.Program, NativeKernel | MaskKernel]
        ] = {}

    @property
    def counters(self) -> Counts:
        """The counters of damaged and truncated images, and of file reads."""
        return added_up(self._counts, {name: getattr(self._native, name) for name in ODD})

    def count(self, damaged: bool, truncated: bool) -> None:
        """Count a cached image, if it was made from a damaged or truncated file."""
        self._counts["damaged"] += damaged
        self._counts["truncated"] += truncated

    def recount(self) -> Callable[[], None]:
        """Return a function that sets the counts of odd images back to the present ones."""
        counters = self.counters

        def set_back() -> None:
            for name in ODD:
                self._counts[name] = counters[name] - getattr(self._native, name)

        return set_back

    def make(
        self, number: int, step: NativeStep, key: RowKey, sample: Sample, out: Mapping[str, AnyArray]
    ) -> Sample:
        """Apply a step's kernel to a sample's image, and return the sample with the results in the image's place.

        number  number of the step
        sample  its ``image`` is pixels, or encoded if the step decodes
        out     memory for results by field, used if shape and dtype fit

        Raises ``RowFailed`` if the kernel fails, or a result has the name of another field.
        """
        image = sample.get("image")
        if step.decodes:
            if image is None:
                raise RowFailed("source", _no_image(sample))
            image = encoded_image(image)
        try:
            made = self._made(number, step, key, image, out)
        except RowFailed as failed:
            if isinstance(image, EncodedFile | EncodedBytes):
                failed.path, failed.offset = name_and_offset(image)
            raise
        finally:
            self._native.release()  # now that what it took of the side arena is gone
        if self.moved is not None:
            self.moved += moves(step.transforms, sample, self._native.source_px)
        if "image" in made:
            return {**sample, **made}
        others = {name: value for name, value in sample.items() if name != "image"}
        if taken := [name for name in made if name in others]:
            raise CantWork(
                "transform", f"Views: the sample has a field {taken[0]!r} already; give the view another name"
            )
        return {**made, **others}

    def make_many(self, step: NativeStep, rows: Sequence[EncodedRow], out: AnyArray) -> list[str]:
        """Decode many images in one call with the kernel of step 0, and write their rows of ``out``.

        The call writes into the heartbeat that a row begins. Return a text for each row: ``""``, ``"foreign"`` for
        an image that Pillow decodes, or the error.
        """
        self._heartbeat[STEP] = 1
        program, _ = self._program(step, 0, 0)
        return self._native.rows_from_encoded(
            program,
            [each.image.data for each in rows],
            self._setup.seed,
            rows[0].key.epoch,
            [each.key.position for each in rows],
            [each.key.attempt for each in rows],
            [each.row for each in rows],
            out.reshape(len(out), -1).view(np.uint8),
        )

    def move_mask(
        self, number: int, step: NativeStep, key: RowKey, mask: Any, row: AnyArray | None
    ) -> AnyArray:
        """Move a sample's mask as ``make`` has just moved its image, and return the result.

        mask  encoded, or class numbers (H, W) uint8; otherwise as ``make``
        """
        encoded = None
        try:
            array = isinstance(mask, np.ndarray) and mask.ndim != 1
            if not (mask is None or array or is_picture(mask) or is_tensor(mask)):
                encoded = encoded_image(mask)
            numbers = as_numbers(mask) if encoded is None else self._decoded_mask(number, step, key, encoded)
            if numbers.shape != (image_px := self._native.source_px):
                raise RowFailed("decode", other_size(numbers.shape, image_px))
            program, kernel = self._program(step, *image_px, MASK)
            assert isinstance(kernel, MaskKernel)
            out = _memory(row, kernel.output)
            into = [out.reshape(-1).view(np.uint8)]
            if wrong := self._native.from_mask(program, numbers, *self._seeds(key), into):
                raise RowFailed("decode", wrong)
            return out
        except RowFailed as failed:
            failed.field = MASK
            if encoded is not None:
                failed.path, failed.offset = name_and_offset(encoded)
            raise
        finally:
            self._native.release()

    def _decoded_mask(
        self, number: int, step: NativeStep, key: RowKey, encoded: EncodedFile | EncodedBytes
    ) -> UInt8Array:
        if isinstance(encoded, EncodedBytes):
            data = self._admitted(encoded.data)
        else:
            self._heartbeat[STEP] = READING
            data = self._read_file(encoded)[0]
            self._heartbeat[STEP] = 1 + number
        try:
            return decode_mask(data, self._setup.decoding, self._reserve(step, key, MASK))
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error

    def _made(
        self, number: int, step: NativeStep, key: RowKey, image: Any, out: Mapping[str, AnyArray]
    ) -> Mapping[str, AnyArray]:
        rgb: UInt8Array | None = None
        data: UInt8Array | None = None
        if isinstance(image, EncodedFile | EncodedBytes):
            if isinstance(image, EncodedBytes):
                data = self._admitted(image.data)
            else:
                self._heartbeat[STEP] = READING
                data = self._read(key, image)
                self._heartbeat[STEP] = 1 + number
            if step.kernel is not None:
                size = (0, 0)  # whatever it is, the result's is known
            else:
                limits = self._setup.decoding.limits
                height, width, wrong = _native.jpeg_size(data, limits.max_pixels, limits.max_scans)
                size = (height, width)
                if wrong == "foreign":
                    rgb = self._foreign(number, step, key, data)
                    size = (rgb.shape[0], rgb.shape[1])
                elif wrong:
                    raise RowFailed("decode", wrong)
        else:
            rgb = _as_rgb(image, step)
            size = (rgb.shape[0], rgb.shape[1])
        seeds = self._seeds(key)
        wrong = "foreign"
        if rgb is None:
            assert data is not None
            program, made, into = self._room(step, size, out)
            wrong = self._native.from_encoded(program, data, *seeds, into)
            if wrong == "foreign":
                rgb = self._foreign(number, step, key, data)
        if rgb is not None:  # its size isn't that of the file's header if the EXIF orientation turned it
            program, made, into = self._room(step, (rgb.shape[0], rgb.shape[1]), out)
            wrong = self._native.from_pixels(program, rgb, *seeds, into)
        if wrong:
            raise RowFailed("decode", wrong)
        return made

    def _room(
        self, step: NativeStep, size: tuple[int, int], out: Mapping[str, AnyArray]
    ) -> tuple[_native.Program, Mapping[str, AnyArray], list[UInt8Array]]:
        """Return the program for images of a (height, width), memory for its results by field, and their bytes."""
        program, kernel = self._program(step, *size)
        assert not isinstance(kernel, MaskKernel)
        images = {name: spec for name, spec in kernel.outputs.items() if name != MASK}
        made = {name: _memory(out.get(name), spec) for name, spec in images.items()}
        return program, made, [row.reshape(-1).view(np.uint8) for row in kernel.rows(made)]

    def _seeds(self, key: RowKey) -> tuple[int, int, int, int]:
        return self._setup.seed, key.epoch, key.position, key.attempt

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
        data, wrong, stamp = self._native.read(
            self._reader, file.path, file.offset, file.length, file.file_bytes, file.mtime_ns
        )
        self._counts["read.rows"] += 1
        self._counts["read.bytes"] += data.size
        self._counts["read.busy_s"] += time.perf_counter() - begin
        if wrong:
            raise RowFailed("read", wrong)
        return data, stamp

    def with_bytes(self, sample: Sample) -> Sample:
        """Return the sample with the bytes of further encoded fields, (n,) uint8, for Python functions."""
        others = [name for name, value in sample.items() if isinstance(value, EncodedFile)]
        return sample if not others else {**sample, **{name: self._bytes(sample[name]) for name in others}}

    def _bytes(self, file: EncodedFile) -> UInt8Array:
        data, wrong, _ = self._native.read(self._reader, file.path, file.offset, file.length)
        self._native.release()
        if wrong:
            raise RowFailed("read", wrong)
        return data.copy()  # the reader uses its memory again

    def _foreign(self, number: int, step: NativeStep, key: RowKey, data: UInt8Array) -> UInt8Array:
        try:
            frame = decode_foreign(data, self._setup.decoding, self._reserve(step, key, "image"))
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error
        self._counts["truncated"] += frame.truncated
        return frame.rgb

    def _reserve(self, step: NativeStep, key: RowKey, field: str) -> Callable[[int, int, int], str]:
        """Return the function that reserves memory for decoding an image or a mask, and making its row."""

        def reserve(height: int, width: int, frame_bytes: int) -> str:
            program, _ = self._program(step, height, width, field)
            return self._native.reserve(program, height, width, *self._seeds(key), frame_bytes)

        return reserve

    def _program(
        self, step: NativeStep, height: int, width: int, field: str = "image"
    ) -> tuple[_native.Program, NativeKernel | MaskKernel]:
        at = (field, step, height, width) if step.kernel is None else (field, step, 0, 0)
        found = self._programs.get(at)
        if found is None:
            kernel = step.mask_for(height, width) if field == MASK else step.for_size(height, width)
            compiled = kernel.compile(self._setup.decoding, self._setup.simd)
            found = compiled, kernel
            if len(self._programs) == KEPT_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[at] = found
        return found


def _memory(row: AnyArray | None, spec: ArraySpec) -> AnyArray:
    """Return ``row`` if its shape and dtype fit, else new memory."""
    if row is not None and row.shape == spec.shape and row.dtype == spec.dtype:
        return row
    return np.empty(spec.shape, spec.dtype)


def as_numbers(mask: Any) -> UInt8Array:
    """Return a mask's class numbers, (H, W) uint8. Raises ``RowFailed`` for another value."""
    array = as_array(mask)
    if array is None or array.dtype != np.uint8 or array.ndim != 2:
        got = type(mask).__name__ if array is None else str(ArraySpec(array.shape, array.dtype))
        mode = f" of mode {mask.mode}" if is_picture(mask) else ""
        raise RowFailed(
            "transform",
            "'mask' must be class numbers (H, W) uint8, a Pillow image of mode L or P, or an encoded image of one "
            f"channel, but it is {got}{mode}",
        )
    return np.ascontiguousarray(array)


def _no_image(sample: Sample) -> str:
    if "image" in sample:
        return "'image' is None, and encoded='image' requires the bytes of an image"
    return f"the sample has no field 'image', as encoded='image' requires. Its fields are {', '.join(map(str, sample))}"


def _as_rgb(image: Any, step: NativeStep) -> UInt8Array:
    if is_picture(image):
        try:
            array = as_array(as_rgb(image))
        except Undecodable as error:
            raise RowFailed("decode", str(error)) from error
        except Exception as error:  # Pillow loads an image that was only opened now, and it may be damaged
            raise RowFailed("decode", f"Pillow can't load 'image': {error}", error) from error
    else:
        array = as_array(image) if is_tensor(image) else image
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        got = (
            type(image).__name__
            if not isinstance(array, np.ndarray)
            else str(ArraySpec(array.shape, array.dtype))
        )
        if isinstance(image, bytes | bytearray | memoryview):
            got += ". For encoded images say MapSource(…, encoded='image')"
        raise RowFailed(
            "transform",
            f"{step.describe()} takes a Pillow image or an array (H, W, 3) uint8; 'image' is {got}",
        )
    return np.ascontiguousarray(array)
