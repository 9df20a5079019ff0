"""Make workers and slots for a plan, and measure on one sample the sizes that the plan left open."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from standpipe import _native
from standpipe.engine.cache import opened
from standpipe.engine.native.workers import NativeWorkers
from standpipe.engine.python.cached_samples import SampleCache
from standpipe.engine.python.calls import initialize, unforeseen
from standpipe.engine.python.samples import SampleMaker
from standpipe.engine.python.threads import ThreadWorkers
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.start_common import (
    MEASURING,
    Measured,
    measured_by,
    new_ring,
    refusals,
    worker_setup_of,
)
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import OwnTask, Watch
from standpipe.engine.watchdog.where import stack_of_thread
from standpipe.engine.workers import CALLER, INTERRUPTED_S, CantWorkError, Failure, Workers, too_long
from standpipe.errors import StalledError, StandpipeError, record_name
from standpipe.order import Cursor
from standpipe.plan.build import measured_plan
from standpipe.plan.parts import MeasuredSample
from standpipe.plan.plan import Plan
from standpipe.spec import Executor
from standpipe.system.machine import raise_file_limit

PATIENCE_S = 1.0  # seconds to wait for a cache's thread if the start fails


def started(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch, ring: _native.SlotRing | None = None
) -> tuple[Plan, Workers, _native.SlotRing]:
    """Make the workers and slots of a run; return the plan with all sizes, the workers and the slots.

    at     the cursor where the run begins; the sample there is measured
    bell   wakes the filling thread
    watch  the watchdog, which this function starts
    ring   slots that exist already; None: make them

    Raises these errors, and errors of the source when it locates that sample:

    SampleError      the sample can't be made
    WorkerDiedError  two workers died while making it
    StalledError     workers hang while making it
    BudgetError      batches of such samples don't fit the memory
    PlanError        the dataset can't be sent to worker processes, the limit of open files is too low, or the user's
                     initializer fails
    StandpipeError   the system refuses threads, processes or memory
    """
    raise_file_limit()
    if plan.in_processes:
        from standpipe.engine.processes.start import (
            in_processes,  # takes a fifth of the time of importing standpipe
        )

        return in_processes(plan, at, bell, watch, ring)
    try:
        initialize(plan.options.initializer)
    except CantWorkError as error:
        raise error.public() from error.__cause__
    with refusals(plan):
        watch.start()
    if plan.samples.program is not None:
        return _in_threads(plan, at, bell, watch, ring)
    with contextlib.ExitStack() as unless_workers_have_it:
        kept = None if plan.cache is None else opened(plan.cache, strict=plan.cache.cache.strict)
        if kept is not None:
            unless_workers_have_it.callback(kept.close)
        with refusals(plan):
            ring = new_ring(plan, bell) if ring is None else ring
            workers = NativeWorkers(plan, bell, watch.end, kept)
        unless_workers_have_it.pop_all()
    return plan, workers, ring


def _in_threads(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch, ring: _native.SlotRing | None
) -> tuple[Plan, Workers, _native.SlotRing]:
    setup = worker_setup_of(plan)
    kept = None
    with contextlib.ExitStack() as unless_workers_have_it:
        strict = plan.cache is not None and plan.cache.cache.strict
        if plan.cache is not None and (found := opened(plan.cache, strict=strict)) is not None:
            kept = SampleCache(plan.cache, found)
            unless_workers_have_it.callback(kept.close, PATIENCE_S)
            kept.start(watch.end)
        if plan.is_open or setup.keeps_samples:
            samples, record = _measured_in_threads(plan, at, setup, watch, kept)
            plan = measured_plan(plan, samples, record) if plan.is_open else plan
        threads = 0 if plan.pool.executor is Executor.INLINE else plan.pool.workers
        with refusals(plan):
            ring = new_ring(plan, bell) if ring is None else ring
            workers = ThreadWorkers(plan, setup, threads, bell, kept, watch.end)
        unless_workers_have_it.pop_all()
    return plan, workers, ring


def _measured_in_threads(
    plan: Plan, at: Cursor, setup: WorkerSetup, watch: Watch, kept: SampleCache | None
) -> tuple[Sequence[MeasuredSample], int]:
    side = _native.SideArena(plan.memory.forecast.side)
    with contextlib.closing(Supplies.of(setup, side, kept=kept)) as supplies:

        def measure(key: RowKey, inputs: Inputs, segment: int) -> Measured:
            if plan.pool.executor is Executor.THREAD:
                maker = SampleMaker(setup, supplies, catches=BaseException)
                return _measured_aside(maker, watch, key, inputs, segment)
            maker = SampleMaker(setup, supplies)
            with OwnTask(watch, record_name(key.index, inputs.name(0, key.index)), MEASURING, CALLER):
                return maker.measure(key, inputs, segment)

        return measured_by(plan, at, measure, watch)


def _measured_aside(maker: SampleMaker, watch: Watch, key: RowKey, inputs: Inputs, segment: int) -> Measured:
    """Make a sample by the program of a segment in a separate thread, and return its measurement or its failure.

    If the thread hangs, the watchdog reports that, and the thread is left behind.
    """
    answers: SimpleQueue[Measured] = SimpleQueue()

    def measure() -> None:
        try:
            answer = maker.measure(key, inputs, segment)
        except BaseException as error:
            answer = unforeseen(0, error)
        answers.put(answer)

    def fails(error: StandpipeError) -> None:
        answers.put(Failure(0, "died", str(error), error, whole=True))

    thread = guarded("standpipe-measure", measure, fails)

    def give_up(error: StalledError) -> None:
        answers.put(too_long(0, error))

    thread.start()
    with OwnTask(
        watch,
        record_name(key.index, inputs.name(0, key.index)),
        MEASURING,
        "a thread that only measures",
        stack=lambda: stack_of_thread(thread.ident or 0),
        end=give_up,
    ):
        while True:
            with contextlib.suppress(Empty):
                return answers.get(timeout=INTERRUPTED_S)
