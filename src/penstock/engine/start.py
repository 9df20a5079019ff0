"""From a plan to workers and slots; what a plan left open is measured here, on one sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import _native
from penstock.contracts import PythonSource
from penstock.engine.collating import numbered
from penstock.engine.draws import GlobalGenerators
from penstock.engine.native_workers import NativeWorkers
from penstock.engine.samples import Inputs, Recipe, RowFailed, RowKey, SampleMaker, measured
from penstock.engine.threads import ThreadWorkers
from penstock.engine.workers import Failure, Workers, error_of
from penstock.errors import PenstockError
from penstock.order import Cursor
from penstock.plan import Plan, show_bytes
from penstock.spec import Executor, Listed, Spec


def started(plan: Plan, at: Cursor, bell: _native.Bell) -> tuple[Plan, Workers, _native.SlotRing]:
    """The plan with nothing left open, whoever fills slots, and the slots.

    at  where the run begins; the sample that comes there is measured

    Raises ``SampleError`` when that sample can't be made, ``BudgetError`` when batches of such samples don't fit
    the memory, ``PenstockError`` when the system refuses threads or memory.
    """
    try:
        if plan.program is None:
            return plan, NativeWorkers(plan, bell), _ring(plan, bell)
        recipe = recipe_of(plan)
        generators = GlobalGenerators(shared=True)
        if plan.open:
            plan = plan.measured(_measured(plan, at, recipe, generators))
        fields, listed = plan.sample_fields, (*plan.listed, *plan.collated)
        threads = 0 if plan.executor is Executor.INLINE else plan.workers
        workers = ThreadWorkers(recipe, generators, threads, fields, listed, bell)
        return plan, workers, _ring(plan, bell)
    except RuntimeError as error:
        raise PenstockError(
            f"the system refused what the loader needs, {plan.workers} threads and "
            f"{show_bytes(plan.most_slots * plan.layout.stride_bytes)} of address space: {error}"
        ) from error


def recipe_of(plan: Plan) -> Recipe:
    """What workers have to know to make the plan's samples."""
    source: Any = plan.source
    assert plan.program is not None
    return Recipe(
        program=plan.program,
        dataset=source.dataset if isinstance(source, PythonSource) else None,
        names=source.names if isinstance(source, PythonSource) else (),
        seed=plan.pipeline.seed,
        decode=plan.pipeline.decode_mode,
        limits=plan.pipeline.limits,
        simd=plan.simd,
        side_bytes=plan.forecast.side // plan.workers,
    )


def _ring(plan: Plan, bell: _native.Bell) -> _native.SlotRing:
    return _native.SlotRing(plan.layout.slot_bytes, plan.depth, plan.most_slots, bell)


def _measured(
    plan: Plan, at: Cursor, recipe: Recipe, generators: GlobalGenerators
) -> Mapping[str, Spec | Listed]:
    """What the fields of the first sample look like."""
    at = plan.steps.settled(at)
    step = plan.steps.step(0, at.consumed)
    drawn = step.draw(plan.order, at.epoch)
    records = plan.source.locate(drawn.indices[:1])
    key = RowKey(int(records.index[0]), at.epoch, int(drawn.positions[0]))
    maker = SampleMaker(recipe, generators)
    try:
        with maker.own:
            return measured(numbered(maker.make(key, Inputs(records).row(0), {}), plan.pipeline.collate))
    except RowFailed as failed:
        failure = Failure(0, failed.place, failed.reason, failed.cause)
        raise error_of(failure, records, plan.source) from failed.cause
