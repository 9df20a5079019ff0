"""Advice on settings that could make a run faster, with the rate that each would bring."""

from __future__ import annotations

import math
from typing import NamedTuple

import standpipe as sp
from standpipe.observe.capacity import Capacities, Load
from standpipe.system.thresholds import THRESHOLDS

MIB = 1 << 20
PARTS = {2: "half", 4: "a quarter", 8: "an eighth"}


class Advice(NamedTuple):
    """One piece of advice.

    rate  forecast rows per second if nothing else limits the run; None if it isn't known
    """

    text: str
    rate: float | None = None


class Remedies:
    """Advice for one run, from the arguments of ``diagnose``.

    load  the work of the run's workers
    able  the capacity of each place
    """

    def __init__(
        self, done: sp.Stats, plan: sp.Plan, tuning: sp.Tuning, cores: int, load: Load, able: Capacities
    ) -> None:
        self._done, self._plan, self._tuning, self._cores = done, plan, tuning, cores
        self._load, self._able, self._workers = load, able, tuning.num_workers

    def fewer_bytes(self, *, beside: bool) -> Advice:
        """Return the advice to make batches smaller, with a forecast where copies go on beside the host."""
        name, spec = max(self._plan.fields.items(), key=lambda field: field[1].row_bytes)
        size = spec.dtype.itemsize
        if name == "image" and size > 1:
            less = f"{PARTS[size]} of the bytes of {spec.dtype.name}"
            return Advice(
                f"let batches be uint8 and normalise them on the device, {less}", self._copied(size, beside)
            )
        if size > 2 and spec.dtype.kind == "f":
            less = f"{PARTS[size // 2]} of the bytes of {spec.dtype.name}"
            return Advice(f"let {name} be float16, {less}", self._copied(size // 2, beside))
        device = self._done.device
        speed = f"{rate_of(device.rows, device.busy_s) * spec.row_bytes / MIB:,.0f} MiB/s"
        return Advice(
            f"{name} is {spec.dtype.name}, and comes at {speed}: see what the device's link can do, and who shares it "
            "(nvidia-smi topo -m); else smaller samples"
        )

    def _copied(self, times: int, beside: bool) -> float | None:
        """Return the rate if copies had ``times`` fewer bytes."""
        return times * self._able.device if beside and times > 1 else None

    def more_processors(self, cpu_s: float) -> Advice:
        """Return the advice for a run that lacks processors, because other programs use them.

        cpu_s  processor seconds that making the rows takes
        """
        if self._workers > self._cores:
            return Advice(f"num_workers={self._cores}: more than there are cores make nothing faster")
        rate = rate_of(self._done.rows, cpu_s) * self._workers
        return Advice("cores of its own for this run, or less of what else runs there", rate)

    def fast(self) -> list[Advice]:
        """The advice to decode fewer pixels, where images are decoded, and not so already."""
        fast = Advice('decode("fast") where images are more than twice as large as what is made of them')
        return [fast] if self._plan.decodes_exactly else []

    def twice_the_workers(self) -> list[Advice]:
        """Return the advice to double the workers, so that others work while some wait; empty if useless."""
        number = 2 * self._workers
        if not self.is_news(number):
            return []
        rate = min(2 * self._able.workers, self._able.least("workers"))
        return [
            Advice(f"num_workers={number} instead of {self._workers}: while one waits, others go on", rate)
        ]

    def more_workers(self) -> list[Advice]:
        """Return the advice to use a worker per core, with a forecast if workers get the processors they need."""
        if self._workers >= self._cores or self._plan.tunes_workers or not self.is_news(self._cores):
            return []
        alone = self._load.cpu_s == 0 or self._load.cpu_s >= THRESHOLDS.computes * self._load.work_s
        rate = min(self._able.workers * self._cores / self._workers, self._able.least("workers"))
        return [
            Advice(
                f"num_workers={self._cores} instead of {self._workers}, on all cores", rate if alone else None
            )
        ]

    def is_news(self, number: int) -> bool:
        """Return whether more workers are worth a try: tuning won't go there, and didn't reject it."""
        plan, tuning = self._plan, self._tuning
        rejected = any(not trial.kept and trial.before < trial.tried <= number for trial in tuning.trials)
        tuned = plan.tunes_workers and number <= tuning.most_workers
        return plan.takes_workers and not rejected and not tuned


def rate_of(rows: int, seconds: float) -> float:
    """Return rows per second; infinite if ``seconds`` is 0."""
    return rows / seconds if seconds else math.inf
