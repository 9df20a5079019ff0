"""Count the open files that a run needs, and make the error for a limit that is too low."""

from __future__ import annotations

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.plan.memory import FILES_OF_PROCESS
from standpipe.plan.plan import Plan
from standpipe.read import ReadAhead
from standpipe.system import machine

SPARE_FILES = 16  # open files that reading threads leave to the user's code


def check_files(plan: Plan) -> None:
    """Raise ``PlanError`` if the limit of open files is lower than a run needs to start."""
    open_now, limit = machine.open_files()
    if open_now + least_files(plan) > limit:
        raise too_few_files(plan)


def least_files(plan: Plan) -> int:
    """Return how many open files a run needs to start, besides those that this process has open already."""
    if not plan.in_processes:
        return 2  # the arena of slots, and a file that is read
    # The arena, and the descriptor that wakes the filling thread.
    return 2 + plan.files_of_server + plan.pool.workers * FILES_OF_PROCESS


def reading_threads(plan: Plan) -> int:
    """Return the number of read-ahead threads, at least 1, for which the limit of open files suffices."""
    open_now, limit = machine.open_files()
    each = 1 if plan.options.reads.hedge_after_s is None else 2
    kept = _native.most_kept_open()  # archives, which stay open
    free = (limit - open_now - SPARE_FILES - kept) // each - plan.pool.workers
    return max(
        min(ReadAhead.for_workers(plan.pool.workers, plan.memory.forecast.read_ahead).threads, free), 1
    )


def too_few_files(plan: Plan) -> PlanError:
    """Return the error for a limit of open files that is too low to start the run."""
    open_now, limit = machine.open_files()
    need = least_files(plan)
    pool = plan.pool
    fewer = ", or use fewer workers" if pool.workers > 1 and need > 2 else ""
    return PlanError(
        f"too many open files: this process may have {limit} (ulimit -n) and has {open_now}, and "
        f"num_workers={pool.workers}, executor={pool.executor.value!r} need {need} more to start. Raise the "
        f"limit to at least {open_now + need}{fewer}"
    )
