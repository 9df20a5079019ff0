"""Batches of images of similar aspect ratio, so that little of a padded batch is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_ROWS, whole_number
from standpipe.order.cut import Cut, Lengths
from standpipe.order.selection import Chain
from standpipe.order.table import Table, grouped_by
from standpipe.spec import SIDES, AnyArray, Int64Array

GroupBy = Literal["aspect_ratio"]
MOST_FACTOR = 64
ROWS_AT_ONCE = 1 << 18  # of a pass over all sizes


@dataclass(frozen=True, slots=True)
class AspectGroups:
    """Batches of ``rows`` records of one group each.

    rows    records of a batch
    by      what records of a group have in common: ``"aspect_ratio"``, width ÷ height
    factor  groups are between the ratios 2^(i ÷ factor) for i from −factor to factor; 0: portraits and others
    """

    rows: int
    by: GroupBy
    factor: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", whole_number("batch_size", self.rows, low=1, high=MAX_ROWS))
        if self.by != "aspect_ratio":
            raise PlanError(f"batch: group_by must be 'aspect_ratio' or None, got {self.by!r:.80}")
        factor = whole_number("group_factor", self.factor, low=0, high=MOST_FACTOR)
        object.__setattr__(self, "factor", factor)

    def of(self, heights: AnyArray, widths: AnyArray) -> Int64Array:
        """Return the number of each image's group, from 0, as torchvision numbers them."""
        bounds = 2.0 ** np.linspace(-1, 1, 2 * self.factor + 1) if self.factor else np.ones(1)
        ratios = np.asarray(widths, np.float64) / np.maximum(np.asarray(heights, np.float64), 1)
        return np.searchsorted(bounds, ratios, "right").astype(np.int64)

    def cut(self, column: Callable[[str, int, int], AnyArray], chain: Chain) -> tuple[Lengths, Cut, Table]:
        """Return the groups that have records, the runs of batches, and the records' places by group.

        column  function of (name, start, stop) that returns a column of the selected records [start, stop)
        """

        def numbers() -> Iterator[Int64Array]:
            selected, at_once = chain.count // chain.times, max(ROWS_AT_ONCE // chain.times, 1)
            for start in range(0, selected, at_once):
                heights, widths = (column(name, start, min(start + at_once, selected)) for name in SIDES)
                yield np.repeat(self.of(heights, widths), chain.times)

        groups = 2 * self.factor + 2
        counts = sum(
            (np.bincount(chunk, minlength=groups) for chunk in numbers()), np.zeros(groups, np.int64)
        )
        some = np.flatnonzero(counts)
        _, places = grouped_by((np.searchsorted(some, chunk) for chunk in numbers()), len(some))
        runs = [
            (times, group, rows)
            for group, count in enumerate(counts[some].tolist())
            for times, rows in ((count // self.rows, self.rows), (1, count % self.rows))
            if times * rows
        ]
        rows = np.zeros((len(runs), len(some)), np.int64)
        for run, (_, group, number) in enumerate(runs):
            rows[run, group] = number
        return Lengths(some, counts[some]), Cut(np.array([times for times, _, _ in runs]), rows), places

    def describe(self) -> str:
        """Return one phrase for the recipe."""
        return f"batch_size={self.rows}, group_by={self.by!r}, group_factor={self.factor}"
