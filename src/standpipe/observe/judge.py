"""Find the place that limits a run, with advice and the rate that it would give.

A place's capacity is its rate if it never waited. A run is as fast as its slowest place; the training step is the last
place. So removing one limit gives at most the capacity of the next. Without a known capacity of another place there is
no forecast. Settings that are in use, or that tuning tried and rejected, are not advised.
"""

from __future__ import annotations

import math
from dataclasses import replace

import standpipe as sp
from standpipe.observe.capacity import LEAST_LOAD, Load, capacities
from standpipe.observe.diagnosis import Bound, Diagnosis, Place
from standpipe.observe.remedies import Advice, Remedies, rate_of
from standpipe.system.thresholds import THRESHOLDS
from standpipe.units import show_seconds

LEAST_STEPS = 3  # before anything is said
LEAST_S = 0.01  # least time for a diagnosis: in less, what threads did before and after weighs as much
LEAST_STEP_S = 0.001  # mean step that can hold up workers; shorter ones are the cost of taking a batch
SLOW_WORKER = 1 / 3  # of the others' rate
LEAST_ROWS = 16  # of each, before workers are compared
ONE_CORE = (
    1.2  # cores that threads have between them which take turns, with what they do outside of the interpreter
)
LEAST_SPEEDUP = 1.05  # times as fast that advice makes a run at least, where that is known
NOTHING_LEFT = "nothing that can be set here is known to make it faster: it takes faster or more processors"

DOING = {
    "order": "finding out which records a batch has",
    "batch": "putting batches together",
    "device": "bringing batches to the device",
    "transform": "making rows",
}


def diagnose(
    done: sp.Stats, plan: sp.Plan, tuning: sp.Tuning, *, cores: int, step_rows_per_s: float | None = None
) -> Diagnosis:
    """Return what limits a run, from counters since its start, or between two snapshots.

    tuning           its workers, and what tuning tried
    cores            processors that the process may use
    step_rows_per_s  measured rate of the training loop when it never waits; default: computed from its own
                     time between batches, which is too high where a device works asynchronously
    """
    return _Judge(done, plan, tuning, cores, step_rows_per_s).diagnosis()


