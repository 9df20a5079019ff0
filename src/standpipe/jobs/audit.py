"""Count which rows every rank gets, without reading a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Order
from standpipe.errors import PlanError
from standpipe.order import BudgetOrder, Given, Steps, whole_number
from standpipe.pipeline.description import Description
from standpipe.plan.build import make_plan
from standpipe.plan.options import LoaderOptions
from standpipe.plan.order import once_each, order_of
from standpipe.plan.plan import Plan
from standpipe.spec import ExecutorName
from standpipe.units import show_bytes

AT_ONCE = 1 << 20  # positions
Counts = NDArray[Any]  # uint16 or uint32


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The rows that data ranks get in some epochs. ``pipeline.audit(…)`` returns it.

    Attributes
    ----------
    ranks, epochs : int
        The data ranks and epochs that were counted.
    records : int
        Records of the source.
    positions : int
        Rows of an epoch, of all ranks.
    steps : tuple of int
        (ranks,) Steps of an epoch.
    dropped, padded : int
        Rows that no rank gets, and rows of padding, in the worst epoch.
    twice, missing : int
        Rows that came too often, and rows that never came, in the worst epoch.
    sampled : tuple of int or None
        The least and the most often that a record comes in an epoch, if the order samples; else None.
    drawing : tuple of str or None
        Functions that use global random generators in the training process; None if that couldn't be tested.
    plan : Plan
        The plan of one rank.

    Examples
    --------
    >>> report = sp.Pipeline(sp.Arrays(x=np.arange(24))).shuffle(seed=7).batch(4).audit(ranks=3, epochs=2)
    >>> report.ok, report.steps, report.dropped
    (True, (2, 2, 2), 0)
    """

    ranks: int
    epochs: int
    records: int
    positions: int
    steps: tuple[int, ...]
    dropped: int
    padded: int
    twice: int
    missing: int
    sampled: tuple[int, int] | None
    drawing: tuple[str, ...] | None
    plan: Plan

    @property
    def disjoint(self) -> bool:
        """True if no row comes twice."""
        return self.twice == 0

    @property
    def complete(self) -> bool:
        """True if every row comes, except dropped ones."""
        return self.missing == 0

    @property
    def equal_steps(self) -> bool:
        """True if all ranks have the same number of steps."""
        return len(set(self.steps)) == 1

    @property
    def ok(self) -> bool:
        """True if every row comes once, and no function uses global random generators."""
        return self.once and not self.drawing

    @property
    def once(self) -> bool:
        """True if every row comes once, and all ranks have the same number of steps."""
        return self.disjoint and self.complete and self.equal_steps

    def facts(self) -> dict[str, object]:
        """Return the report as plain values, for programs."""
        return {
            "ok": self.ok,
            "ranks": self.ranks,
            "epochs": self.epochs,
            "records": self.records,
            "positions": self.positions,
            "steps": list(self.steps),
            "dropped": self.dropped,
            "padded": self.padded,
            "twice": self.twice,
            "missing": self.missing,
            "sampled": None if self.sampled is None else list(self.sampled),
            "drawing": None if self.drawing is None else list(self.drawing),
            "forecast": self.plan.memory.forecast.expected,
        }

    def __str__(self) -> str:
        steps = f"{self.steps[0]:,}" if self.equal_steps else f"{min(self.steps):,} to {max(self.steps):,}"
        what = "row" if self.sampled is None else "position"
        lines = [
            f"{self.ranks:,} data rank{'s' * (self.ranks != 1)}, {self.epochs:,} epoch{'s' * (self.epochs != 1)}, "
            f"{self.records:,} records: " + (f"every {what} once" if self.once else f"NOT every {what} once"),
            f"  disjoint   {_answer(self.disjoint, self.twice, 'come twice')}",
            f"  complete   {_answer(self.complete, self.missing, 'never come')}",
            f"  steps      {steps} on each rank"
            + ("" if self.equal_steps else ": ranks would wait for each other for ever"),
            f"  rows       {self.positions:,} an epoch, {self.dropped:,} dropped, {self.padded:,} of padding",
            *self._sampling(),
            *self._random(),
            f"  memory     forecast {show_bytes(self.plan.memory.forecast.expected)} a rank",
        ]
        return "\n".join(lines)

    def _random(self) -> list[str]:
        if self.drawing is None:
            return ["  random     not checked: no sample could be made in another process"]
        return [] if self.plan.not_reproducible is None else [f"  random     {self.plan.not_reproducible}"]

    def _sampling(self) -> list[str]:
        if self.sampled is None:
            return []
        return ["  sampled    a record comes {:,} to {:,} times an epoch".format(*self.sampled)]


