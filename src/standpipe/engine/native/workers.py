"""Workers that are native threads. Python threads decode the images that native code can't, with Pillow."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from standpipe import _native
from standpipe.contracts import RaggedRows, Records
from standpipe.engine.cache import CacheMaintainer, store_counters
from standpipe.engine.native.jobs import NativeJob
from standpipe.engine.python.value_checks import Checks
from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.watchdog.watch import Overdue, Work
from standpipe.engine.watchdog.where import describe_kernel_state, stack_of_thread
from standpipe.engine.workers import (
    Assignment,
    Failure,
    Substitutes,
    Use,
    Workers,
    WorkersMemory,
    has_ended,
    name_of,
    start_kept,
    too_long,
)
from standpipe.errors import StalledError, WorkerDiedError, record_name
from standpipe.order import Cursor
from standpipe.plan.parts import SamplePlan
from standpipe.plan.plan import Plan
from standpipe.read import ReadAhead, read_policy, read_threads
from standpipe.spec import AnyArray, Int32Array, Int64Array
from standpipe.stats.counters import PlaceStats, Stats, WorkerStats, with_counts
from standpipe.stats.latency import Latency
from standpipe.transform import as_bytes
from standpipe.transform.decoders.foreign import decode_input

if TYPE_CHECKING:
    from standpipe.cache.sets.opened import OpenSet

COUNTED = [name for name in Stats.__slots__ if hasattr(_native.PoolStats, name)]
DOING = {
    "reading": "reading its file",
    "waiting": "waiting for memory that other samples use, or for a cache's disk",
    "decoding": "decoding and transforming it",
}


class Programs(NamedTuple):
    """The native forms of a segment's kernels.

    first     reads records, and writes the slot unless there is a composer; None where rows are only copied
    composer  makes rows of several images of ``first``; None: a row is made of one
    last      the composer's program that writes the slot
    """

    first: _native.Program | None
    composer: _native.Composer | None = None
    last: _native.Program | None = None


def _compiled(samples: SamplePlan, plan: Plan) -> Programs:
    how = plan.pipeline.decoding, samples.simd
    if samples.composed is not None:
        return Programs(*samples.composed.compile(*how, last=samples.kernel))
    return Programs(None if samples.kernel is None else samples.kernel.compile(*how))


@dataclass(frozen=True, slots=True)
class NativeThreadRow:
    """The row that a native thread is making, to recognise later if the thread still makes the same row.

    thread      the thread's number
    rows_begun  how many rows the thread has begun, this one included
    row         the native description of the row
    """

    thread: int
    rows_begun: int
    row: _native.AtWork = field(compare=False)


class NativeWorkers(Workers):
    """The native pool, and 1 to ``num_workers`` Python threads that decode with Pillow what native code can't.

    ends  called with the error if a thread ends because of one
    kept  the open cache set; None without a cache
    """

    def __init__(self, plan: Plan, bell: _native.Bell, ends: Ends, kept: OpenSet | None = None) -> None:
        super().__init__(bell)
        self._plan, self._ends = plan, ends
        self._overdue = Overdue(bell)
        # Programs for each segment; all are None where rows are only copied.
        parts = [each.samples for each in plan.segments] or [plan.samples]
        self._programs = [_compiled(part, plan) for part in parts]
        self._reads = () if parts[0].kernel is None else parts[0].kernel.reads
        most = [each.composed.frame_bytes for each in parts if each.composed is not None]
        self._frames = _native.FrameStore(max(most, default=0))
        ahead = ReadAhead(plan.memory.forecast.read_ahead, read_threads(plan.pool.workers))
        self._pool = _native.Pool(
            plan.pool.workers,
            # Each has a file open: a quarter of the limit is theirs, and another one that of files that stay open.
            min(ahead.threads, _native.most_kept_open()),
            plan.memory.forecast.read_ahead,
            plan.memory.forecast.side,
            read_policy(plan.options.reads),
            bell,
        )
        self._maintainer: CacheMaintainer | None = None
        self._before: _native.Program | None = None
        if plan.cache is not None and kept is not None:
            self._maintainer = CacheMaintainer(plan.cache, kept)
        # The plan splits the work at the cache. So rows are made in two parts, even if the cache can't be opened.
        if plan.cache is not None and (before := plan.cache.before) is not None:
            self._before = before.compile(plan.pipeline.decoding, plan.samples.simd)
        self._checks = Checks(plan.pipeline.finite)
        # Jobs in flight. The list is replaced and never changed, as the watchdog's thread reads it.
        self._jobs: list[NativeJob] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.employed = plan.pool.workers

    def employ(self, number: int) -> None:
        """Set how many decoding threads work in parallel, at most the plan's number of workers."""
        self.employed = min(number, self._plan.pool.workers)
        self._pool.employ(self.employed)

    def start(self) -> None:
        """Start the Python threads: for Pillow and for the cache. The native threads already run."""
        if self._reads:
            self._start_thread()
        if self._maintainer is not None:
            self._maintainer.start(self._ends)

    def begin(
        self, assignment: Assignment, ring: _native.SlotRing, attempts: Int64Array | None = None
    ) -> NativeJob:
        """Return a job that describes from where the pool gets each field of each row. Write small values at once.

        attempts  (rows,) of the records; None: they are the first ones
        """
        if self._maintainer is not None:
            self._maintainer.enter(assignment.at.epoch)
        for name, values in assignment.records.plain.items():
            assignment.views[name][...] = values
        rows, records, positions = assignment.rows_to_make, assignment.records, assignment.positions
        some = rows if assignment.without else None
        if some is not None:
            records, positions = records.take(some), positions[some]
            attempts = None if attempts is None else attempts[some]
        native = None
        if len(rows):
            native = self._native_job(assignment, ring, records, positions, some, attempts)
        lists = {name: texts.texts() for name, texts in assignment.records.texts.items()}
        return NativeJob(native, self._reads, records, rows, self._checks, self._values(assignment), lists)

    def composer(self, at: Cursor) -> _native.Composer:
        """Return what makes rows of several images in the step at a cursor."""
        composer = self._programs[self._plan.segment(at)].composer
        assert composer is not None
        return composer

    def compose(
        self,
        job: NativeJob,
        assignment: Assignment,
        ring: _native.SlotRing,
        frames: list[_native.ImageFrame],
        numbers: Int32Array,
        pasted: tuple[RaggedRows, Int64Array] | None = None,
    ) -> None:
        """Make the rows of several images, before all queued jobs, once these images are made.

        numbers  of the images in ``frames``, of each row; -1: it isn't used
        pasted   the shapes that are pasted, and the end of those of each picture; None without any
        """
        plan, at = self._plan, assignment.at
        programs, kernel = self._programs[plan.segment(at)], plan.samples_at(at).kernel
        assert kernel is not None
        assert programs.composer is not None
        job.native = _native.Job(
            ring=ring,
            slot=assignment.slot,
            positions=assignment.positions,
            program=programs.last,
            outputs=kernel.places(plan.layout_at(at).offsets),
            seed=plan.pipeline.seed,
            epoch=at.epoch,
        )
        job.native.compose(programs.composer, frames, numbers)
        if pasted is not None:
            shapes, ends = pasted
            job.native.paste(np.ascontiguousarray(shapes.values, np.float32), shapes.ends, ends)
        job.records, job.rows = assignment.records, np.arange(len(assignment.positions))
        self.submit(job, first=True)

    def exchange(self, job: NativeJob, new: Substitutes, ring: _native.SlotRing) -> None:
        """Make the rows in ``new.rows`` again from other records, before all queued jobs."""
        assignment = new.assignment
        for name, values in new.records.plain.items():
            assignment.views[name][new.rows] = values
        for name, texts in new.records.texts.items():
            for row, text in zip(new.rows.tolist(), texts.texts(), strict=True):
                job.lists[name][row] = text
        positions = assignment.positions[new.rows]
        job.native = None
        if len(new.rows):
            job.native = self._native_job(assignment, ring, new.records, positions, new.rows, new.attempts)
        job.records, job.rows = new.records, new.rows  # in this order: the watchdog may read them now
        self.submit(job, first=True)

    def _values(self, assignment: Assignment) -> Mapping[str, AnyArray]:
        """Return views of the slot's fields, except those that the native kernel makes."""
        kernel = self._plan.samples.kernel
        made = () if kernel is None else kernel.outputs
        return {name: view for name, view in assignment.views.items() if name not in made}

    def _native_job(
        self,
        assignment: Assignment,
        ring: _native.SlotRing,
        records: Records,
        positions: Int64Array,
        slot_rows: Int64Array | None = None,
        attempts: Int64Array | None = None,
    ) -> _native.Job:
        """Return the native job of an assignment, which knows where it finds all fields."""
        at, slot = assignment.at, assignment.slot
        plan, layout = self._plan, self._plan.layout_at(at)
        samples, program = plan.samples_at(at), self._programs[plan.segment(at)].first
        kernel = samples.kernel if samples.composed is None else samples.composed.frames
        outputs = [] if kernel is None else kernel.places(layout.offsets)
        if samples.composed is not None:
            outputs = [(0, 0)]  # frames aren't in the slot
        job = _native.Job(
            ring=ring,
            slot=max(slot, 0),
            positions=positions,
            program=program,
            outputs=outputs,
            seed=plan.pipeline.seed,
            epoch=at.epoch,
            slot_rows=slot_rows,
            attempts=attempts,
        )
        if samples.composed is not None:
            job.frames(self._new_frames(assignment, samples.composed.frames.image.field, slot_rows))
        elif kernel is not None and assignment.canvases is not None:
            for number, head in enumerate(kernel.heads):
                if head.varies:
                    job.areas(number, assignment.canvases.areas[head.field])
        for number, name in enumerate(self._reads):
            if (files := records.files.get(name)) is not None:
                files = files.fetched or files
                paths, known = files.paths, (files.file_bytes, files.mtime_ns, files.crc32c)
                job.files(number, paths.blob, paths.ends, files.offset, files.length, *known)
        if records.sizes is not None:
            job.sizes(records.sizes)
        if assignment.traced is not None and program is not None and program.windows:
            windows = assignment.traced.windows
            job.windows(windows if slot_rows is None else windows[slot_rows])
        if (maintainer := self._maintainer) is not None:
            job.cache(maintainer.store, records.index, self._before, maintainer.checks)
        elif self._before is not None:
            job.cache(None, records.index, self._before, False)
        for name, rows in records.rows.items():
            partial = bool(rows.others)
            for part in rows.parts:
                if name in self._reads:
                    job.pixels(self._reads.index(name), as_bytes(part.array), part.rows, partial)
                elif slot >= 0:
                    offset, row_bytes = layout.offsets[name], layout.fields[name].row_bytes
                    job.copy(ring, slot, part.array, part.rows, offset, row_bytes, partial)
        return job

    def _new_frames(
        self, assignment: Assignment, image: str, rows: Int64Array | None
    ) -> list[_native.ImageFrame]:
        """Add memory for the images of some rows to ``assignment.frames``, and return that of all rows up to the last.

        Rows whose images aren't made have another row's.
        """
        assert assignment.traced is not None
        chosen = np.arange(len(assignment.positions)) if rows is None else rows
        made = self._frames.take(assignment.traced.moves[image][chosen, -1, 9:11].astype(np.int64))
        assignment.frames.update(zip(chosen.tolist(), made, strict=True))
        return [assignment.frames.get(row, made[0]) for row in range(int(chosen.max()) + 1)]

    def submit(self, job: NativeJob, *, first: bool = False) -> None:
        """Queue a job behind all jobs that were submitted before; with ``first``, before them."""
        if job.native is None:  # all rows of the job are left out
            self._bell.ring()
            return
        self._jobs = [*(other for other in self._jobs if other is not job and not other.done), job]
        self._pool.submit(job.native, first=first)

    def cancel(self, job: NativeJob) -> None:
        """Drop the rows of a job that no thread has begun."""
        if job.native is not None:
            self._pool.cancel(job.native)

    def stats(self) -> Stats:
        """Return the counters of the native threads and of the cache."""
        counted = self._pool.stats()
        stats = Stats(
            read=PlaceStats(
                threads=counted.readers,
                rows=sum(counted.read_latency),
                bytes=counted.bytes,
                busy_s=counted.read_s,
                wait_s=counted.read_wait_s,
                latency=Latency(counted.read_latency),
            ),
            transform=PlaceStats(
                threads=counted.decoders,
                rows=counted.rows,
                busy_s=counted.decode_s,
                wait_s=counted.decode_wait_s,
                latency=Latency(counted.decode_latency),
            ),
            workers=tuple(
                WorkerStats(f"{kind} thread {number}", rows, busy_s)
                for kind, number, rows, busy_s in counted.threads
            ),
            **{name: getattr(counted, name) for name in COUNTED},
        )
        return (
            stats if self._maintainer is None else with_counts(stats, store_counters(self._maintainer.store))
        )

    def at_work(self) -> Sequence[Work]:
        """Return the current work of every thread."""
        works = (self._work(row) for row in self._pool.at_work())
        return [work for work in works if work is not None]

    def where(self, work: Work) -> str:
        """Return text about where a thread is: a Python thread's stack, or a blocked native thread's kernel state."""
        assert isinstance(work.hand, NativeThreadRow)
        if work.hand.row.kind == "Pillow":
            return stack_of_thread(work.hand.row.thread)
        state = describe_kernel_state(f"self/task/{work.hand.row.system_id}")
        return f"  the thread is {state}" if state else ""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """Record that the thread at this work hangs; ``take_lost`` then replaces it. Return True if it was recorded."""
        return self._overdue.add(work, error)

    def take_lost(self) -> Sequence[tuple[NativeJob, Failure]]:
        """Return each job in which a thread hangs, with the failure of its row, and replace the hanging threads."""
        if (broken := self._pool.broken) is not None:
            self._ends(WorkerDiedError(f"the loader's {broken}"))
        lost = []
        for work, error in self._overdue.take():
            assert isinstance(work.hand, NativeThreadRow)
            row = work.hand.row
            job = self._job_of(row)
            if job is None or not self._pool.give_up(row):
                continue
            self.cancel(job)
            lost.append((job, too_long(int(job.rows[row.row]), error)))
            if row.kind == "Pillow":
                with self._lock:
                    self._start_thread()
        return lost

    def memory(self) -> WorkersMemory:
        """Return the memory of read-ahead buffers, the cache and the side arena."""
        counted = self._pool.stats()
        return WorkersMemory(
            read_ahead=Use(counted.read_ahead_bytes, counted.read_ahead_peak_bytes),
            cache=Use(0 if self._maintainer is None else self._plan.memory.forecast.cache),
            side=Use(counted.side_bytes, counted.side_peak_bytes),
            frames=Use(self._frames.bytes),
        )

    def close(self, patience_s: float) -> bool:
        """End all threads, and wait for that for at most ``patience_s`` seconds.

        Return False if a thread is still in a system call or in a large image. It ends by itself after that.
        """
        ends = time.monotonic() + patience_s
        with self._lock:
            self._closed = True
        all_ended = self._pool.close(int(patience_s * 1000))
        for thread in self._threads:
            all_ended &= has_ended(thread, ends - time.monotonic())
        if self._maintainer is not None and all_ended:  # otherwise a thread may still look up a row in it
            all_ended = self._maintainer.close(max(ends - time.monotonic(), 0))
        return all_ended

    def _work(self, row: _native.AtWork) -> Work | None:
        # The records are read before the jobs are searched, as ``exchange`` may change both at any time.
        named = [(job, job.records) for job in self._jobs]
        records = next((records for job, records in named if job.has(row)), None)
        if records is None:
            return None
        index, path = name_of(records, row.row)
        what = record_name(index, path, ",")
        worker, hand = f"{row.kind} thread {row.number}", NativeThreadRow(row.number, row.rows_begun, row)
        return Work(
            hand, what, DOING[row.phase], worker, row.begin_s, self, index, path, row.phase == "waiting"
        )

    def _job_of(self, row: _native.AtWork) -> NativeJob | None:
        return next((job for job in self._jobs if job.has(row)), None)

    def _start_thread(self) -> None:
        name = f"standpipe-pillow-{len(self._threads) + 1}"
        start_kept(self._threads, guarded(name, self._decode_foreign, self._ends))

    def _decode_foreign(self) -> None:
        decode = partial(decode_input, self._plan.pipeline.decoding)
        while (row := self._pool.take_foreign()) is not None:
            with self._lock:
                if self._pool.foreign_waiting > 0 and len(self._threads) < self.employed and not self._closed:
                    # If the system allows no more threads, this one does all the work.
                    with contextlib.suppress(RuntimeError):
                        self._start_thread()
            row.make(decode)
