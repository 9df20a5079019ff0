"""Plan how answers of makers get into slots: native threads copy them, and normalize images on the way."""

from __future__ import annotations

from dataclasses import replace

from standpipe.plan.parts import SamplePlan
from standpipe.plan.plan import Plan
from standpipe.plan.remote_images import sends_bytes
from standpipe.spec import Executor

THREADS = 2  # a thread copies some GB/s; images that it normalizes, half a GB/s


def copying(plan: Plan) -> Plan:
    """Return a plan for native threads that fill the slots of ``plan`` from answers.

    Their records are arrays. Where images travel as bytes, the last step of the kernel remains to be done.
    """
    return replace(
        plan,
        pipeline=replace(plan.pipeline, cached=None, finite=None, labels=(), batch_functions=()),
        samples=_rest(plan.samples, plan),
        segments=tuple(replace(each, samples=_rest(each.samples, plan)) for each in plan.segments),
        cache=None,
        pool=replace(plan.pool, executor=Executor.THREAD, workers=THREADS, most_workers=THREADS),
    )


def _rest(samples: SamplePlan, plan: Plan) -> SamplePlan:
    kernel = samples.kernel
    rest = kernel.finishing() if sends_bytes(plan) and kernel is not None else None
    return replace(samples, python=None, kernel=rest, program=None, labels=(), mixings=())
