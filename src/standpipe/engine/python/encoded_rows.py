"""Decode the encoded images of a task in one native call, without the interpreter's lock.

This takes less time than a call per image. It works only if one native kernel is all that follows the dataset, and if
the dataset gives ``bytes``: other memory may change when the dataset makes its next sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from standpipe.engine.python.encoded import EncodedBytes, EncodedRow, encoded_image, name_and_offset
from standpipe.engine.python.fields import write_row
from standpipe.engine.python.images import ImageMaker
from standpipe.engine.python.worker_setup import WorkerSetup
from standpipe.engine.rows import BatchRows, RowFailed, RowKey, Sample
from standpipe.engine.timing import Laps
from standpipe.engine.workers import Failure
from standpipe.plan.memory import READ_BYTES
from standpipe.spec import ArraySpec
from standpipe.transform import NativeStep, Step


class EncodedRows:
    """Rows of a task whose images wait to be decoded together, for one thread.

    step   the step that decodes, and is all that follows the dataset
    spec   shape and dtype of the images that it makes
    check  raises ``RowFailed`` for a finished sample with a wrong value
    """

    def __init__(
        self,
        step: NativeStep,
        spec: ArraySpec,
        images: ImageMaker,
        laps: Laps,
        check: Callable[[Sample], None],
    ) -> None:
        self._step, self._spec, self._images, self._laps, self._check = step, spec, images, laps, check
        self._field = step.reference
        self._suits = True  # False once the dataset has given an image that isn't ``bytes``
        self._waiting: list[EncodedRow] = []
        self._held = self._begin_ns = 0
        self._bad: list[Failure] = []

    def suits(self, rows: BatchRows) -> bool:
        """Return True if the images of these rows can be decoded in one call, and begin with them."""
        image = rows.views.get(self._field)
        self._waiting, self._held, self._bad = [], 0, []
        return (
            self._suits
            and len(self._step.inputs_in(rows.views)) == 1
            and image is not None
            and image.shape[1:] == self._spec.shape
            and image.dtype == self._spec.dtype
            and image.flags.c_contiguous
        )

    def takes(self, row: int, key: RowKey, sample: Sample, rows: BatchRows, begin_ns: int) -> bool:
        """Let the row of a dataset's sample wait. Return False if it is to be made by itself.

        begin_ns  when the dataset began with it, in nanoseconds of ``time.monotonic_ns()``
        """
        image = self._constant(sample.get(self._field))
        if image is None:
            return False
        if self._held + image.data.size > READ_BYTES:  # more would have to wait for memory
            self._decode(rows)
        if not self._waiting:
            self._begin_ns = begin_ns
        self._held += image.data.size
        self._waiting.append(EncodedRow(row, key, sample, image))
        return True

    def failures(self, rows: BatchRows) -> list[Failure]:
        """Make the rows that still wait, and return the failures of all rows that waited."""
        self._decode(rows)
        return self._bad

    def _constant(self, value: Any) -> EncodedBytes | None:
        """Return an image's bytes if they stay as they are and need no room in the side arena; else None."""
        data = value.get("bytes") if type(value) is dict else value
        if type(data.obj if type(data) is memoryview else data) is not bytes:
            self._suits = False
            return None
        image = encoded_image(value, self._field)
        return image if isinstance(image, EncodedBytes) and 0 < image.data.size <= READ_BYTES else None

    def _decode(self, rows: BatchRows) -> None:
        """Decode the images of the rows that wait, and write their other fields."""
        waiting, self._waiting, self._held = self._waiting, [], 0
        if not waiting:
            return
        decode_ns = time.monotonic_ns()
        images = rows.views[self._field]
        for each, wrong in zip(waiting, self._images.make_many(self._step, waiting, images), strict=True):
            try:
                if wrong:
                    failed = RowFailed("decode", wrong)
                    failed.path, failed.offset = name_and_offset(each.image)
                    raise failed
                each.sample[self._field] = image = images[each.row]
                self._check(each.sample)
                write_row(each.sample, each.row, rows, {self._field: image})
            except RowFailed as failed:
                self._bad.append(failed.failure(each.row))
        self._laps.begins()
        self._laps.together(len(waiting), self._begin_ns, decode_ns)


def encoded_rows(
    setup: WorkerSetup,
    steps: Sequence[Step],
    images: ImageMaker,
    laps: Laps,
    check: Callable[[Sample], None],
) -> EncodedRows | None:
    """Return an ``EncodedRows``, if one native kernel is all that follows the dataset; else None.

    steps  the steps of the setup's program
    """
    if (
        setup.dataset is None
        or setup.cache is not None
        or len(steps) != 1
        or not setup.decodes
        or setup.instances
    ):
        return None
    (step,) = steps
    if not isinstance(step, NativeStep) or step.kernel is None or len(step.kernel.heads) > 1:
        return None
    return EncodedRows(step, step.kernel.image.output, images, laps, check)
