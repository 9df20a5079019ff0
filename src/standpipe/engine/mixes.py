"""Prepare mixing (such as MixUp) on a device: draw its random choices as workers would, and check labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from standpipe import _native
from standpipe.contracts import Mix
from standpipe.engine.python.calls import said
from standpipe.engine.workers import Failure
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.spec import AnyArray
from standpipe.transform import BATCH_OP


def mixing_choices(plan: Plan, at: Cursor, position: int, rows: int) -> Iterator[Mix]:
    """Yield the random choices of each mixing for a batch.

    The batch is that at a cursor, and has ``rows`` rows; its first row is at ``position`` of the epoch.
    """
    finish = plan.samples_at(at).finish
    image = plan.layout_at(at).fields["image"] if finish is None else finish.output
    for number, mixing in enumerate(plan.samples.mixings):
        key = _native.sample_key(plan.pipeline.seed, at.epoch, position, 0, BATCH_OP + number)
        rng = np.random.Generator(np.random.Philox(key=key))
        yield mixing.draw(rng, (rows, *image.shape), image.dtype)


def unmixable(plan: Plan, batch: Mapping[str, AnyArray]) -> Iterator[Failure]:
    """Yield a failure of the whole batch if its labels can't be mixed."""
    for function, mixing in zip(
        plan.pipeline.batch_functions, plan.samples.mixings, strict=bool(plan.samples.mixings)
    ):
        labels = batch[mixing.label]
        try:
            mixing.check_labels(labels)
        except (TypeError, ValueError) as error:
            yield Failure(0, "batch", f"{function.describe()}: {said(error)}", error, whole=True)
            return