def audit(pipeline: Description, *, ranks: int, epochs: int, executor: ExecutorName | None) -> AuditReport:
    """Count the rows that all ranks get. ``Pipeline.audit`` documents the arguments."""
    ranks = whole_number("ranks", ranks, low=1, high=1 << 20)
    epochs = whole_number("epochs", epochs, low=1, high=1 << 20)
    plan = make_plan(replace(pipeline, rank=0, world_size=ranks), LoaderOptions(executor=executor))
    if pipeline.batch_sampler:
        raise PlanError(
            "audit() can't count the records of batch(batch_sampler=True): the caller names them only when "
            "a loader runs"
        )
    if plan.samples.stream is not None:
        raise PlanError("audit() can't count the records of a stream: they are known only when they are read")
    from standpipe.engine.probe import drawing  # takes as long to import as the rest of the package

    drawn = drawing(plan)
    plan = replace(plan, drawing=drawn or ())
    steps = [replace(plan.steps, rank=rank) for rank in range(ranks)]
    is_sampled = not once_each(plan.pipeline)
    each = plan.order if is_sampled else order_of(replace(plan.pipeline, shuffled=False), plan.source)
    assert not isinstance(each, BudgetOrder | Given)  # within a budget nothing is sampled
    expected = _expected(plan, each, 0)
    sampled: list[int] = []
    twice = missing = dropped = padded = 0
    for epoch in range(epochs):
        if is_sampled:  # then each epoch has records of its own
            expected = _expected(plan, each, epoch)
            sampled += int(expected.min()), int(expected.max())
        counts = np.zeros_like(expected)
        padded = max(padded, sum(_count(plan, of_rank, epoch, counts) for of_rank in steps))
        difference = counts.astype(np.int64) - expected
        left_out = _dropped(plan, epoch)
        dropped = max(dropped, left_out)
        twice = max(twice, int(difference[difference > 0].sum()))
        missing = max(missing, int(-difference[difference < 0].sum()) - left_out)
    return AuditReport(
        ranks=ranks,
        epochs=epochs,
        records=plan.source.num_records,
        positions=int(expected.sum()),
        steps=tuple(of_rank.per_epoch for of_rank in steps),
        dropped=dropped,
        padded=padded,
        twice=twice,
        missing=missing,
        sampled=(min(sampled), max(sampled)) if sampled else None,
        drawing=drawn,
        plan=plan,
    )


def _expected(plan: Plan, order: Order, epoch: int) -> Counts:
    """Return how often an epoch should have each record, (records,), for any order of them."""
    is_sampled = order is plan.order  # then a record may come at every position
    counts: Counts = np.zeros(plan.source.num_records, np.dtype(np.uint32 if is_sampled else np.uint16))
    for start in range(0, order.num_positions, AT_ONCE):
        stop = min(start + AT_ONCE, order.num_positions)
        np.add.at(counts, order.indices(epoch, start, stop), 1)
    return counts


def _count(plan: Plan, steps: Steps, epoch: int, counts: Counts) -> int:
    """Add one rank's rows of an epoch to ``counts``, without padding; return the number of rows of padding."""
    padded = 0
    for k in range(steps.per_epoch):
        drawn = steps.step(k).draw(plan.order, epoch)
        np.add.at(counts, drawn.indices[drawn.valid], 1)
        padded += int(np.count_nonzero(~drawn.valid))
    return padded


def _dropped(plan: Plan, epoch: int) -> int:
    """Return the number of an epoch's rows that no rank gets, since the last batch is dropped."""
    dropped = plan.steps.dropped_per_epoch
    if not isinstance(plan.order, BudgetOrder):
        return dropped
    last = plan.order.num_positions
    return sum(len(plan.order.records(epoch, batch)) for batch in range(last - dropped, last))


def _answer(yes: bool, rows: int, what: str) -> str:
    return "yes" if yes else f"NO: {rows:,} rows {what}"
