"""Find the images of which rows are made, where a row is made of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import RaggedRows
from standpipe.engine.moves import Moves, Traced, Tracer
from standpipe.engine.native.jobs import NativeJob
from standpipe.engine.native.workers import NativeWorkers
from standpipe.engine.pasting import Pasting
from standpipe.engine.queue import Filling, FramesOfOthers, RunParts
from standpipe.engine.replace import BatchRecords, substitute_of
from standpipe.engine.rows import located
from standpipe.engine.workers import Assignment, Failure
from standpipe.order import Cursor, RankStep
from standpipe.source.targets import BOXES
from standpipe.spec import AnyArray, Int64Array
from standpipe.stats.bad_samples import Ledger
from standpipe.transform.pixels.compositions import CopyPaste, Recent

if TYPE_CHECKING:
    from standpipe.transform import ComposedKernel

# Attempts of records that are partners alone. A bad one gets up to 100 replacements.
PARTNER_ATTEMPTS = 1 << 10


class Composing:
    """The images of earlier rows, and the choice among them. Only the filling thread uses it."""

    def __init__(self, run: RunParts, tracer: Tracer) -> None:
        self._plan, self._ring, self._tracer = run.queue.plan, run.queue.ring, tracer
        self._workers, self._fetches = cast("NativeWorkers", run.workers), run.fetches
        self._epoch = 0
        self._recent: dict[int, tuple[BatchRecords, int]] = {}  # by position, the oldest first
        self._ledger = Ledger(self._plan)  # of partners

    def forget(self) -> None:
        """Forget the images of earlier rows, whose batches may not have been finished."""
        self._recent.clear()

    def others(self, records: BatchRecords) -> FramesOfOthers:
        """Return the images of other rows that a batch needs, and begin to make those that are missing."""
        at = records.assignment.at
        composed = self._composed(at)
        others = FramesOfOthers()
        if self._epoch != at.epoch:
            self.forget()
            self._epoch = at.epoch
        if composed.window:
            before = self._before(at, composed.window)
            missing = np.array([each for each in before if each not in self._recent], np.int64)
            found = self._recent if len(missing) < len(before) else {}
            if len(missing):
                steps = self._plan.steps
                of = [RankStep(int(each), 1, steps.num_positions) for each in missing]
                indices = np.concatenate([each.draw(self._plan.order, at.epoch).indices for each in of])
                made = self._begin(others, at, indices, missing)
                self._recent = {int(place): row for place, row in zip(missing, made, strict=True)} | found
            others.earlier = [self._recent[each] for each in before]
            own = records.assignment.positions.tolist()
            self._recent |= {each: (records, row) for row, each in enumerate(own) if records.valid[row]}
            for each in [*islice(self._recent, max(len(self._recent) - composed.window, 0))]:
                del self._recent[each]
        if "any" in composed.partners:
            self._begin_any(others, records)
        return others

    def is_complete(self, filling: Filling) -> bool:
        """Return True if the images of all other rows are made; else begin to make replacements of bad ones.

        Raises the error of a bad one that isn't replaced.
        """
        for records, job in filling.others.jobs:
            if not (failures := job.failures()) and not records.assignment.without:
                continue
            if (substitutes := records.substitutes(failures)) is None:
                error = records.error_of(failures)
                assert error is not None
                raise error
            if self._fetches is not None:
                found, unread = self._fetches.await_now(filling.at, substitutes.records)
                substitutes = records.without(replace(substitutes, records=found), unread)
            self._workers.exchange(cast("NativeJob", job), substitutes, self._ring)
            return False
        return True

    def compose(self, filling: Filling) -> None:
        """Begin to make the rows of their images, and set ``filling.others.traced``."""
        assignment, at = filling.batch_records.assignment, filling.at
        composer, composed = self._workers.composer(at), self._composed(at)
        used, words = self._drawn(assignment)
        rows, each = used.shape
        chosen = self._chosen(filling, composed, used, words)
        image, last = composed.frames.image.field, composed.last.image.field
        done = _joined([_traced(records).moves[image][row] for records, row in chosen])
        sizes = np.zeros((rows * each, 2), np.int64)
        sizes[used.ravel()] = done[:, -1, 9:11]
        seed, positions = self._plan.pipeline.seed, np.asarray(assignment.positions, np.uint64)

        def moved(
            levels: int | None = None, mirrored: bool = False, areas: Int64Array | None = None
        ) -> Moves:
            found = composer.trace(
                sizes, seed, at.epoch, positions, np.zeros(rows, np.uint64), levels, mirrored, areas
            )
            return found.reshape(rows, each, found.size // (12 * rows * each), 12)

        places, after = np.full((rows, each), -1, np.int32), moved()
        places[used] = np.arange(len(chosen))
        images, pasting = places, Pasting.of(composed, composer)
        if pasting is not None:
            images, after = pasting.arranged(places), pasting.arranged(after, moved(mirrored=True))
        there = images >= 0
        instances, shapes = _instances([chosen[number] for number in images[there]])

        def from_stored(found: Moves) -> Moves:
            return np.concatenate([done[images[there]], found[there]], axis=1)

        traced = Traced(
            _traced(filling.batch_records).sizes,
            {last: from_stored(after)},
            instances,
            np.zeros((rows, 0), np.int32),
            None,
            shapes,
            np.append(0, there.sum(axis=1).cumsum()),
        )
        frames, pasted = [records.assignment.frames[row] for records, row in chosen], None
        if pasting is not None:
            before = from_stored(pasting.arranged(moved(pasting.level)))
            seeds, how = (seed, at.epoch, assignment.positions), self._plan.samples_at(at).instances
            if isinstance(pasting.rule, CopyPaste):
                traced, pasted = pasting.pasted(traced, there, before, seeds)
            else:
                assert how is not None
                traced, pasted, areas = pasting.cut(traced, there, before, seeds, how)
                traced = replace(traced, moves={last: from_stored(moved(areas=areas))})
        filling.others.traced = traced
        self._workers.compose(
            cast("NativeJob", filling.job), assignment, self._ring, frames, places.ravel(), pasted
        )

    def _composed(self, at: Cursor) -> ComposedKernel:
        composed = self._plan.samples_at(at).composed
        assert composed is not None
        return composed

    def _drawn(self, assignment: Assignment) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Return which images rows are made of, (rows, images) bool, and words for their choice, (rows, images)."""
        positions = np.asarray(assignment.positions, np.uint64)
        composer = self._workers.composer(assignment.at)
        drawn = composer.draw(
            self._plan.pipeline.seed, assignment.at.epoch, positions, np.zeros(len(positions), np.uint64)
        )
        used, words = drawn
        return used.reshape(len(positions), -1).astype(np.bool_), words.reshape(len(positions), -1)

    def _chosen(
        self, filling: Filling, composed: ComposedKernel, used: NDArray[np.bool_], words: NDArray[np.uint64]
    ) -> list[tuple[BatchRecords, int]]:
        """Return the images of which rows are made, one for each True in ``used``: those of its batch, and its row.

        ``used`` and ``words`` are those of ``_drawn``.
        """
        earlier = len(filling.others.earlier)
        sources = [*filling.others.earlier, *((filling.batch_records, row) for row in range(len(used)))]
        rows = np.arange(len(used)) + earlier
        numbers = np.tile(rows[:, None], (1, used.shape[1]))
        for place, partners in enumerate(composed.partners, 1):
            if isinstance(partners, Recent):
                first = np.maximum(rows - partners.rows, 0)
                share = (words[:, place] >> np.uint64(11)) * 2.0**-53
                numbers[:, place] = np.where(rows > first, first + share * (rows - first), rows)
            elif partners == "batch":
                numbers[:, place] = earlier + (np.arange(len(used)) - place) % len(used)
        wanted = _of_any(composed, used)
        numbers[wanted] = len(sources) + np.arange(wanted.sum())
        made = [(each, row) for each, _ in filling.others.jobs for row in range(len(each.records.index))]
        # Images of earlier rows, which a resumed run makes, are in front of them.
        sources += made[len(made) - wanted.sum() :]
        return [sources[number] for number in numbers[used]]

    def _before(self, at: Cursor, most: int) -> list[int]:
        """Return the positions of this rank's last rows before a cursor, the oldest first."""
        steps = self._plan.steps
        found: list[int] = []
        start = at.consumed + steps.rank * steps.batch - steps.global_batch
        while len(found) < most and start > -steps.batch:
            found = [*range(max(start, 0), start + steps.batch), *found]
            start -= steps.global_batch
        return found[-most:]

    def _begin_any(self, others: FramesOfOthers, records: BatchRecords) -> None:
        """Begin to make images of any records, one for each use."""
        assignment, at = records.assignment, records.assignment.at
        used, _ = self._drawn(assignment)
        rows, places = np.nonzero(_of_any(self._composed(at), used))
        positions = assignment.positions[rows]
        attempts = PARTNER_ATTEMPTS * places
        indices = [
            substitute_of(
                self._plan, at.epoch, int(position), int(attempt), int(assignment.records.index[row])
            )
            for row, position, attempt in zip(rows, positions, attempts, strict=True)
        ]
        if indices:
            self._begin(others, at, np.array(indices, np.int64), positions, attempts)

    def _begin(
        self,
        others: FramesOfOthers,
        at: Cursor,
        indices: Int64Array,
        positions: Int64Array,
        attempts: Int64Array | None = None,
    ) -> list[tuple[BatchRecords, int]]:
        """Begin to make the images of some records, and return them, as ``FramesOfOthers.earlier`` has them."""
        layout = self._plan.layout_at(at)
        made: list[tuple[BatchRecords, int]] = []
        for first in range(0, len(indices), layout.rows):
            part = slice(first, first + layout.rows)
            rows = len(indices[part])
            # Their other values go nowhere.
            views = layout.views(np.empty(layout.stride_bytes, np.uint8), rows)
            found, unread = located(self._plan, indices[part]), list[Failure]()
            if self._fetches is not None:
                found, unread = self._fetches.await_now(at, found)
            assignment = Assignment(-1, at, found, positions[part], views)
            some = None if attempts is None else attempts[part]
            # A bad one counts in its own row, however many rows it is a partner of.
            counts = np.zeros(rows, np.bool_)
            records = BatchRecords(self._plan, self._ledger, assignment, counts, self._tracer, some)
            records.trace(assignment.records)
            records.lose(unread)
            job = self._workers.begin(records.placed(), self._ring, some)
            self._workers.submit(job)
            others.jobs.append((records, job))
            made += [(records, row) for row in range(rows)]
        return made


