"""Start the worker processes of a plan, and measure in the first one the sizes that the plan left open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from standpipe import _native
from standpipe.carried import Report
from standpipe.engine.cache import opened
from standpipe.engine.processes.fork_server import SHARED
from standpipe.engine.processes.forking import own_threads
from standpipe.engine.processes.messages import Ended
from standpipe.engine.processes.server_handle import FORK_ARGUMENT, WorkerServer
from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.processes.workers import ProcessWorkers
from standpipe.engine.rows import Inputs, RowKey
from standpipe.engine.start_common import (
    MEASURING,
    Measured,
    measured_by,
    new_ring,
    refusals,
    worker_setup_of,
)
from standpipe.engine.watchdog.watch import OwnTask, Watch
from standpipe.engine.workers import Failure, Workers
from standpipe.errors import StalledError, WorkerDiedError, record_name
from standpipe.order import Cursor
from standpipe.plan.build import measured_plan
from standpipe.plan.cache import CachePlan
from standpipe.plan.memory import WorkerCost
from standpipe.plan.plan import Plan
from standpipe.system.logs import logger
from standpipe.system.machine import cpu_count, own_memory_bytes, process_memory_bytes
from standpipe.system.user_warnings import warn_user
from standpipe.units import show_bytes

Result = TypeVar("Result")

FORK = f"To start workers as forks of this process, without imports, use {FORK_ARGUMENT}"


def in_processes(
    plan: Plan, at: Cursor, bell: _native.Bell, watch: Watch, ring: _native.SlotRing | None = None
) -> tuple[Plan, Workers, _native.SlotRing]:
    """Start worker processes, and make the first sample in one of them. See ``started`` for results and errors.

    at     the cursor where the run starts
    bell   wakes the filling thread
    watch  the watchdog, which this function starts
    ring   slots that exist already; None: make them
    """
    packs = plan.samples.python is None or plan.samples.python.shares_lists
    setup = worker_setup_of(plan)
    if plan.cache is not None and not _can_be_had(plan.cache):
        setup = replace(setup, cache=None)
    server: WorkerServer | None = None
    workers: list[WorkerProcess] = []
    try:
        with refusals(plan):
            context = plan.options.mp_context
            context = SHARED if context == "forkserver" else context
            advice = FORK if context != "fork" and not own_threads() else ""
            server = WorkerServer(setup, share_lists=packs, workers=_most(plan), mp_context=context)
            watch.start()  # after the server: with the watchdog's thread this process couldn't be forked
        with OwnTask(
            watch,
            "the start of worker processes",
            "loading the dataset",
            f"the worker server ({server.process})",
            stack=server.where,
            end=lambda _: server.end(),
            least_s=plan.options.start_timeout_s or 0.0,
            advice=advice,
        ):
            carried = server.wait_until_ready()
        server.side.cap_bytes = plan.memory.forecast.side
        with refusals(plan):
            workers.append(WorkerProcess(server, 0))
        load_s = 0.0
        if server.late is not None:
            carried, load_s = _loaded(workers, server, plan, watch, advice)
        if carried.warning:
            warn_user(carried.warning)
        plan = replace(plan, carried=carried)

        def measure(key: RowKey, inputs: Inputs, epoch: int) -> Measured:
            return _measured_in(workers, server, watch, (key, inputs, epoch))

        samples, record = measured_by(plan, at, measure, watch)
        with refusals(plan):
            plan = measured_plan(plan, samples, record, _cost(plan, server, workers))
            if server.late is not None and server.found_late:
                _log_late(server.late, load_s, plan.pool.cost.each)
            if plan.options.round_robin:  # the first worker must be new, and this one has made a sample
                workers[0].kill()
                _replace_first(workers, server)
            server.side.cap_bytes = plan.memory.forecast.side
            ring = new_ring(plan, bell) if ring is None else ring
            for number in range(1, plan.pool.workers):
                workers.append(WorkerProcess(server, number))  # noqa: PERF401 (all started ones end if one fails)
            return plan, ProcessWorkers(server, workers, plan, ring, bell, watch), ring
    except BaseException:
        for worker in workers:
            worker.kill()  # it may be inside the user's code
            worker.close()
        if server is not None:
            server.close(0)
        raise


def _most(plan: Plan) -> int:
    """Return the most worker processes that the run may have, after one worker's memory was measured."""
    fixed = plan.options.num_workers != "auto"
    return plan.pool.workers if fixed else max(plan.pool.workers, cpu_count(near=plan.device.cpus()))


