"""Workers outside the trainer: the filling thread asks makers for batches, and copies their answers into slots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from standpipe import _native
from standpipe.contracts import OpenFleet
from standpipe.engine.native.workers import NativeWorkers
from standpipe.engine.remote.agreement import difference
from standpipe.engine.remote.copying import copying
from standpipe.engine.remote.inbox import Answered, Inbox, Lost, Met, Report
from standpipe.engine.remote.jobs import TASKS_PER_JOB, RemoteJob, died, named, refusal
from standpipe.engine.remote.local import Local
from standpipe.engine.remote.messages import Answer
from standpipe.engine.remote.pulling import Pulling
from standpipe.engine.remote.tally import Tally
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.engine.workers import Assignment, Failure, Substitutes, Workers, WorkersMemory
from standpipe.errors import FIRST_KEY, PlanError, StalledError, WorkerDiedError
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Stats
from standpipe.system.logs import logger

ALONE_S = 2.0  # seconds without a maker after which the fallback begins; Ray restarts an actor in less
MOST_DEATHS = 5  # of makers during one batch
MOST_ERRORS = 3  # of makers that couldn't work on one batch


class RemoteWorkers(Workers):
    """The makers of a fleet, as workers of a run.

    All methods but ``at_work``, ``stats`` and ``memory`` are called by the filling thread.

    ring   the slots, which local workers fill too
    local  the trainer's own workers, if no maker came in time at the start; else None
    """

    def __init__(
        self,
        plan: Plan,
        fleet: OpenFleet,
        inbox: Inbox,
        bell: _native.Bell,
        watch: Watch,
        ring: _native.SlotRing,
        local: Workers | None = None,
    ) -> None:
        assert plan.options.fleet is not None
        super().__init__(bell)
        self._plan, self._fleet, self._inbox, self._watch = plan, fleet, inbox, watch
        self.employed = plan.pool.workers  # a fleet isn't tuned
        self._fallback = plan.options.fleet.fallback
        self._copiers = NativeWorkers(copying(plan), bell, watch.end)
        self._local = Local(plan, bell, watch, ring, local)
        loaders = plan.steps.world_size if plan.options.fleet.shared else 1
        self._pulling = Pulling(window=plan.slots * TASKS_PER_JOB, loaders=loaders, loader=plan.steps.rank)
        self._jobs: dict[int, RemoteJob] = {}  # jobs that await an answer, by the number of their task
        self._copied: list[RemoteJob] = []  # jobs whose answer is being copied
        self._age = 0
        self._names: dict[int, str] = {}
        self._poked: dict[int, tuple[float, float]] = {}  # a maker's last sign of life, and the last poke
        self._restarted: set[int] = set()  # makers that were started again, and haven't joined since
        # The time since when no maker is there.
        self._alone_s: float | None = time.monotonic() - (0.0 if local is None else ALONE_S)
        self._reason = "none of them has started yet"
        self._tally = Tally()

    def start(self) -> None:
        """Start the threads that copy, and local workers that exist already."""
        self._copiers.start()
        self._local.workers.start()

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> RemoteJob:
        """Return a job that asks a maker for the whole batch. Raises ``PlanError`` for records that have no number."""
        if len(assignment.records.index) and int(assignment.records.index.max()) >= FIRST_KEY:
            raise PlanError(
                "keys of a sampler aren't numbers of records, and a fleet makes batches by number. Leave fleet= out"
            )
        self._age += 1
        return RemoteJob(assignment, self._age)

    def submit(self, job: RemoteJob, *, first: bool = False) -> None:
        """Ask for a batch. Rows that are left out come with ``exchange``, and all others with them."""
        if job.assignment.without:
            job.over = True
            self._bell.ring()
            return
        self._want(job)

    def exchange(self, job: RemoteJob, new: Substitutes, ring: _native.SlotRing) -> None:
        """Ask for the whole batch again, with other records in some rows."""
        job.exchange(new)
        if job.local is not None:
            self._local.exchange(job)
        else:
            self._want(job)

    def cancel(self, job: RemoteJob) -> None:
        """Forget a batch."""
        if job.local is not None:
            self._local.workers.cancel(job.local)
        elif job.copied is None:
            self._forget(job)
            job.over = True
        self._bell.ring()

    def wait(self, seen: int, patience_s: float | None = None) -> int:
        """Send tasks and take answers until the bell has rung more than ``seen`` times; return how often it has rung.

        patience_s  most seconds to wait; None: no limit
        """
        ends = None if patience_s is None else time.monotonic() + patience_s
        while True:
            if self._look():
                self._bell.ring()
                return self._bell.wait_for(seen, 0)
            dues = [due for due in (ends, self._due_s()) if due is not None]
            left_s = max(min(dues) - time.monotonic(), 0) if dues else None
            rung = self._local.workers.wait(seen, left_s)
            if rung != seen or (ends is not None and time.monotonic() >= ends):
                return rung

    def settle(self) -> None:
        """Wait for answers of local workers; makers' answers aren't needed any more."""
        self._local.workers.settle()

    def take_lost(self) -> Sequence[tuple[RemoteJob, Failure]]:
        """Return the jobs that local workers gave up. Makers answer with such a failure themselves."""
        self._copiers.take_lost()  # it ends the run if a thread has ended
        return self._local.take_lost()

    def stats(self) -> Stats:
        """Return what all makers and local workers have counted for this loader."""
        return self._tally.stats(self._local.workers.stats())

    def memory(self) -> WorkersMemory:
        """Return the memory of local workers, or of the threads that copy."""
        return (self._local.workers if self._local.exist else self._copiers).memory()

    def at_work(self) -> Sequence[Work]:
        """Return the work of local workers, and batches that are late or that no maker can make."""
        return [*self._local.workers.at_work(), *self._late()]

    def where(self, work: Work) -> str:
        """Return an empty text: a maker logs its own stacks."""
        return ""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the run if no maker has come for too long. A maker that is there ends its slow samples itself."""
        if self._alone_s is None:
            return False
        self._watch.end(error)
        return True

    def close(self, patience_s: float) -> bool:
        """Forget all tasks, and end the makers that were started for this loader, and all threads."""
        self._fleet.close()
        ended = self._copiers.close(patience_s)
        return self._local.close(patience_s) and ended

    # Tasks and answers.

    def _want(self, job: RemoteJob) -> None:
        self._jobs[job.number] = job
        self._pulling.want(job.number)
        self._send()

    def _forget(self, job: RemoteJob) -> None:
        if self._jobs.pop(job.number, None) is not None:
            self._pulling.drop(job.number)

    def _send(self) -> None:
        for number, maker in self._pulling.asks(time.monotonic()):
            self._fleet.ask(maker, number, self._jobs[number].task)

    def _look(self) -> bool:
        """Take all reports, and do what is due. Return True if a job is done by that."""
        done = [self._take(report) for report in self._inbox.take()]
        for job in self._copied:
            job.settle()
        self._copied = [job for job in self._copied if not job.done]
        self._local.go_on()
        self._send()
        self._poke()
        return any(done) | self._fall_back()

    def _take(self, report: Report) -> bool:
        """Take a report. Return True if a job is done by that."""
        match report:
            case Answered(answer=Exception() as error):
                return self._failed(report, error)
            case Answered(answer=Answer() as answer):
                return self._accept(report, answer)
            case Lost():
                return self._lost(report)
            case Met():
                self._met(report)
            case _:  # a sign of life
                self._poked[report.maker] = time.monotonic(), self._poked.get(report.maker, (0.0, 0.0))[1]
        return False

    def _met(self, report: Met) -> None:
        facts = report.facts
        error = facts if isinstance(facts, Exception) else difference(self._plan, report.name, facts)
        if error is None:
            self._names[report.maker] = report.name
            self._restarted.discard(report.maker)
            self._alone_s = None
            self._poked[report.maker] = time.monotonic(), 0.0
            self._pulling.join(report.maker)
        elif not (self._pulling.answers or self._pulling.makers or self._local.exist):
            self._watch.end(refusal(error))
        else:
            self._reason = str(error)
            logger().warning("%s. The other makers go on without it", error)

    def _lost(self, report: Lost) -> bool:
        """Ask other makers for the batches of one that has ended. Return True if a batch fails by that."""
        name = self._names.get(report.maker, f"maker {report.maker}")
        self._reason = f"{name}: {report.reason}"
        lost = self._pulling.leave(report.maker)
        if not self._pulling.makers and self._alone_s is None:
            self._alone_s = time.monotonic()
        self._tally.deaths += 1
        if not lost:
            return False
        job = self._jobs[lost[0]]  # the one that it was making
        job.deaths += 1
        if job.deaths < MOST_DEATHS:
            return False
        self._forget(job)
        job.answer, job.over = replace(job.answer, failures=(died(job, [name]),)), True
        return True

    def _failed(self, report: Answered, error: Exception) -> bool:
        """Ask another maker for a batch on which one couldn't work. Return True if the batch fails by that."""
        job = self._jobs.get(report.number)
        if job is None:
            self._pulling.answer(report.maker, report.number, time.monotonic())
            return False
        if report.maker in self._restarted:
            return False  # all its tasks failed together, and are other makers' now
        job.errors += 1
        if isinstance(error, PlanError) or job.errors >= MOST_ERRORS:
            self._forget(job)
            job.fail(error)
            return True
        self._restart(report.maker, f"is started again after {error!r}")
        return False

    def _restart(self, maker: int, why: str) -> None:
        logger().warning("%s %s", self._names.get(maker), why)
        self._restarted.add(maker)
        self._fleet.restart(maker)

    def _accept(self, report: Answered, answer: Answer) -> bool:
        """Begin to copy an answer into its slot, if it is the first one. Return True if nothing is to be copied."""
        self._poked[report.maker] = time.monotonic(), 0.0
        name = self._names.get(report.maker, f"maker {report.maker}")
        self._tally.add(name, answer.counts)
        for slow in answer.slow:
            self._watch.note(replace(slow, worker=f"{slow.worker} of {name}"))
        if not self._pulling.answer(report.maker, report.number, time.monotonic()):
            return False
        job = self._jobs.pop(report.number)
        job.answer = replace(answer, failures=tuple(named(each, name) for each in answer.failures))
        if job.answer.failures or not job.answer.arrays:
            job.over = True
            return True
        job.copied = self._copiers.begin(replace(job.assignment, records=job.records()), self._local.ring)
        self._copiers.submit(job.copied)
        self._copied.append(job)
        return False

    # What takes too long.

    def _due_s(self) -> float | None:
        """Return the time of the next look, in seconds of ``time.monotonic()``; None: only reports matter."""
        now = time.monotonic()
        dues = [] if (due := self._pulling.due_s(now)) is None else [due]
        if self._alone_s is not None and self._jobs and self._fallback != "wait":
            dues.append(self._alone_s + ALONE_S)
        if self._plan.options.stall_timeout_s is not None:
            slow_s = self._plan.options.slow_sample_s
            begun = {maker: self._pulling.since_s(maker) for maker in self._pulling.makers}
            dues += [
                max(since, *self._poked[maker]) + slow_s
                for maker, since in begun.items()
                if since is not None
            ]
        return min(dues, default=None)

    def _poke(self) -> None:
        """Ask makers that are slow for a sign of life, and start those again that don't give any."""
        slow_s, stall_s = self._plan.options.slow_sample_s, self._plan.options.stall_timeout_s
        if stall_s is None:
            return
        now = time.monotonic()
        for maker in self._pulling.makers:
            since = self._pulling.since_s(maker)
            alive_s, poked_s = self._poked[maker]
            if since is None or max(since, alive_s, poked_s) + slow_s > now:
                continue
            silent_s = stall_s / 2  # the other half is left to make the batch, which fails after all of it
            if max(since, alive_s) + silent_s <= now:
                self._poked[maker] = now, now
                self._restart(maker, f"gave no sign of life for {silent_s:g} s, and is started again")
            else:
                self._poked[maker] = alive_s, now
                self._fleet.poke(maker)

    def _fall_back(self) -> bool:
        """Do what ``fallback`` says, if no maker has been there for a while. Return True if jobs are done by that."""
        if self._alone_s is None or time.monotonic() < self._alone_s + ALONE_S or not self._jobs:
            return False
        if self._fallback == "wait":
            return False
        jobs = [self._jobs[number] for number in self._pulling.wanted]
        for job in jobs:
            self._forget(job)
            if self._fallback == "raise":
                job.fail(WorkerDiedError(f"no maker of batches is left; {self._reason}"))
            else:
                self._local.make(job)
        return self._fallback == "raise"

    def _late(self) -> Sequence[Work]:
        """Return a work for the first batch if no maker is there, for the watchdog."""
        jobs, alone_s = tuple(self._jobs.values()), self._alone_s
        if not jobs or alone_s is None or self._fallback != "wait":
            return ()
        doing = f"waiting for a maker of batches: {self._reason}"
        least_s = self._plan.options.start_timeout_s or 0.0
        return [Work((self, alone_s), jobs[0].what, doing, "no maker", alone_s, self, least_s=least_s)]
