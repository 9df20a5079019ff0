"""The parts of a start that all kinds of workers share: setup, first sample, slots, and errors of the system."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import Records
from standpipe.engine.python.fields import instead_of_none
from standpipe.engine.python.value_checks import Checks
from standpipe.engine.python.worker_setup import WorkerSetup
from standpipe.engine.replace import MOST_ATTEMPTS, advise, substitute_of
from standpipe.engine.rows import END, Inputs, RowKey
from standpipe.engine.watchdog.watch import OwnTask, Watch
from standpipe.engine.workers import CALLER, CantWorkError, Failure, raised_for
from standpipe.errors import PlanError, StandpipeError, record_name
from standpipe.order import Cursor
from standpipe.plan.parts import MeasuredSample
from standpipe.plan.plan import Plan
from standpipe.source.targets import box_form
from standpipe.spec import NAMES, Listed, Replace
from standpipe.system.machine import is_short_of_files, too_many_files
from standpipe.units import show_bytes

Measured = MeasuredSample | Failure
Measure = Callable[[RowKey, Inputs, int], Measured]
MEASURING = "measuring the fields of a sample"


@contextlib.contextmanager
def refusals(plan: Plan) -> Iterator[None]:
    """Return a context that turns ``OSError`` and ``RuntimeError`` into ``StandpipeError``.

    The block must not run the user's code, as errors of that code would be turned too.
    """
    try:
        yield
    except StandpipeError:
        raise
    except (RuntimeError, OSError) as error:
        if is_short_of_files(error):
            raise PlanError(too_many_files()) from error
        raise StandpipeError(
            f"the system refused the resources for {plan.pool.workers} workers and "
            f"{show_bytes(plan.memory.most_slots * plan.batch.layout.stride_bytes)} of address space: {error}"
        ) from error


def worker_setup_of(plan: Plan) -> WorkerSetup:
    """Return the setup from which Python workers make the plan's samples."""
    assert plan.samples.program is not None
    return WorkerSetup(
        program=plan.samples.program,
        functions=plan.functions,
        dataset=_dataset(plan),
        streams=plan.samples.stream is not None,
        names=NAMES if plan.samples.python is None else plan.samples.python.names,
        seed=plan.pipeline.seed,
        decoding=plan.pipeline.decoding,
        reads=plan.options.reads,
        simd=plan.samples.simd,
        collate=plan.pipeline.collate,
        checks=Checks(plan.pipeline.finite, plan.samples.labels),
        cache=plan.cache,
        round_robin=plan.options.round_robin,
        initializer=plan.options.initializer,
        instances=plan.batch.instances.columns if plan.batch.instances and plan.samples.python else {},
        box_form=box_form(plan.samples.python),
        segments=tuple(each.samples.program for each in plan.segments if each.samples.program is not None),
    )


def _dataset(plan: Plan) -> Any:
    if plan.samples.stream is not None:
        return plan.samples.stream.of_rank(plan.steps.rank, plan.steps.world_size)
    return None if plan.samples.python is None else plan.samples.python.dataset


def first_record(plan: Plan, at: Cursor) -> tuple[RowKey, Records]:
    """Return the key of the first sample from a cursor on, and its record."""
    at = plan.steps.settled(at)
    drawn = plan.steps.step(0, at.consumed).draw(plan.order, at.epoch)
    index = int(drawn.indices[0])
    if plan.samples.stream is not None:
        index = at.consumed // plan.steps.world_size
    records = plan.source.locate(np.array([index]))
    return RowKey(int(records.index[0]), at.epoch, int(drawn.positions[0])), records


def measured_by(
    plan: Plan, at: Cursor, measure: Measure, watch: Watch
) -> tuple[Sequence[MeasuredSample], int]:
    """Return the first sample from a cursor on, measured for each segment, and its record number.

    at       the cursor
    measure  makes one sample by the program of a segment, and returns its measurement or a failure
    watch    the watchdog, which times the source

    If the sample is bad, its replacement is used; raises its error if bad samples aren't replaced. A sample with a
    field that is None is bad too, and that error is a ``PlanError`` unless the field is declared. If a stream ends at
    the cursor, the next epoch's first sample is used.
    """
    with OwnTask(watch, "the first sample", "looking up its record", CALLER):
        key, records = first_record(plan, at)
    index, attempt = key.index, 0
    segments = len(plan.segments) or 1
    while True:
        made = replace(key, index=index, attempt=attempt)
        found: list[MeasuredSample] = []
        while len(found) < segments:
            answer = measure(made, inputs := Inputs(records), len(found))
            if not isinstance(answer, Failure):
                answer = _without_none(plan, answer, record_name(index, inputs.name(0, index)))
            if isinstance(answer, Failure):
                break
            found.append(answer)
        else:
            return found, index
        if answer.place == END and at.consumed > 0:
            return measured_by(plan, Cursor(at.epoch + 1), measure, watch)
        attempt += 1
        if answer.whole or not isinstance(plan.pipeline.bad, Replace) or attempt > MOST_ATTEMPTS:
            raise advise(raised_for(answer, records, 0, plan.source), plan, [answer])
        records = plan.source.locate(np.array([substitute_of(plan, key.epoch, key.position, attempt, index)]))
        index = int(records.index[0])


def _without_none(plan: Plan, sample: MeasuredSample, record: str) -> Measured:
    """Return the sample, or a failure if a field is None and no list, so that its form isn't known."""
    for name, spec in sample.fields.items():
        is_none = isinstance(spec, Listed) and spec.kind == type(None).__name__
        if not is_none or plan.gathers or plan.pipeline.collate.get(name) is list:
            continue
        if plan.batch.contents.get(name) is not None:
            return Failure(0, "batch", f"{name!r} is None, but it is declared; {instead_of_none(name)}")
        reason = (
            f"{name!r} is None in the first sample, {record}, so its shape and dtype aren't known; "
            f"{instead_of_none(name)}. Or drop the field in a function of map(), or declare its shape and dtype with "
            "spec= of the source or of map()"
        )
        return Failure(0, "batch", reason, CantWorkError(reason))
    return sample


def new_ring(plan: Plan, bell: _native.Bell) -> _native.SlotRing:
    """Return the slots of a run."""
    keeps = not plan.device.lends  # a device that copies may have pinned their memory
    return _native.SlotRing(
        plan.batch.layout.slot_bytes, plan.memory.slots, plan.memory.most_slots, bell, keeps=keeps
    )
