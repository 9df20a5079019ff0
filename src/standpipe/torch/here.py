"""Batches that the thread makes that asks for them, as torch's ``num_workers=0`` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import standpipe as sp
from standpipe.torch.samples import items


@dataclass(frozen=True, slots=True)
class Here:
    """Makes batches of a map-style dataset.

    alone  whether ``collate_fn`` takes one sample, not a list of them
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    alone: bool

    def batch(self, records: list[Any]) -> Any:
        """The batch of these records. Raises ``SampleError`` for one that can't be made, ``TransformError`` for all."""
        left = iter(records)
        try:
            samples = self.dataset[next(left)] if self.alone else items(self.dataset, left)
        except Exception as error:
            raise _failed(records, left, error) from error
        try:
            return self.collate_fn(samples)
        except Exception as error:
            reason = f"collate_fn: {type(error).__name__}: {error}"
            raise sp.TransformError(reason, place="batch", index=records[0]) from error


def _failed(records: list[Any], left: Iterator[Any], error: Exception) -> sp.SampleError:
    """The error of the record that was taken last."""
    index = records[len(records) - length_hint(left) - 1]
    return sp.SampleError(f"the dataset: {type(error).__name__}: {error}", place="source", index=index)
