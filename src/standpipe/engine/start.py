"""From a plan to workers and slots; what a plan left open is measured here, on one sample."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe import _native
from standpipe.contracts import PythonSource, Records, StreamSource
from standpipe.engine.cache import Keeper, opened
from standpipe.engine.native.workers import NativeWorkers
from standpipe.engine.open_files import check_files, too_few_files
from standpipe.engine.python.cached_samples import Kept
from standpipe.engine.python.recipe import Recipe, Supplies
from standpipe.engine.python.samples import SampleMaker, unforeseen
from standpipe.engine.python.threads import ThreadWorkers
from standpipe.engine.python.value_checks import Checks
from standpipe.engine.replace import MOST_ATTEMPTS, advise, substitute_of
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.watchdog.where import stack_of_thread
from standpipe.engine.workers import CALLER, INTERRUPTED_S, Failure, Workers, raised_for, too_long
from standpipe.errors import StalledError, StandpipeError, WorkerDied, record_name
from standpipe.order import Cursor
from standpipe.plan.cache import CachePlan
from standpipe.plan.plan import Plan
from standpipe.source import NAMES
from standpipe.spec import Executor, Listed, Replace, Spec
from standpipe.system.machine import cpu_count, is_short_of_files, own_memory_bytes, process_memory_bytes
from standpipe.units import show_bytes

if TYPE_CHECKING:
    from standpipe.engine.processes.server_handle import WorkerProcess, WorkerServer
    from standpipe.plan.memory import WorkerCost

Measured = Mapping[str, Spec | Listed] | Failure
Measure = Callable[[RowKey, Inputs], Measured]
PATIENCE_S = 1.0  # for a cache's thread, where there will be no workers
MEASURING = "measuring what a sample looks like"


def started(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch
) -> tuple[Plan, Workers, _native.SlotRing]:
    """The plan with nothing left open, whoever fills slots, and the slots.

    at  where the run begins; the sample that comes there is measured

    Raises ``SampleError`` when that sample can't be made, ``WorkerDied`` or ``StalledError`` when workers die of it
    or hang, ``BudgetError`` when batches of such samples don't fit the memory, ``PlanError`` when processes can't have
    the dataset, or there can't be as many open files as the run needs, ``StandpipeError`` when the system refuses
    threads, processes or memory; and whatever the source raises when it is asked where that sample is.
    """
    check_files(plan)
    if plan.program is not None and plan.executor is Executor.PROCESS:
        return _in_processes(plan, at, bell, watch)
    with refusals(plan):
        watch.start()
    if plan.program is not None:
        return _in_threads(plan, at, bell, watch)
    with contextlib.ExitStack() as unless_workers_have_it:
        kept = None if plan.cache is None else opened(plan.cache, strict=plan.cache.cache.strict)
        if kept is not None:
            unless_workers_have_it.callback(kept.close)
        with refusals(plan):
            ring = _ring(plan, bell)
            workers = NativeWorkers(plan, bell, watch.end, kept)
        unless_workers_have_it.pop_all()
    return plan, workers, ring


@contextlib.contextmanager
def refusals(plan: Plan) -> Iterator[None]:
    """What the system refuses is a ``StandpipeError``. No code of the user's runs there: its errors are its own."""
    try:
        yield
    except StandpipeError:
        raise
    except (RuntimeError, OSError) as error:
        if is_short_of_files(error):
            raise too_few_files(plan) from error
        raise StandpipeError(
            f"the system refused what the loader needs, {plan.workers} workers and "
            f"{show_bytes(plan.most_slots * plan.layout.stride_bytes)} of address space: {error}"
        ) from error


def _in_threads(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch
) -> tuple[Plan, Workers, _native.SlotRing]:
    recipe = recipe_of(plan)
    kept = None
    with contextlib.ExitStack() as unless_workers_have_it:
        strict = plan.cache is not None and plan.cache.cache.strict
        if plan.cache is not None and (found := opened(plan.cache, strict=strict)) is not None:
            keeper = Keeper(plan.cache, found)
            kept = Kept(keeper)
            unless_workers_have_it.callback(kept.close, PATIENCE_S)
            keeper.start(watch.end)
        if plan.open or recipe.keeps_samples:
            fields, record = _measured_in_threads(plan, at, recipe, watch, kept)
            plan = plan.measured(fields, record) if plan.open else plan
        threads = 0 if plan.executor is Executor.INLINE else plan.workers
        with refusals(plan):
            ring = _ring(plan, bell)
            workers = ThreadWorkers(plan, recipe, threads, bell, kept, watch.end)
        unless_workers_have_it.pop_all()
    return plan, workers, ring