class _Judge:
    """Checks one place after the other, and returns the first one that limits the run."""

    def __init__(
        self, done: sp.Stats, plan: sp.Plan, tuning: sp.Tuning, cores: int, step_rows_per_s: float | None
    ) -> None:
        if plan.options.fleet is not None:
            tuning = replace(tuning, num_workers=plan.options.fleet.workers)
        self._done, self._plan, self._tuning, self._cores = done, plan, tuning, cores
        self._workers = tuning.num_workers
        self._load = Load.of(done, plan, self._workers)
        self._loop_s = self._load.loop_s
        self._step_rows_per_s = step_rows_per_s
        self._able = capacities(
            done, self._load, workers=self._workers, cores=cores, step_rows_per_s=step_rows_per_s
        )
        self._remedies = Remedies(done, plan, tuning, cores, self._load, self._able)

    def diagnosis(self) -> Diagnosis:
        step = self._done.step
        if step.steps < LEAST_STEPS:
            few = "1 step is" if step.steps == 1 else f"{step.steps} steps are"
            return self._say("unknown", "unknown", math.inf, f"{few} too few to tell what limits the run")
        if self._loop_s < LEAST_S:
            short = f"{show_seconds(self._loop_s)} are too short to tell what limits the run"
            return self._say("unknown", "unknown", math.inf, short)
        if (
            self._done.device.busy_s >= THRESHOLDS.busy * self._loop_s
        ):  # the step waits for copies, which may not show as waiting
            return self._copies()
        if step.wait_share <= THRESHOLDS.keeps_up:
            return self._of_steps()
        for look in (
            self._device,
            self._filling,
            self._slow_worker,
            self._busy_workers,
            self._readers,
            self._slots,
        ):
            if (found := look()) is not None:
                return found
        return self._handing_over()

    def _of_steps(self) -> Diagnosis:
        able = self._able.least("step")
        could = math.isfinite(able) and able > self._done.step.rows_per_s
        spare = f"; the loader could make {able:,.0f} rows/s" if could else ""
        return self._say(
            "step",
            "step",
            able,
            f"your steps take {1 - self._done.step.wait_share:.0%} of the time{spare}",
            Advice("nothing of the input limits this run: make the step itself faster"),
        )

    def _device(self) -> Diagnosis | None:
        return self._copies() if self._done.device.cpu_s >= THRESHOLDS.busy * self._done.step.wait_s else None

    def _copies(self) -> Diagnosis:
        device = self._done.device
        share = min(device.busy_s / self._loop_s, 1)
        beside = device.busy_s > 2 * device.cpu_s  # then the step's own time may be the copies'
        upper = self._able.least("device", *(["step"] if beside else []))
        return self._say(
            "input",
            "device",
            min(upper, self._step_rows_per_s or math.inf),
            f"bringing batches to the device takes {share:.0%} of your loop's time",
            self._remedies.fewer_bytes(beside=beside),
            Advice("see that memory is pinned: without that a copy takes the host's time"),
        )

    def _filling(self) -> Diagnosis | None:
        order, batch = self._done.order.busy_s, self._done.batch.busy_s
        if order + batch < THRESHOLDS.busy * self._loop_s:
            return None
        place: Place = "order" if order > batch else "batch"
        collates = place == "batch" and self._plan.batch.collated
        return self._say(
            "input",
            place,
            self._able.least("filling", "cores"),
            f"your loop waits {self._waits}, and {DOING[place]} takes {(order + batch) / self._loop_s:.0%} of a "
            "thread's time",
            *([Advice("give fields one shape, so that none is collated")] if collates else []),
            Advice("make batches larger"),
        )

    def _handing_over(self) -> Diagnosis:
        """Diagnose a run where no place is busy all the time, and the fixed cost of a batch counts."""
        done, step = self._done, self._done.step
        shares: dict[Place, float] = {
            "order": done.order.busy_s,
            "batch": done.batch.busy_s,
            "device": done.device.cpu_s,
            "transform": self._load.work_s / self._workers,
        }
        place = max(shares, key=lambda each: shares[each])
        share, rows = shares[place] / self._loop_s, step.rows // step.steps
        return self._say(
            "input",
            place if share > THRESHOLDS.keeps_up else "unknown",
            self._able.least(),
            f"your loop waits {self._waits}, and no place is busy all that time: {DOING[place]} takes the most, "
            f"{share:.0%}",
            Advice(f"make batches larger than {rows} rows: each costs as much to hand over as a large one"),
        )

    def _slow_worker(self) -> Diagnosis | None:
        kinds: dict[str, list[sp.WorkerStats]] = {}
        for worker in self._done.workers:
            makes = not worker.name.startswith("reading")
            if makes and worker.rows >= LEAST_ROWS and worker.busy_s:
                kinds.setdefault(worker.name.rpartition(" ")[0], []).append(worker)
        workers = max(kinds.values(), key=lambda alike: sum(worker.busy_s for worker in alike), default=[])
        if len(workers) < 2:
            return None
        slow = min(workers, key=lambda worker: worker.rows / worker.busy_s)
        rates = sorted(worker.rows / worker.busy_s for worker in workers if worker is not slow)
        others = rates[len(rates) // 2]
        own = slow.rows / slow.busy_s
        if own > SLOW_WORKER * others or slow.busy_s < THRESHOLDS.busy * max(
            worker.busy_s for worker in workers
        ):
            return None
        return self._say(
            "input",
            "worker",
            min(self._able.least("workers"), others * len(workers)),
            f"your loop waits {self._waits}, and {slow.name} makes {own:,.0f} rows/s while others make {others:,.0f}",
            Advice(
                "make that worker as fast as the others: see what its processor does beside this, and what your code "
                "does by worker number",
                others * len(workers),
            ),
        )

    def _busy_workers(self) -> Diagnosis | None:
        if self._load.busy < THRESHOLDS.busy:
            return None
        if (fleet := self._plan.options.fleet) is not None:
            return self._say(
                "input",
                "transform",
                self._able.least("workers"),
                f"your loop waits {self._waits}, and {self._all_workers} of {fleet.makers} makers are busy",
                Advice("more makers, such as actors= above this number"),
            )
        if self._load.read_s > self._load.work_s / 2:
            made_s = self._done.transform.busy_s
            busy = made_s >= LEAST_LOAD * self._workers * self._loop_s
            return self._reading(rate_of(self._done.rows, made_s) * self._workers if busy else math.inf)
        if self._done.functions:
            return self._python()
        foreign = self._done.foreign / max(self._done.rows, 1)
        if foreign > THRESHOLDS.most:
            who = f"Pillow decodes {min(foreign, 1):.0%} of the rows, which are no usual JPEGs"
            kind = [Advice("store images as JPEG: Pillow decodes the others, and takes longer")]
        elif (starved := self._starved()) is not None:
            return starved
        else:
            who = f"{self._all_workers} {'decodes and transforms' if self._workers == 1 else 'decode and transform'}"
            kind = self._remedies.fast()
        keep = [Advice("keep what was made: .cache(…) serves later epochs from memory")]
        return self._say(
            "input",
            "transform",
            self._able.least("workers", "cores"),
            f"your loop waits {self._waits}, and {who}",
            *self._remedies.more_workers(),
            *(keep if self._plan.could_keep else []),
            *kind,
        )

    def _starved(self) -> Diagnosis | None:
        """Return a diagnosis if native workers lack processors because other programs use them; else None."""
        cpu_s, compute_s = self._load.cpu_s, self._load.work_s - self._load.read_s
        if not 0 < cpu_s < THRESHOLDS.computes * min(compute_s, self._cores * self._loop_s):
            return None
        few = "has" if self._workers == 1 else "have"
        return self._say(
            "input",
            "transform",
            self._able.least("workers", "cores"),
            f"your loop waits {self._waits}, and {self._all_workers} {few} a processor for at most "
            f"{cpu_s / compute_s:.0%} of their work: others have them",
            self._remedies.more_processors(cpu_s),
        )

    @property
    def _all_workers(self) -> str:
        return "its one worker" if self._workers == 1 else f"all {self._workers} workers"

    def _python(self) -> Diagnosis:
        done = self._done
        name, took = max(done.functions.items(), key=lambda each: each[1])
        share = took / max(sum(done.functions.values()), 1e-9)
        why, advice = self._in_python(name)
        if self._plan.pool.executor.value == "inline":
            advice = [Advice('executor="thread" or "process": your own thread makes the rows now')]
        known = (1 - share) * self._load.busy >= LEAST_LOAD
        others = rate_of(done.rows, self._load.work_s * (1 - share)) * self._workers if known else math.inf
        keep = Advice("keep what it makes, if it is the same each time: .cache(…) behind it")
        return self._say(
            "input",
            "transform",
            min(self._able.least("workers", "cores"), others),
            f"your loop waits {self._waits}, and {name} takes {share:.0%} of making rows, {why}",
            *advice,
            *([keep] if self._plan.could_keep else []),
        )

    def _in_python(self, name: str) -> tuple[str, list[Advice]]:
        """Describe how time passes in the function that takes most of it, and what to do."""
        done, program, remedies = self._done, self._plan.samples.program, self._remedies
        cpu, busy = done.transform.cpu_s, max(done.transform.busy_s, 1e-9)
        queued = done.transform.queued_s
        at_once = min(self._workers, self._cores)
        if cpu < THRESHOLDS.computes * busy and queued > THRESHOLDS.most * (busy - cpu):
            advice = remedies.more_processors(max(busy - queued, cpu))
            return "and waits most of that time for a processor, which others have", [advice]
        # Threads that wait for the interpreter do so anywhere: they have one core between them, and no other wait.
        one_core = THRESHOLDS.computes * self._loop_s < cpu <= ONE_CORE * self._loop_s
        if self._plan.pool.executor.value == "thread" and at_once > 1 and one_core:
            rate = min(rate_of(done.rows, cpu) * at_once, self._able.cores)
            why = "in threads, which share one interpreter: only one runs at a time"
            return why, [Advice('executor="process"', rate)]
        if cpu < min(THRESHOLDS.computes * busy, THRESHOLDS.most * at_once * self._loop_s):
            return "and waits most of that time, for a disk or the network", remedies.twice_the_workers()
        if program is not None and name in program.native:
            fast = remedies.fast() if name.startswith("decode") else []
            return "natively", [*remedies.more_workers(), *fast]
        let = Advice("let native transforms do it, or a library that lets go of the interpreter")
        return "and computes", [*remedies.more_workers(), let]

    def _readers(self) -> Diagnosis | None:
        read = self._done.read
        if not self._done.reading_ahead or read.busy_s < THRESHOLDS.busy * self._loop_s:
            return None
        if read.wait_s <= read.busy_s:
            return self._reading(self._able.workers)
        more = f"larger batches, or prefetch= above {self._plan.prefetch}"
        return self._reading(self._able.workers, Advice(f"{more}: most reading threads have nothing to read"))

    def _reading(self, others: float, *first: Advice) -> Diagnosis:
        latency = self._done.read.latency
        cached = self._plan.pipeline.cached is not None
        if latency.count:
            what = (
                f"storage: a file takes {1000 * latency.p50:.1f} ms, one in a hundred more than "
                f"{1000 * latency.p99:.1f}"
            )
            near = "keep the files near: .cache(…) right after the source serves later epochs from memory"
            advice = [
                *([] if cached else [Advice(near)]),
                Advice("many small files cost an open each: pack them, or move them to a local disk"),
                Advice("standpipe bench --io PATH tells what the storage can give"),
            ]
        else:
            what = "what its cache keeps"
            advice = [Advice("Cache(memory=…) with room for more of it: what doesn't fit lies on a disk")]
        return self._say(
            "input",
            "read",
            min(self._able.least("readers", "workers", "cores"), others),
            f"your loop waits {self._waits} for {what}",
            *first,
            *advice,
        )

    def _slots(self) -> Diagnosis | None:
        step_s = self._done.step.step_s
        # A loop that takes batches and does nothing holds up nobody.
        if min(self._done.slots.no_slot_s, step_s) < THRESHOLDS.keeps_up * self._loop_s:
            return None
        if step_s < LEAST_STEP_S * self._done.step.steps:
            return None
        return self._say(
            "input",
            "slots",
            self._able.least(),
            f"your loop waits {self._waits}, and at other times workers wait for it: there is no room to work ahead",
            Advice(
                f"prefetch= above {self._plan.prefetch}, and memory= that has room for it: steps of unequal length "
                "need batches in reserve"
            ),
            Advice("drop batches sooner, if your code holds them"),
        )

    @property
    def _waits(self) -> str:
        return f"{self._done.step.wait_share:.0%} of the time"

    def _say(self, bound: Bound, place: Place, upper: float, what: str, *advice: Advice) -> Diagnosis:
        """Return a ``Diagnosis``, without advice that gives less than 5%.

        upper  rows per second that the next limit allows; forecasts are limited to it
        """
        step = self._done.step
        now = step.rows_per_s
        bounded = [each if each.rate is None else Advice(each.text, min(each.rate, upper)) for each in advice]
        worth = [each for each in bounded if each.rate is None or each.rate >= LEAST_SPEEDUP * now]
        left = () if bound == "unknown" else (NOTHING_LEFT,)
        return Diagnosis(
            bound=bound,
            place=place,
            seconds=self._done.time_s,
            num_workers=self._workers,
            wait_share=step.wait_share,
            rows_per_s=now,
            upper_rows_per_s=max(upper, now) if math.isfinite(upper) else None,
            fixed_rows_per_s=worth[0].rate if worth else None,
            what=what,
            advice=tuple(map(_foretold, worth)) or left,
        )


def _foretold(advice: Advice) -> str:
    return advice.text if advice.rate is None else f"{advice.text}: about {advice.rate:,.0f} rows/s"
