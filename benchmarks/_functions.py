"""Python functions that wait or compute, and pipelines that apply them to numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import standpipe as sp

ROWS, BATCH = 4096, 32


@dataclass(frozen=True)
class Waits:
    """A function that waits ``seconds`` and returns its argument. With ``only``, it waits in that worker only."""

    seconds: float
    only: int | None = None

    def __call__(self, x: Any) -> Any:
        if self.only is None or sp.worker_id() == self.only:
            time.sleep(self.seconds)
        return x


def computes(x: Any) -> Any:
    """Compute in Python for about 0.5 ms, and return the argument."""
    total = 0
    for number in range(12_000):
        total += number
    return x + total * 0


def numbers(*functions: Callable[[Any], Any], batch: int = BATCH) -> sp.Pipeline:
    """Return a pipeline of 4,096 numbers in batches, to which ``functions`` are applied one after another."""
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(ROWS, dtype=np.float32)))
    for function in functions:
        pipeline = pipeline.map(function, field="x")
    return pipeline.batch(batch)
