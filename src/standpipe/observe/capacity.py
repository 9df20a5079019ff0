"""The rate that each place of a run could reach, as far as that was measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import standpipe as sp

LEAST_LOAD = 0.05  # of its time that a place works: below that its capacity is a guess


@dataclass(frozen=True, slots=True)
class Capacities:
    """Rows per second that each limit of a run allows; infinite where it was loaded too little to tell.

    step       the training loop, if it never waited
    workers    the threads or processes that make rows
    readers    the threads that read ahead
    filling    the thread that finds records and puts batches together
    device     bringing batches to the device
    cores      the processors, with what a row costs now
    """

    step: float
    workers: float
    readers: float
    filling: float
    device: float
    cores: float

    def least(self, *without: str) -> float:
        """The lowest of them, without those that are named."""
        rates: dict[str, float] = asdict(self)
        return min(rate for name, rate in rates.items() if name not in without)


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a run's workers.

    loop_s  seconds of the training loop
    work_s  seconds of the workers, summed; with their reading, unless other threads read ahead
    read_s  seconds of these spent on reading
    busy    fraction of their time that they worked, from 0 to 1
    cpu_s   processor seconds of the process and its workers
    """

    loop_s: float
    work_s: float
    read_s: float
    busy: float
    cpu_s: float

    @classmethod
    def of(cls, done: sp.Stats, plan: sp.Plan, workers: int) -> Load:
        """Return the load of a number of workers."""
        loop_s = done.step.step_s + done.step.wait_s
        read_s = 0.0 if done.reading_ahead else done.read.busy_s
        work_s = done.transform.busy_s + read_s
        # Where Pillow's threads make the rows, native ones wait: so of the loop's time too.
        whole_s = min(work_s + done.transform.wait_s, workers * loop_s)
        elsewhere_s = done.transform.cpu_s if plan.pool.executor.value == "process" else 0.0
        return cls(loop_s, work_s, read_s, work_s / whole_s if whole_s else 0.0, done.cpu_s + elsewhere_s)


def capacities(
    done: sp.Stats, load: Load, *, workers: int, cores: int, step_rows_per_s: float | None
) -> Capacities:
    """The capacity of each place, from counters of one period.

    workers          that made rows
    cores            that the process may use
    step_rows_per_s  what the training loop takes when it waits for nothing, where that was measured
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
