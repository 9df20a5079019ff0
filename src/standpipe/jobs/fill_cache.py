"""Filling a cache ahead: a loader that asks for every record once, and keeps what isn't kept yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from standpipe.errors import CacheError, PlanError
from standpipe.loader.loader import Loader
from standpipe.pipeline.pipeline import Pipeline
from standpipe.plan.build import make_plan
from standpipe.plan.options import LoaderOptions
from standpipe.plan.plan import Plan
from standpipe.spec import LastBatch
from standpipe.system.launcher import of_machine
from standpipe.transform.geometry import CenterCrop

ROWS = 64  # of a batch, where the pipeline has more


class Corner(CenterCrop):
    """A pixel of the image, for nobody: a batch has to have something of one size."""

    __slots__ = ()

    @property
    def moves(self) -> tuple[str, ...]:
        """Return no field: nobody sees the image beside others."""
        return ()


@dataclass(frozen=True, slots=True)
class CacheFillReport:
    """What filling ahead has done.

    rows      that were asked for
    stored    of these, those that are kept now and weren't before
    found     those that were kept already
    left_out  those for which there was no room
    """

    rows: int
    stored: int
    found: int
    left_out: int


def fill_cache(
    pipeline: Pipeline, *, progress: Callable[[int, int], None] | None = None, **options: Any
) -> CacheFillReport:
    """Fill the pipeline's cache ahead: ask once for every record that it will keep.

    With ``Cache(scope="node")`` these are all records, which the processes that a launcher has started on this machine
    share out; else those of this rank's epoch 0.

    progress  called now and then with the rows that were asked for so far, and how many there are
    options   as of ``Pipeline.plan``

    Raises ``PlanError`` without a cache, and what a loader raises for a sample that can't be made.
    """
    return _filled_by(pipeline, LoaderOptions.of(options), progress)


def _filled_by(
    pipeline: Pipeline, options: LoaderOptions, progress: Callable[[int, int], None] | None = None
) -> CacheFillReport:
    if pipeline.cached is None:
        raise PlanError("fill_cache() fills a cache, and the pipeline has none: add .cache(sp.Cache(…))")
    placed = pipeline if pipeline.cached.chosen else make_plan(pipeline, options).pipeline
    plan = make_plan(whole(placed), options)
    if plan.cache is None:
        raise PlanError("fill_cache() fills a cache, and this one is off")
    total, rows = plan.steps.per_epoch * plan.steps.batch, 0
    with Loader(plan) as loader:
        for batch in loader:
            rows += len(batch["index"])
            if progress is not None:
                progress(min(rows, total), total)
        counted = loader.stats()
    left_out = min(
        counted.cache_skipped, rows - counted.cache_stored
    )  # some of the next epoch's are made too
    return CacheFillReport(rows, counted.cache_stored, rows - counted.cache_stored - left_out, left_out)


def filled(plan: Plan) -> Plan:
    """The plan, once this process has done its share of filling a cache that shall have the rows of other machines'
    ranks too. Where all ranks are on this one, or all rows are there, there is nothing to do.
    """
    kept, pipeline = plan.cache, plan.pipeline
    if kept is None or kept.cache.scope != "node" or pipeline.world_size <= of_machine(os.environ)[1]:
        return plan
    try:
        present = kept.look().present
    except CacheError:
        if kept.cache.strict:
            raise
        return plan  # the loader says why there is none
    if present is None or present.rows < plan.order.num_positions:
        try:
            _filled_by(pipeline, plan.options.for_job())
        except CacheError:  # likewise
            if kept.cache.strict:
                raise
    return plan


def whole(pipeline: Pipeline) -> Pipeline:
    """The pipeline as far as its cache, of all records that it keeps, in small batches; without one it is an error."""
    assert pipeline.cached is not None
    cache = pipeline.cached.cache
    node = cache.scope == "node"
    rank, world_size = of_machine(os.environ) if node else (pipeline.rank, pipeline.world_size)
    return replace(
        pipeline,
        transforms=pipeline.transforms[: pipeline.cached.after] or (Corner(1),),
        cached=replace(pipeline.cached, cache=replace(cache, strict=True)),
        batch_functions=(),
        batch_size=min(pipeline.batch_size or ROWS, ROWS),
        budget=None,
        batch_sampler=False,
        collate={},
        last_batch=LastBatch.PARTIAL if world_size == 1 else LastBatch.PAD,
        rank=rank,
        world_size=world_size,
    )