def _measured_in_threads(
    plan: Plan, at: Cursor, recipe: Recipe, watch: Watch, kept: Kept | None
) -> tuple[Mapping[str, Spec | Listed], int]:
    side = _native.SideArena(plan.forecast.side)
    with contextlib.closing(Supplies.of(recipe, side, kept=kept)) as supplies:

        def measure(key: RowKey, inputs: Inputs) -> Measured:
            if plan.executor is Executor.THREAD:
                maker = SampleMaker(recipe, supplies, catches=BaseException)
                return _measured_aside(maker, watch, key, inputs)
            maker = SampleMaker(recipe, supplies)
            with watch.errand(record_name(key.index, inputs.name(0, key.index)), MEASURING, CALLER):
                return maker.measure(key, inputs)

        return _measured(plan, at, measure)


def _in_processes(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch
) -> tuple[Plan, Workers, _native.SlotRing]:
    # What it needs takes a fifth of the time of importing standpipe, and threads need none of it.
    from standpipe.engine.processes.server_handle import WorkerProcess, WorkerServer
    from standpipe.engine.processes.workers import ProcessWorkers

    packs = not isinstance(plan.source, PythonSource) or plan.source.packs
    recipe = recipe_of(plan)
    if plan.cache is not None and not _can_be_had(plan.cache):
        recipe = replace(recipe, cache=None)
    server: WorkerServer | None = None
    workers: list[WorkerProcess] = []
    try:
        with refusals(plan):
            fork_from = plan.options.fork_from
            server = WorkerServer(recipe, pack_lists=packs, workers=_most(plan), fork_from=fork_from)
            watch.start()  # which is a thread, with which this process couldn't be forked
        with watch.errand(
            "the start of worker processes",
            "loading the dataset",
            f"the server of worker processes ({server.process})",
            where=server.where,
            give_up=lambda _: server.end(),
            least_s=plan.options.start_timeout_s or 0.0,
        ):
            server.wait_until_ready()
        server.side.cap_bytes = plan.forecast.side
        with refusals(plan):
            workers.append(WorkerProcess(server, 0))

        def measure(key: RowKey, inputs: Inputs) -> Measured:
            return _measured_in(workers, server, watch, key, inputs)

        fields, record = _measured(plan, at, measure)
        with refusals(plan):
            plan = plan.measured(fields, record, _cost(plan, server, workers))
            if plan.in_turn:  # the first one has made a sample already
                workers[0].kill()
                workers[0].close()
                workers[0] = WorkerProcess(server, 0)
            server.side.cap_bytes = plan.forecast.side
            ring = _ring(plan, bell)
            for number in range(1, plan.workers):
                workers.append(WorkerProcess(server, number))  # noqa: PERF401 (those there are end if one fails)
            return plan, ProcessWorkers(server, workers, plan, ring, bell, watch), ring
    except BaseException:
        for worker in workers:
            worker.kill()  # it may be inside the user's code
            worker.close()
        if server is not None:
            server.close(0)
        raise


def _most(plan: Plan) -> int:
    """Worker processes that there may be, once it is known how much memory each takes."""
    fixed = plan.options.workers != "auto"
    return plan.workers if fixed else max(plan.workers, cpu_count(near=plan.device.cpus()))


def _can_be_had(cache: CachePlan) -> bool:
    """Whether there is such a set, which each worker will open for itself; said once if not."""
    found = opened(cache, strict=cache.cache.strict)
    if found is not None:
        found.close()
    return found is not None


def _measured(plan: Plan, at: Cursor, measure: Measure) -> tuple[Mapping[str, Spec | Listed], int]:
    """What the first sample looks like, or where bad ones are replaced, the first good one in its place; its number."""
    key, records = first_record(plan, at)
    index, attempt = key.index, 0
    while True:
        answer = measure(replace(key, index=index, attempt=attempt), Inputs(records))
        if not isinstance(answer, Failure):
            return answer, index
        attempt += 1
        if answer.whole or not isinstance(plan.pipeline.bad, Replace) or attempt > MOST_ATTEMPTS:
            raise advise(raised_for(answer, records, 0, plan.source), plan, [answer])
        records = plan.source.locate(np.array([substitute_of(plan, key.epoch, key.position, attempt, index)]))
        index = int(records.index[0])


def first_record(plan: Plan, at: Cursor) -> tuple[RowKey, Records]:
    """Return the first sample that comes at a cursor, and where its record is."""
    at = plan.steps.settled(at)
    drawn = plan.steps.step(0, at.consumed).draw(plan.order, at.epoch)
    index = int(drawn.indices[0])
    if isinstance(plan.source, StreamSource):
        index = at.consumed // plan.steps.world
    records = plan.source.locate(np.array([index]))
    return RowKey(int(records.index[0]), at.epoch, int(drawn.positions[0])), records