def _of_any(composed: ComposedKernel, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the images that rows are made of, (rows, images), are those of any records."""
    return np.asarray(used & [False, *(partners == "any" for partners in composed.partners)])


def _traced(records: BatchRecords) -> Traced:
    assert records.assignment.traced is not None
    return records.assignment.traced


def _joined(moves: Sequence[AnyArray]) -> AnyArray:
    """Return moves of n images, (moves, 12) each, as (n, moves, 12): those that have fewer stay where they are."""
    most = max(len(each) for each in moves)
    joined = np.zeros((len(moves), most, 12))
    for row, each in enumerate(moves):
        joined[row, : len(each)] = each
        joined[row, len(each) :, :9] = np.eye(3).ravel()
        joined[row, len(each) :, 9:11] = each[-1, 9:11]
    return joined


def _instances(
    chosen: Sequence[tuple[BatchRecords, int]],
) -> tuple[dict[str, RaggedRows], RaggedRows | None]:
    """Return the instances of some images, by column, and their shapes."""
    batches = {id(records): _traced(records) for records, _ in chosen}
    begins = dict(zip(batches, np.cumsum([0, *(len(each.sizes) for each in batches.values())]), strict=False))
    order = np.array([begins[id(records)] + row for records, row in chosen])
    parts = [*batches.values()]
    columns = {
        name: RaggedRows.merged([each.instances[name] for each in parts], order)
        for name in parts[0].instances
    }
    if parts[0].shapes is None:
        return columns, None
    ends = [each.instances[BOXES].ends for each in parts]
    shifts = np.cumsum([0, *(each[-1] for each in ends)])
    numbers = [
        RaggedRows(np.arange(each[-1]) + shift, each) for each, shift in zip(ends, shifts, strict=False)
    ]
    shapes = [each.shapes for each in parts if each.shapes is not None]
    return columns, RaggedRows.merged(shapes, RaggedRows.merged(numbers, order).values.astype(np.int64))