def _can_be_had(cache: CachePlan) -> bool:
    """Return True if the cache set can be opened in this process; otherwise log why.

    The check here logs a problem once. Otherwise each worker would log it.
    """
    found = opened(cache, strict=cache.cache.strict)
    if found is not None:
        found.close()
    return found is not None


def _loaded(
    workers: list[WorkerProcess], server: WorkerServer, plan: Plan, watch: Watch, advice: str
) -> tuple[Report, float]:
    """Wait until the first worker has loaded the setup by itself.

    If the worker dies, replace it in ``workers``, and try once more.

    server  a server in late mode
    advice  how to start workers more quickly; empty if there is no way

    Return what it has set, and the seconds that loading took.
    """
    assert server.late is not None

    def loaded(worker: WorkerProcess) -> tuple[Report, float]:
        with OwnTask(
            watch,
            "the start of worker processes",
            "loading the dataset",
            str(worker),
            stack=worker.where,
            end=lambda _: worker.kill(),
            least_s=plan.options.start_timeout_s or 0.0,
            advice=advice,
        ):
            return worker.wait_until_loaded()

    report, seconds = _tried_twice(workers, server, loaded, WorkerDiedError)
    return replace(report, starting=server.late.starting, threads=server.late.threads), seconds


def _tried_twice(
    workers: list[WorkerProcess],
    server: WorkerServer,
    attempt: Callable[[WorkerProcess], Result],
    *errors: type[Exception],
) -> Result:
    """Return ``attempt`` of the first worker. After one of ``errors``, replace the worker, and try once more."""
    try:
        return attempt(workers[0])
    except errors:
        _replace_first(workers, server)
    return attempt(workers[0])


def _replace_first(workers: list[WorkerProcess], server: WorkerServer) -> None:
    """Start another first worker in place of one that has ended or is killed."""
    workers[0].close()
    workers[0] = WorkerProcess(server, 0)


def _log_late(late: Report, load_s: float, each: int) -> None:
    """Log once that each worker loads the dataset by itself, and what that costs."""
    logger().warning(
        "%s, with which no process can be forked. So each worker process loads the dataset by itself: in %.1f s, with "
        "%s of its own memory. Packed lists and large arrays stay shared. This is logged once; later loaders with "
        "these modules start so at once",
        late.reason(),
        load_s,
        show_bytes(each),
    )


def _measured_in(
    workers: list[WorkerProcess], server: WorkerServer, watch: Watch, what: tuple[RowKey, Inputs, int]
) -> Measured:
    """Make a sample in the first worker, and return its measurement or its failure.

    If the worker dies or hangs, replace it in ``workers``, and try once more.

    what  the key of the sample's random numbers, the source's values for its record, and the segment whose
          program makes it
    """
    key, inputs, _ = what

    def measured(worker: WorkerProcess) -> Measured:
        with OwnTask(
            watch,
            record_name(key.index, inputs.name(0, key.index)),
            MEASURING,
            str(worker),
            stack=worker.where,
            end=lambda _: worker.kill(),
        ):
            return worker.measure(*what)

    try:
        return _tried_twice(workers, server, measured, WorkerDiedError, StalledError)
    except (WorkerDiedError, StalledError) as error:
        _replace_first(workers, server)
        place = "died" if isinstance(error, WorkerDiedError) else "stalled"
        return Failure(0, place, str(error), error)


def _cost(plan: Plan, server: WorkerServer, workers: list[WorkerProcess]) -> WorkerCost:
    """Return the memory that each worker takes, measured on the first worker after its first sample.

    If that worker dies, replace it in ``workers`` and measure its successor. Raises ``WorkerDiedError`` if
    the successor dies too.
    """
    measured = partial(_measured_cost, plan, server)
    try:
        return _tried_twice(workers, server, measured, Ended, OSError)
    except (Ended, OSError) as error:
        raise WorkerDiedError(f"{workers[0]} {workers[0].death()} while its memory was measured") from error


def _measured_cost(plan: Plan, server: WorkerServer, worker: WorkerProcess) -> WorkerCost:
    """Return the memory of a worker alone, and the memory that all workers share, both measured in bytes.

    Raises ``Ended`` or ``OSError`` if the worker or the server has ended.
    """
    worker.trim()
    each = own_memory_bytes(worker.process, sharers=1 + server.copies)
    shared = process_memory_bytes(server.process) + process_memory_bytes(worker.process) - each
    # Packed pages aren't in these figures yet, as hardly any page was read.
    shared += server.packed_bytes + server.extra_bytes
    return replace(plan.pool.cost, each=each, shared=shared)