def _measured_aside(maker: SampleMaker, watch: Watch, key: RowKey, inputs: Inputs) -> Measured:
    """Measure in a thread of its own, which can be left behind when it hangs."""
    answers: SimpleQueue[Measured] = SimpleQueue()

    def measure() -> None:
        try:
            answer = maker.measure(key, inputs)
        except BaseException as error:
            answer = unforeseen(0, error)
        answers.put(answer)

    def fails(error: StandpipeError) -> None:
        answers.put(Failure(0, "died", str(error), error, whole=True))

    thread = guarded("standpipe-measure", measure, fails)

    def give_up(error: StalledError) -> None:
        answers.put(too_long(0, error))

    thread.start()
    with watch.errand(
        record_name(key.index, inputs.name(0, key.index)),
        MEASURING,
        "a thread that does only that",
        where=lambda: stack_of_thread(thread.ident or 0),
        give_up=give_up,
    ):
        while True:
            with contextlib.suppress(Empty):
                return answers.get(timeout=INTERRUPTED_S)


def _measured_in(
    workers: list[WorkerProcess], server: WorkerServer, watch: Watch, key: RowKey, inputs: Inputs
) -> Measured:
    """Measure in the first worker. When that dies of it, or hangs, another one takes its place and tries once more."""
    from standpipe.engine.processes.server_handle import WorkerProcess

    def measured(worker: WorkerProcess) -> Measured:
        with watch.errand(
            record_name(key.index, inputs.name(0, key.index)),
            MEASURING,
            str(worker),
            where=worker.where,
            give_up=lambda _: worker.kill(),
        ):
            return worker.measure(key, inputs)

    def successor() -> WorkerProcess:
        workers[0].close()
        return WorkerProcess(server, 0)

    try:
        return measured(workers[0])
    except (WorkerDied, StalledError):
        workers[0] = successor()
    try:
        return measured(workers[0])
    except (WorkerDied, StalledError) as error:
        workers[0] = successor()
        place = "died" if isinstance(error, WorkerDied) else "stalled"
        return Failure(0, place, str(error), error)


def _cost(plan: Plan, server: WorkerServer, workers: list[WorkerProcess]) -> WorkerCost:
    """What processes as large as the first one take, after its first sample. When it dies meanwhile, another one takes
    its place, once.
    """
    from standpipe.engine.processes.messages import Ended
    from standpipe.engine.processes.server_handle import WorkerProcess

    try:
        return _measured_cost(plan, server, workers[0])
    except (Ended, OSError):
        workers[0].close()
        workers[0] = WorkerProcess(server, 0)
    try:
        return _measured_cost(plan, server, workers[0])
    except (Ended, OSError) as error:
        raise WorkerDied(f"{workers[0]} {workers[0].death()} while its memory was measured") from error


def _measured_cost(plan: Plan, server: WorkerServer, worker: WorkerProcess) -> WorkerCost:
    """Raises ``Ended`` or ``OSError`` when it, or the server, is gone."""
    worker.trim()
    each = own_memory_bytes(worker.process, sharers=1 + server.copies)
    shared = process_memory_bytes(server.process) + process_memory_bytes(worker.process) - each
    shared += server.packed_bytes + server.extra_bytes  # hardly any page of the former was looked at yet
    return replace(plan.cost, each=each, shared=shared)


def recipe_of(plan: Plan) -> Recipe:
    """What workers have to know to make the plan's samples."""
    source: Any = plan.source
    assert plan.program is not None
    return Recipe(
        program=plan.program,
        functions=plan.functions,
        dataset=_dataset(plan),
        names=source.names if isinstance(source, PythonSource) else NAMES,
        seed=plan.pipeline.seed,
        decoding=plan.pipeline.decoding,
        reads=plan.options.reads,
        simd=plan.simd,
        collate=plan.pipeline.collate,
        checks=Checks(plan.pipeline.finite, plan.labels),
        cache=plan.cache,
        in_turn=plan.in_turn,
    )


def _dataset(plan: Plan) -> Any:
    source: Any = plan.source
    if isinstance(source, StreamSource):
        return source.of_rank(plan.steps.rank, plan.steps.world)
    return source.dataset if isinstance(source, PythonSource) else None


def _ring(plan: Plan, bell: _native.Bell) -> _native.SlotRing:
    keeps = not plan.device.lends  # which may have pinned it
    return _native.SlotRing(plan.layout.slot_bytes, plan.depth, plan.most_slots, bell, keeps=keeps)
