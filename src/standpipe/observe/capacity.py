"""Compute the rate in rows per second that each place of a run could reach, from its counters."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import standpipe as sp

LEAST_LOAD = 0.05  # fraction of its time that a place must work for its capacity to be known


@dataclass(frozen=True, slots=True)
class Capacities:
    """Rows per second that each part of a run could reach; infinite if it worked too little to be measured.

    step       the training loop, if it never waited
    workers    the threads or processes that make rows
    readers    the threads that read ahead
    filling    the thread that finds records and puts batches together
    device     bringing batches to the device
    cores      all processors, at the present processor time per row
    """

    step: float
    workers: float
    readers: float
    filling: float
    device: float
    cores: float

    def least(self, *without: str) -> float:
        """Return the lowest of these rates, leaving out the fields named in ``without``."""
        rates: dict[str, float] = asdict(self)
        return min(rate for name, rate in rates.items() if name not in without)


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a run's workers.

    loop_s  seconds of the training loop
    work_s  seconds that workers worked, summed; includes reading, unless other threads read ahead
    read_s  seconds of ``work_s`` that were spent on reading
    busy    fraction of the workers' time in which they worked, from 0 to 1
    cpu_s   processor seconds of the process and its workers
    """

    loop_s: float
    work_s: float
    read_s: float
    busy: float
    cpu_s: float

    @classmethod
    def of(cls, done: sp.Stats, plan: sp.Plan, workers: int) -> Load:
        """Return the load from the counters of a period in which ``workers`` workers ran."""
        loop_s = done.step.step_s + done.step.wait_s
        read_s = 0.0 if done.reading_ahead else done.read.busy_s
        work_s = done.transform.busy_s + read_s
        # Where Pillow's threads make the rows, native ones wait: so of the loop's time too.
        whole_s = min(work_s + done.transform.wait_s, workers * loop_s)
        here = plan.options.fleet is None and plan.pool.executor.value == "process"
        elsewhere_s = done.transform.cpu_s if here else 0.0
        return cls(loop_s, work_s, read_s, work_s / whole_s if whole_s else 0.0, done.cpu_s + elsewhere_s)


def capacities(
    done: sp.Stats, load: Load, *, workers: int, cores: int, step_rows_per_s: float | None
) -> Capacities:
    """Return the capacity of each place, from the counters of one period.

    workers          number of workers that made rows
    cores            number of processors that the process may use
    step_rows_per_s  measured rate of the training loop when it never waits; None: computed from ``done``
    """

    def known(rows: int, busy_s: float, threads: int = 1) -> float:
        loaded = busy_s > 0 and busy_s >= LEAST_LOAD * threads * load.loop_s
        return rows / busy_s * threads if loaded else math.inf

    step, read = done.step, done.read
    return Capacities(
        step=known(step.rows, step.rows / step_rows_per_s if step_rows_per_s else step.step_s),
        workers=known(done.rows, load.work_s, workers),
        readers=known(done.rows, read.busy_s, read.threads) if done.reading_ahead else math.inf,
        filling=known(done.order.rows, done.order.busy_s + done.batch.busy_s),
        device=known(done.device.rows, done.device.busy_s),
        cores=known(done.rows, load.cpu_s, cores),
    )
