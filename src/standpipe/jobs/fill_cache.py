"""Fill a cache before training: read every record once, and store the rows that are missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Unpack

from standpipe.errors import CacheError, PlanError
from standpipe.jobs.filter_scan import plan_after_filters
from standpipe.loader.loader import Loader
from standpipe.pipeline.description import Description
from standpipe.plan.build import make_plan
from standpipe.plan.options import LoaderArguments, LoaderOptions
from standpipe.plan.plan import Plan
from standpipe.spec import LastBatch
from standpipe.system.launcher import of_machine
from standpipe.transform.pixels.geometry import CenterCrop

ROWS = 64  # largest number of rows in a batch


class Corner(CenterCrop):
    """A crop to one pixel. It gives all images of a cache fill one size, as a batch needs; nobody uses the images."""

    __slots__ = ()

    @property
    def moves(self) -> tuple[str, ...]:
        """An empty tuple, so that fields with coordinates, such as masks, don't raise an error."""
        return ()


@dataclass(frozen=True, slots=True)
class CacheFillReport:
    """The result of ``fill_cache``.

    Attributes
    ----------
    rows : int
        Rows that were looked up, one for each record.
    stored : int
        Rows that were stored now.
    found : int
        Rows that the cache had already.
    left_out : int
        Rows that didn't fit into the cache.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8)
    >>> sp.fill_cache(pipeline)
    CacheFillReport(rows=24, stored=24, found=0, left_out=0)
    """

    rows: int
    stored: int
    found: int
    left_out: int


def fill_cache(
    pipeline: Description,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[LoaderArguments],
) -> CacheFillReport:
    """Fill the pipeline's cache before training: read every record that it will keep once.

    These are the records of this rank's epoch 0. With ``Cache(scope="node")`` they are all records, which the
    processes that a launcher has started on this machine divide among themselves.

    Parameters
    ----------
    pipeline : Pipeline
        A pipeline with ``cache(…)``.
    progress : callable, optional
        Called from time to time with the rows that were read so far, and their total number.
    **options
        Keyword arguments of ``Pipeline.plan``, such as ``num_workers`` and ``memory``.

    Returns
    -------
    standpipe.reports.CacheFillReport
        Rows that were stored, were there already, or didn't fit.

    Raises
    ------
    PlanError
        If the pipeline has no cache, or the plan can't be made.
    CacheError
        If the cache can't be used.
    SampleError
        If a sample can't be made, as from a loader.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).cache(cache).batch(8)
    >>> report = sp.fill_cache(pipeline, num_workers=1)
    >>> report.rows, report.stored, report.left_out
    (24, 24, 0)
    """
    return _filled_by(pipeline, LoaderOptions.of(options), progress)


def loader_of(pipeline: Description, options: LoaderOptions) -> Loader:
    """Run missing filters, plan, fill a ``scope="node"`` cache if needed, and return the loader."""
    return Loader(filled(plan_after_filters(pipeline, options)))


def _filled_by(
    pipeline: Description, options: LoaderOptions, progress: Callable[[int, int], None] | None = None
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
    )  # the next epoch's rows count too, if some were made
    return CacheFillReport(rows, counted.cache_stored, rows - counted.cache_stored - left_out, left_out)


def filled(plan: Plan) -> Plan:
    """Fill this process's part of a cache with ``scope="node"``, if needed; return ``plan``.

    Such a cache keeps all records on each machine, also those that only ranks elsewhere read. It does nothing if
    all ranks are on this machine, or the cache has all rows.
    """
    kept, pipeline = plan.cache, plan.pipeline
    if kept is None or kept.cache.scope != "node" or pipeline.world_size <= of_machine(os.environ)[1]:
        return plan
    try:
        present = kept.look().present
    except CacheError:
        if kept.cache.strict:
            raise
        return plan  # the loader reports why there is no cache
    if present is None or present.rows < plan.order.num_positions:
        try:
            _filled_by(pipeline, plan.options.for_job())
        except CacheError:  # the loader reports it
            if kept.cache.strict:
                raise
    return plan


def whole(pipeline: Description) -> Description:
    """Return a pipeline that fills the cache of ``pipeline``: its transforms before the cache, in small batches.

    It reads all records that the cache keeps. ``strict`` is True, so that an unusable cache raises an error.
    """
    assert pipeline.cached is not None
    cache = pipeline.cached.cache
    node = cache.scope == "node"
    rank, world_size = of_machine(os.environ) if node else (pipeline.rank, pipeline.world_size)
    return replace(
        pipeline,
        transforms=pipeline.transforms[: pipeline.cached.after] or (Corner(1),),
        cached=replace(pipeline.cached, cache=replace(cache, strict=True)),
        batch_functions=(),
        batch_rows=min(pipeline.batch_rows or ROWS, ROWS),
        budget=None,
        batch_sampler=False,
        collate={},
        last_batch=LastBatch.PARTIAL if world_size == 1 else LastBatch.PAD,
        rank=rank,
        world_size=world_size,
    )
