"""What limits a training run: its steps, or its input; and of that which place, what to do, and what it would bring.

A place's capacity is the rate at which it would go if it never waited: rows ÷ seconds of work × threads. The run goes
at the rate of the slowest place, with its steps as the last of them, so taking one limit away brings at most the next
one's capacity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import standpipe as sp

LEAST_STEPS = 5  # before anything is said
KEEPS_UP = 0.05  # share of the time that a loop may wait without being called input-bound
BUSY = 0.7  # share of the time that somebody who limits the others works
SLOW_WORKER = 1 / 3  # of the others' rate
LEAST_ROWS = 16  # of each, before workers are compared
ON_PROCESSOR = 0.7  # of its time, what code is called that computes
HALF = 0.5  # of the cores that it could have, or of the time that it has none
ONE_CORE = (
    1.2  # cores that threads have between them which take turns, with what they do outside of the interpreter
)
WIDTH = 78
MIB = 1 << 20
PARTS = {2: "half", 4: "a quarter", 8: "an eighth"}
FAST = 'decode("fast") where images are more than twice as large as what is made of them'

DOING = {
    "order": "finding out which records a batch has",
    "batch": "putting batches together",
    "device": "bringing batches to the device",
    "transform": "making rows",
}

Bound = Literal["input", "step", "unknown"]
Place = Literal["order", "read", "transform", "batch", "device", "slots", "worker", "step", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits a run.

    bound             ``"input"``, ``"step"``, or ``"unknown"`` while too little was seen
    place             ``"order"``, ``"read"``, ``"transform"``, ``"batch"``, ``"device"``; ``"slots"``, when there is
                      no room to work ahead; ``"worker"``, when one of several is slow; ``"step"``; ``"unknown"``
    wait_share        of the loop's time, from 0 to 1
    rows_per_s        that the loop takes
    upper_rows_per_s  that it would take without this limit, at most; infinite when nothing else was seen to limit it
    fixed_rows_per_s  that it would take after the first advice
    what              says it in a sentence
    advice            what to do, the best first
    """

    bound: Bound
    place: Place
    wait_share: float
    rows_per_s: float
    upper_rows_per_s: float
    fixed_rows_per_s: float
    what: str
    advice: tuple[str, ...]

    @property
    def gain(self) -> float:
        """How many times as fast the run would be without this limit, at most."""
        return self.upper_rows_per_s / self.rows_per_s if self.rows_per_s else 1.0

    def __str__(self) -> str:
        import textwrap  # not for who only asks for numbers

        lines = textwrap.wrap(
            f"{self.bound}-bound: {self.what}" if self.bound != "unknown" else self.what, WIDTH
        )
        if self.bound == "input":
            upper = (
                f"{self.upper_rows_per_s:,.0f}" if math.isfinite(self.upper_rows_per_s) else "any number of"
            )
            lines.append(f"  now {self.rows_per_s:,.0f} rows/s; without that limit up to {upper} rows/s")
        for each in self.advice:
            lines += textwrap.wrap(f"- {each}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)


def verdict(done: sp.Stats, plan: sp.Plan, *, cores: int, step_rows_per_s: float | None = None) -> Verdict:
    """What limits a run, by what was counted: since its start, or between two snapshots.

    cores            that the process may use
    step_rows_per_s  what the training loop takes when it waits for nothing, where that was measured; default: what its
                     own time between batches allows, which is too much where a device works behind its back
    """
    return _Judge(done, plan, cores, step_rows_per_s).verdict()


class _Judge:
    """Looks at one place after the other."""

    def __init__(self, done: sp.Stats, plan: sp.Plan, cores: int, step_rows_per_s: float | None) -> None:
        self._done, self._plan, self._cores = done, plan, cores
        step, transform = done.step, done.transform
        self._loop_s = step.step_s + step.wait_s
        # While nobody reads ahead, those who make rows read.
        self._read_here_s = 0.0 if done.reading_ahead else done.read.busy_s
        self._work_s = transform.busy_s + self._read_here_s
        self._workers = max(transform.threads, 1)
        # Where Pillow's threads make the rows, native ones wait: so of the loop's time too.
        whole_s = min(self._work_s + transform.wait_s, self._workers * self._loop_s)
        self._busy = self._work_s / whole_s if whole_s else 0.0
        self._measured = step_rows_per_s or math.inf
        self._steps = step_rows_per_s or _rate(step.rows, step.step_s)

    def verdict(self) -> Verdict:
        step = self._done.step
        if step.steps < LEAST_STEPS:
            return self._say("unknown", "unknown", math.inf, f"{step.steps} steps are too few to tell", ())
        if (
            self._done.device.busy_s >= BUSY * self._loop_s
        ):  # the step waits for copies, which may not show as waiting
            return self._copies()
        if step.wait_share <= KEEPS_UP:
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

    def _of_steps(self) -> Verdict:
        able = min(self._rate_of_workers(), self._rate_of_readers(), self._rate_of_filling())
        spare = f"; the loader could make {able:,.0f} rows/s" if math.isfinite(able) else ""
        return self._say(
            "step",
            "step",
            self._steps,
            f"your steps take {1 - self._done.step.wait_share:.0%} of the time{spare}",
            ("nothing of the input limits this run: make the step itself faster",),
        )

    def _device(self) -> Verdict | None:
        return self._copies() if self._done.device.cpu_s >= BUSY * self._done.step.wait_s else None

    def _copies(self) -> Verdict:
        device = self._done.device
        share = min(device.busy_s / self._loop_s, 1)
        beside = device.busy_s > 2 * device.cpu_s  # then the step's own time may be the copies'
        advice, times = self._fewer_bytes()
        return self._say(
            "input",
            "device",
            self._upper(steps=not beside),
            f"bringing batches to the device takes {share:.0%} of your loop's time",
            (advice, "see that memory is pinned: without that a copy takes the host's time"),
            times * _rate(device.rows, device.busy_s) if beside and times > 1 else None,
        )

    def _fewer_bytes(self) -> tuple[str, int]:
        """What would make batches smaller, and how many times."""
        name, spec = max(self._plan.fields.items(), key=lambda field: field[1].row_bytes)
        size = spec.dtype.itemsize
        if name == "image" and size > 1:
            less = f"{PARTS[size]} of the bytes of {spec.dtype.name}"
            return f"let batches be uint8 and normalise them on the device: {less}", size
        if size > 2 and spec.dtype.kind == "f":
            return f"let {name} be float16: {PARTS[size // 2]} of the bytes of {spec.dtype.name}", size // 2
        device = self._done.device
        speed = f"{_rate(device.rows, device.busy_s) * spec.row_bytes / MIB:,.0f} MiB/s"
        return (
            f"{name} is {spec.dtype.name}, and comes at {speed}: see what the device's link can do, and who shares it "
            "(nvidia-smi topo -m); else smaller samples",
            1,
        )

    def _filling(self) -> Verdict | None:
        order, batch = self._done.order.busy_s, self._done.batch.busy_s
        if order + batch < BUSY * self._loop_s:
            return None
        place: Place = "order" if order > batch else "batch"
        advice = {
            "order": "use an index: standpipe index PATH",
            "batch": "give fields one shape, so that none is collated",
        }
        return self._say(
            "input",
            place,
            self._upper(filling=False),
            f"your loop waits {self._waits}, and {DOING[place]} takes {(order + batch) / self._loop_s:.0%} of a "
            "thread's time",
            (advice[place], "make batches larger"),
        )

    def _handing_over(self) -> Verdict:
        """Nobody is busy all the time, and what a batch costs however few rows it has is what counts."""
        done, step = self._done, self._done.step
        shares: dict[Place, float] = {
            "order": done.order.busy_s,
            "batch": done.batch.busy_s,
            "device": done.device.cpu_s,
            "transform": self._work_s / self._workers,
        }
        place = max(shares, key=lambda each: shares[each])
        share, rows = shares[place] / self._loop_s, step.rows // step.steps
        return self._say(
            "input",
            place if share > KEEPS_UP else "unknown",
            self._upper(),
            f"your loop waits {self._waits}, and no place is busy all that time: {DOING[place]} takes the most, "
            f"{share:.0%}",
            (f"make batches larger than {rows} rows: each costs as much to hand over as a large one",),
        )

    def _slow_worker(self) -> Verdict | None:
        kinds: dict[str, list[sp.WorkerStats]] = {}
        for worker in self._done.workers:
            makes = not worker.name.startswith(("reading", "GPU"))
            if makes and worker.rows >= LEAST_ROWS and worker.busy_s:
                kinds.setdefault(worker.name.rpartition(" ")[0], []).append(worker)
        workers = max(kinds.values(), key=lambda alike: sum(worker.busy_s for worker in alike), default=[])
        if len(workers) < 2:
            return None
        slow = min(workers, key=lambda worker: worker.rows / worker.busy_s)
        rates = sorted(worker.rows / worker.busy_s for worker in workers if worker is not slow)
        others = rates[len(rates) // 2]
        own = slow.rows / slow.busy_s
        if own > SLOW_WORKER * others or slow.busy_s < BUSY * max(worker.busy_s for worker in workers):
            return None
        return self._say(
            "input",
            "worker",
            min(self._upper(workers=False), others * len(workers)),
            f"your loop waits {self._waits}, and {slow.name} makes {own:,.0f} rows/s while others make {others:,.0f}",
            (
                "see what that worker's processor does beside this, and what your code does by worker number",
                "let others work on fewer cores: workers= less than there are",
            ),
        )

    def _busy_workers(self) -> Verdict | None:
        if self._busy < BUSY:
            return None
        if self._read_here_s > self._work_s / 2:
            return self._reading(_rate(self._done.rows, self._done.transform.busy_s) * self._workers)
        upper = self._upper(workers=False)
        if self._done.functions:
            return self._python()
        more, rate = self._more_workers()
        advice = [*more, "keep what was made: .cache(…) serves later epochs from memory"]
        foreign = self._done.foreign / max(self._done.rows, 1)
        if foreign > 0.5:
            advice.append("store images as JPEG: Pillow decodes the others, and takes longer")
        else:
            advice.append(FAST)
        who = f"all {self._workers} workers decode and transform"
        if foreign > 0.5:
            who = f"Pillow decodes {min(foreign, 1):.0%} of the rows, which are no JPEGs"
        what = f"your loop waits {self._waits}, and {who}"
        return self._say("input", "transform", upper, what, tuple(advice), rate)

    def _python(self) -> Verdict:
        done = self._done
        without = self._upper(workers=False)
        name, took = max(done.functions.items(), key=lambda each: each[1])
        share = took / max(sum(done.functions.values()), 1e-9)
        why, advice, rate = self._in_python(name)
        if self._plan.executor.value == "inline":
            advice, rate = ['executor="thread" or "process": your own thread makes the rows now'], None
        return self._say(
            "input",
            "transform",
            min(without, _rate(done.rows, self._work_s * (1 - share)) * self._workers),
            f"your loop waits {self._waits}, and {name} takes {share:.0%} of making rows, {why}",
            (*advice, "keep what it makes, if it is the same each time: .cache(…) behind it"),
            rate,
        )

    def _in_python(self, name: str) -> tuple[str, list[str], float | None]:
        """How the time passes of which this function takes most, what to do, and the rate of workers after that."""
        done, program = self._done, self._plan.program
        cpu, busy = done.transform.cpu_s, max(done.transform.busy_s, 1e-9)
        queued = done.transform.queued_s
        at_once = min(self._workers, self._cores)
        if cpu < ON_PROCESSOR * busy and queued > HALF * (busy - cpu):
            rate = _rate(done.rows, max(busy - queued, cpu)) * at_once
            advice = "cores of its own for this run, or less of what else runs there"
            if self._workers > self._cores:
                advice = f"workers={self._cores}: more than there are cores make nothing faster"
            return "and waits most of that time for a processor, which others have", [advice], rate
        # Threads that wait for the interpreter do so anywhere: they have one core between them, and no other wait.
        one_core = ON_PROCESSOR * self._loop_s < cpu <= ONE_CORE * self._loop_s
        if self._plan.executor.value == "thread" and at_once > 1 and one_core:
            # What the process does beside making rows needs a processor as before.
            rate = _rate(done.rows, max(cpu / at_once, done.cpu_s / self._cores))
            advice = f'executor="process": about {self._at_most(rate)} rows/s'
            return "in threads, which share one interpreter: only one runs at a time", [advice], rate
        if cpu < min(ON_PROCESSOR * busy, HALF * at_once * self._loop_s):
            rate = 2 * self._rate_of_workers()
            advice = f"workers={2 * self._workers}: about {self._at_most(rate)} rows/s; while one waits, others go on"
            return "and waits most of that time, for a disk or the network", [advice], rate
        more, rate_of_more = self._more_workers()
        if program is not None and name in program.native:
            return "natively", [*more, *([FAST] if name.startswith("decode") else [])], rate_of_more
        let = "let native transforms do it, or a library that lets go of the interpreter"
        return "and computes", [*more, let], rate_of_more

    def _more_workers(self) -> tuple[list[str], float | None]:
        """The advice to work on all cores, where there are more, and the rate of workers then."""
        if self._workers >= self._cores:
            return [], None
        rate = self._rate_of_workers() * self._cores / self._workers
        return [f"workers={self._cores}: about {self._at_most(rate)} rows/s on all cores"], rate

    def _at_most(self, rate: float) -> str:
        """A rate of workers, as far as nothing else limits it."""
        return f"{min(rate, self._upper(workers=False)):,.0f}"

    def _readers(self) -> Verdict | None:
        read = self._done.read
        if not self._done.reading_ahead or read.busy_s < BUSY * self._loop_s:
            return None
        idle = read.wait_s > read.busy_s
        at_once = (
            f"larger batches, or depth= above {self._plan.depth}: most reading threads have nothing to read"
        )
        return self._reading(self._rate_of_workers(), (at_once,) if idle else ())

    def _reading(self, others: float, first: tuple[str, ...] = ()) -> Verdict:
        latency = self._done.read.latency
        if latency.count:
            what = (
                f"storage: a file takes {1000 * latency.p50:.1f} ms, one in a hundred more than "
                f"{1000 * latency.p99:.1f}"
            )
            advice = [
                "keep the files near: .cache(…) right after the source serves later epochs from memory",
                "many small files cost an open each: pack them, or move them to a local disk",
                "standpipe bench --io PATH tells what the storage can give",
            ]
        else:
            what = "what its cache keeps"
            advice = ["Cache(memory=…) with room for more of it: what doesn't fit lies on a disk"]
        return self._say(
            "input",
            "read",
            min(self._steps, others, self._rate_of_filling()),
            f"your loop waits {self._waits} for {what}",
            (*first, *advice),
        )

    def _slots(self) -> Verdict | None:
        slots = self._done.slots
        # A loop that takes batches and does nothing holds up nobody.
        if min(slots.no_slot_s, self._done.step.step_s) < KEEPS_UP * self._loop_s:
            return None
        return self._say(
            "input",
            "slots",
            self._upper(),
            f"your loop waits {self._waits}, and at other times workers wait for it: there is no room to work ahead",
            (
                f"depth= above {self._plan.depth}, and memory= that has room for it: steps of unequal length need "
                "batches in reserve",
                "drop batches sooner, if your code holds them",
            ),
        )

    @property
    def _waits(self) -> str:
        return f"{self._done.step.wait_share:.0%} of the time"

    def _rate_of_workers(self) -> float:
        return _rate(self._done.rows, self._work_s) * self._workers

    def _rate_of_readers(self) -> float:
        read = self._done.read
        return _rate(self._done.rows, read.busy_s) * read.threads if self._done.reading_ahead else math.inf

    def _rate_of_filling(self) -> float:
        return _rate(self._done.order.rows, self._done.order.busy_s + self._done.batch.busy_s)

    def _upper(self, *, workers: bool = True, filling: bool = True, steps: bool = True) -> float:
        """The rate that is left when some place limits nothing any more."""
        return min(
            self._steps if steps else self._measured,
            self._rate_of_readers(),
            self._rate_of_workers() if workers else math.inf,
            self._rate_of_filling() if filling else math.inf,
        )

    def _say(
        self,
        bound: Bound,
        place: Place,
        upper: float,
        what: str,
        advice: tuple[str, ...],
        fixed: float | None = None,
    ) -> Verdict:
        step = self._done.step
        now = step.rows_per_s
        upper = max(upper, now)
        fixed = min(upper, max(fixed or upper, now))
        return Verdict(bound, place, step.wait_share, now, upper, fixed, what, advice)


def _rate(rows: int, seconds: float) -> float:
    return rows / seconds if seconds else math.inf
