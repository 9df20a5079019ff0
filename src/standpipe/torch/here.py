"""Make batches in the thread that calls ``next()``, as torch does with ``num_workers=0``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import standpipe as sp
from standpipe.torch.samples import items


@dataclass(frozen=True, slots=True)
class Here:
    """Makes batches of a map-style dataset in the calling thread.

    alone  True: a batch is one record, and ``collate_fn`` takes its sample; False: it takes a list of samples
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    alone: bool

    def batch(self, records: list[Any]) -> Any:
        """Return the batch of these records.

        Raises ``SampleError`` if the dataset fails on a record, and ``TransformError`` if ``collate_fn`` fails.
        """
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
    """Return the error for the last record that was taken from the iterator ``left``."""
    index = records[len(records) - length_hint(left) - 1]
    return sp.SampleError(f"the dataset: {type(error).__name__}: {error}", place="source", index=index)
