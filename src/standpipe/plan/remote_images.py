"""Plan what travels from makers outside the trainer: bytes of images, where the trainer can finish them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from standpipe.batch.layout import SlotLayout
from standpipe.errors import PlanError
from standpipe.plan.fields import slot_layout
from standpipe.plan.parts import SamplePlan
from standpipe.spec import Executor
from standpipe.units import show_bytes

if TYPE_CHECKING:  # plans print themselves
    from standpipe.plan.plan import Plan


def sends_bytes(plan: Plan) -> bool:
    """Return True if images travel as uint8 and are normalized here: the same bits, in a quarter of the bytes."""
    return plan.samples.finish is not None


def sent(plan: Plan) -> Plan:
    """Return the plan with slots as they travel: with bytes in place of normalized images, where that is possible."""
    if not sends_bytes(plan):
        return plan
    samples, layout = _unfinished(plan.samples, plan.batch.layout, plan)
    segments = []
    for each in plan.segments:
        part, room = _unfinished(each.samples, each.layout, plan)
        segments.append(replace(each, samples=part, layout=room))
    most: dict[str, int] = {}
    for each in segments:
        for name, spec in each.layout.fields.items():
            most[name] = max(most.get(name, 0), spec.row_bytes)
    segments = [replace(each, layout=replace(each.layout, room=most)) for each in segments]
    layout = replace(layout, room=most) if segments else layout
    return replace(plan, samples=samples, batch=replace(plan.batch, layout=layout), segments=tuple(segments))


def sent_bytes(plan: Plan) -> int:
    """Return the bytes of a batch on the way, without its values outside the slot."""
    return sent(plan).batch.layout.slot_bytes


def _unfinished(samples: SamplePlan, layout: SlotLayout, plan: Plan) -> tuple[SamplePlan, SlotLayout]:
    assert samples.kernel is not None
    kernel = samples.kernel.finished_by(None)
    fields = {name: spec for name, spec in layout.fields.items() if name not in plan.batch.added}
    contents = {**plan.batch.contents, **fields, **kernel.outputs}
    return replace(samples, kernel=kernel), slot_layout(
        contents, layout.rows, plan.steps.last_batch, plan.batch.instances
    )


def check_fleet(plan: Plan) -> None:
    """Raise ``PlanError`` for a plan whose batches only this process can make."""
    reasons = {
        "a stream has a place in one process only": plan.samples.stream is not None,
        "round_robin=True binds each batch to a worker of this loader": plan.options.round_robin,
        "executor='inline' makes samples in this thread": plan.pool.executor is Executor.INLINE,
        "rows of several images need images of other batches": plan.samples.composed is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise PlanError(
                f"a fleet can't make these batches: {reason}. Leave that out, or leave fleet= out"
            )


def fleet_lines(plan: Plan) -> list[str]:
    """Return the lines of ``explain()`` on the processes outside this one that make the batches."""
    fleet = plan.options.fleet
    assert fleet is not None
    travelling = sent_bytes(plan)
    on_the_way = plan.memory.slots - 1
    return [
        *fleet.describe(),
        f"{show_bytes(travelling)} travel per batch"
        + (": images as bytes, which are normalized here" if sends_bytes(plan) else ""),
        f"at most {on_the_way} batches on the way, {show_bytes(on_the_way * travelling)} outside this process",
        f"at most {2 * fleet.makers} more for a time: made twice as they were late, or not needed any more",
        {
            "local": "without a maker, workers here make the batches",
            "wait": "without a maker, the loader waits",
            "raise": "without a maker, a batch is a WorkerDiedError",
        }[fleet.fallback],
    ]
