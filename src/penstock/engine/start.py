"""From a plan to workers and slots; what a plan left open is measured here, on one sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _native
from penstock.contracts import PythonSource, StreamSource
from penstock.engine.draws import shared_generators
from penstock.engine.native_workers import NativeWorkers
from penstock.engine.replacing import MOST_ATTEMPTS, substitute_of
from penstock.engine.samples import Inputs, Recipe, RowKey, SampleMaker, Supplies
from penstock.engine.threads import ThreadWorkers
from penstock.engine.workers import Failure, Workers, error_of
from penstock.errors import PenstockError
from penstock.machine import own_memory_bytes, process_memory_bytes
from penstock.order import Cursor
from penstock.plan import Plan
from penstock.sizing import show_bytes
from penstock.source import NAMES
from penstock.spec import Executor, Listed, Replace, Spec

if TYPE_CHECKING:
    from penstock.engine.processes import WorkerProcess, WorkerServer
    from penstock.sizing import WorkerCost

Measure = Callable[[RowKey, Inputs], Mapping[str, Spec | Listed] | Failure]


def started(plan: Plan, at: Cursor, bell: _native.Bell) -> tuple[Plan, Workers, _native.SlotRing]:
    """The plan with nothing left open, whoever fills slots, and the slots.

    at  where the run begins; the sample that comes there is measured

    Raises ``SampleError`` when that sample can't be made, ``BudgetError`` when batches of such samples don't fit
    the memory, ``PlanError`` when processes can't have the dataset, ``PenstockError`` when the system refuses
    threads, processes or memory.
    """
    try:
        if plan.program is None:
            return plan, NativeWorkers(plan, bell), _ring(plan, bell)
        if plan.executor is Executor.PROCESS:
            return _in_processes(plan, at, bell)
        return _in_threads(plan, at, bell)
    except (RuntimeError, OSError) as error:
        raise PenstockError(
            f"the system refused what the loader needs, {plan.workers} workers and "
            f"{show_bytes(plan.most_slots * plan.layout.stride_bytes)} of address space: {error}"
        ) from error


def _in_threads(plan: Plan, at: Cursor, bell: _native.Bell) -> tuple[Plan, Workers, _native.SlotRing]:
    recipe = recipe_of(plan)
    generators = shared_generators()
    if plan.open:
        maker = SampleMaker(recipe, generators, Supplies.of(recipe))
        with maker.own:
            plan = plan.measured(*_measured(plan, at, maker.measure))
    threads = 0 if plan.executor is Executor.INLINE else plan.workers
    ring = _ring(plan, bell)
    return plan, ThreadWorkers(plan, recipe, generators, threads, bell), ring


def _in_processes(plan: Plan, at: Cursor, bell: _native.Bell) -> tuple[Plan, Workers, _native.SlotRing]:
    # What it needs takes a fifth of the time of importing penstock, and threads need none of it.
    from penstock.engine.process_workers import ProcessWorkers
    from penstock.engine.processes import WorkerProcess, WorkerServer

    packs = not isinstance(plan.source, PythonSource) or plan.source.packs
    server = WorkerServer(recipe_of(plan), pack_lists=packs)
    workers: list[WorkerProcess] = []
    try:
        server.wait_until_ready()
        workers.append(WorkerProcess(server, 0))
        fields, record = _measured(plan, at, workers[0].measure)
        plan = plan.measured(fields, record, _cost(plan, server, workers[0]))
        ring = _ring(plan, bell)
        workers += [WorkerProcess(server, number) for number in range(1, plan.workers)]
        return plan, ProcessWorkers(server, workers, plan, ring, bell), ring
    except BaseException:
        for worker in workers:
            worker.close()
        server.close(0)
        raise


def _measured(plan: Plan, at: Cursor, measure: Measure) -> tuple[Mapping[str, Spec | Listed], int]:
    """What the first sample looks like, or where bad ones are replaced, the first good one in its place; its number."""
    at = plan.steps.settled(at)
    drawn = plan.steps.step(0, at.consumed).draw(plan.order, at.epoch)
    position, index = int(drawn.positions[0]), int(drawn.indices[0])
    if isinstance(plan.source, StreamSource):
        index = at.consumed // plan.steps.world
    attempt = 0
    while True:
        records = plan.source.locate(np.array([index]))
        index = int(records.index[0])
        answer = measure(RowKey(index, at.epoch, position, attempt), Inputs(records))
        if not isinstance(answer, Failure):
            return answer, index
        attempt += 1
        if not isinstance(plan.pipeline.bad, Replace) or attempt > MOST_ATTEMPTS:
            raise error_of(answer, records, 0, plan.source)
        index = substitute_of(plan, at.epoch, position, attempt, index)


def _cost(plan: Plan, server: WorkerServer, worker: WorkerProcess) -> WorkerCost:
    """What processes as large as the first one take, after its first sample."""
    each = own_memory_bytes(worker.process)
    shared = process_memory_bytes(server.process) + process_memory_bytes(worker.process) - each
    return replace(plan.cost, each=each, shared=shared)


def recipe_of(plan: Plan) -> Recipe:
    """What workers have to know to make the plan's samples."""
    source: Any = plan.source
    assert plan.program is not None
    return Recipe(
        program=plan.program,
        functions=plan.pipeline.batch_functions,
        dataset=_dataset(plan),
        names=source.names if isinstance(source, PythonSource) else NAMES,
        seed=plan.pipeline.seed,
        decoding=plan.pipeline.decoding,
        reads=plan.reads,
        simd=plan.simd,
        collate=plan.pipeline.collate,
        side_bytes=plan.forecast.side // (plan.workers if plan.executor is Executor.PROCESS else 1),
    )


def _dataset(plan: Plan) -> Any:
    source: Any = plan.source
    if isinstance(source, StreamSource):
        return source.of_rank(plan.steps.rank, plan.steps.world)
    return source.dataset if isinstance(source, PythonSource) else None


def _ring(plan: Plan, bell: _native.Bell) -> _native.SlotRing:
    return _native.SlotRing(plan.layout.slot_bytes, plan.depth, plan.most_slots, bell)
