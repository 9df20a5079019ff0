"""Decode the encoded images of a task in one native call, without the interpreter's lock.

This takes less time than a call per image. It works only if one native kernel is all that follows the dataset, and if
the dataset gives ``bytes``: other memory may change when the dataset makes its next sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.engine.python.encoded import EncodedBytes, EncodedRow, encoded_image, name_and_offset
from standpipe.engine.python.fields import write_row
from standpipe.engine.python.images import ImageMaker
from standpipe.engine.python.worker_setup import WorkerSetup
from standpipe.engine.rows import END, BatchRows, RowFailed, RowKey, Sample
from standpipe.engine.timing import Laps
from standpipe.engine.workers import Failure
from standpipe.plan.memory import READ_BYTES
from standpipe.system.faults import FAULTY, faultpoint
from standpipe.transform import MASK, ImageKernel, NativeStep, Step


@dataclass(frozen=True, slots=True)
class Calls:
    """Functions of the ``SampleMaker`` that all its rows share.

    at      writes into the heartbeat that a row begins
    sample  returns the dataset's sample for a key and the source's values
    rest    makes the row of such a sample by itself
    check   raises ``RowFailed`` for a finished sample with a wrong value
    """

    at: Callable[[int], None]
    sample: Callable[[RowKey, Sample], Sample]
    rest: Callable[[RowKey, Sample, int, BatchRows], None]
    check: Callable[[Sample], None]


class EncodedRows:
    """Makes rows of encoded images for one thread.

    kernel  the kernel of ``step``, which decodes and is all that follows the dataset
    """

    def __init__(
        self, step: NativeStep, kernel: ImageKernel, images: ImageMaker, laps: Laps, calls: Calls
    ) -> None:
        self._step, self._images, self._laps, self._calls = step, images, laps, calls
        self._spec = kernel.output
        self._tried = False  # True once a row was made by itself, which checks the fields of the samples
        self._suits = True  # False once the dataset has given an image that isn't ``bytes``

    def suits(self, rows: BatchRows) -> bool:
        """Return True if the images of these rows can be decoded in one call."""
        image = rows.views.get("image")
        return (
            self._suits
            and not (MASK in rows.views and self._step.moves_mask)
            and image is not None
            and image.shape[1:] == self._spec.shape
            and image.dtype == self._spec.dtype
            and image.flags.c_contiguous
        )

    def fill(self, rows: BatchRows, first: int, stop: int) -> list[Failure]:
        """Make rows [first, stop), and return the failures of rows that can't be made."""
        calls = self._calls
        bad: list[Failure] = []
        waiting: list[EncodedRow] = []
        held = 0
        begin_ns = time.monotonic_ns()
        for row in range(first, stop):
            key = rows.key(row)
            calls.at(row)
            try:
                if FAULTY:
                    faultpoint("worker.row", key.index)
                sample = calls.sample(key, rows.inputs.row(row))
                image = self._constant(sample.get("image"))
                if image is None or not self._tried:
                    calls.rest(key, sample, row, rows)
                    self._tried = True
                    continue
            except RowFailed as failed:
                bad.append(failed.failure(row))
                if failed.place == END:
                    break
                continue
            held += image.data.size
            if held > READ_BYTES:  # more would have to wait for memory
                bad += self._decode(waiting, rows, begin_ns)
                waiting, held, begin_ns = [], image.data.size, time.monotonic_ns()
            waiting.append(EncodedRow(row, key, sample, image))
        bad += self._decode(waiting, rows, begin_ns)
        return sorted(bad, key=lambda failure: failure.row)

    def _constant(self, value: Any) -> EncodedBytes | None:
        """Return an image's bytes if they stay as they are and need no room in the side arena; else None."""
        data = value.get("bytes") if type(value) is dict else value
        if type(data.obj if type(data) is memoryview else data) is not bytes:
            self._suits = False
            return None
        image = encoded_image(value)
        return image if isinstance(image, EncodedBytes) and 0 < image.data.size <= READ_BYTES else None

    def _decode(self, waiting: Sequence[EncodedRow], rows: BatchRows, begin_ns: int) -> list[Failure]:
        """Decode the images of these rows, write the other fields, and return the failures.

        begin_ns  when the dataset began with the first of them, in nanoseconds of ``time.monotonic_ns()``
        """
        if not waiting:
            return []
        decode_ns = time.monotonic_ns()
        bad: list[Failure] = []
        images = rows.views["image"]
        verdicts = self._images.make_many(self._step, waiting, images)
        for begun, verdict in zip(waiting, verdicts, strict=True):
            row, sample = begun.row, begun.sample
            try:
                if verdict == "foreign":
                    self._calls.at(row)
                    self._calls.rest(begun.key, sample, row, rows)
                    continue
                if verdict:
                    failed = RowFailed("decode", verdict)
                    failed.path, failed.offset = name_and_offset(begun.image)
                    raise failed
                sample["image"] = image = images[row]
                self._calls.check(sample)
                write_row(sample, row, rows, {"image": image})
            except RowFailed as failed:
                bad.append(failed.failure(row))
        self._laps.begins()
        self._laps.together(len(waiting), begin_ns, decode_ns)
        return bad


def encoded_rows(
    setup: WorkerSetup, steps: Sequence[Step], images: ImageMaker, laps: Laps, calls: Calls
) -> EncodedRows | None:
    """Return an ``EncodedRows``, if one native kernel is all that follows the dataset; else None.

    steps  the steps of the setup's program
    """
    if setup.dataset is None or setup.cache is not None or len(steps) != 1 or not setup.decodes:
        return None
    (step,) = steps
    if not isinstance(step, NativeStep) or not isinstance(step.kernel, ImageKernel):
        return None
    return EncodedRows(step, step.kernel, images, laps, calls)
