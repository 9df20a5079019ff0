"""Filling a cache ahead: a loader that asks for every record once, and keeps what isn't kept yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Unpack

from penstock.errors import PlanError
from penstock.loader import Loader
from penstock.pipeline import Pipeline
from penstock.settings import Settings
from penstock.spec import Tail
from penstock.transform import CenterCrop

ROWS = 64  # of a batch, where the pipeline has more


@dataclass(frozen=True, slots=True)
class Warmed:
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


def warm(
    pipeline: Pipeline, *, progress: Callable[[int, int], None] | None = None, **settings: Unpack[Settings]
) -> Warmed:
    """``Pipeline.warm`` says what it does."""
    if pipeline.cached is None:
        raise PlanError("warm() fills a cache, and the pipeline has none: add .cache(ps.Cache(…))")
    plan = whole(pipeline).plan(**settings)
    if plan.cache is None:
        raise PlanError("warm() fills a cache, and this one is off")
    total, rows = plan.steps.per_epoch * plan.steps.batch, 0
    with Loader(plan) as loader:
        for batch in loader:
            rows += len(batch["index"])
            if progress is not None:
                progress(min(rows, total), total)
        counted = loader.stats()
    return Warmed(rows, counted.cache_stored, counted.cache_hits, counted.cache_skipped)


def whole(pipeline: Pipeline) -> Pipeline:
    """The pipeline as far as its cache, of all records that it keeps, in small batches."""
    assert pipeline.cached is not None
    node = pipeline.cached.cache.scope == "node"
    rank, world = (0, 1) if node else (pipeline.rank, pipeline.world)
    return replace(
        pipeline,
        transforms=pipeline.transforms[: pipeline.cached.after]
        or (CenterCrop(1),),  # a batch has to have something
        batch_functions=(),
        rows=min(pipeline.rows or ROWS, ROWS),
        budget=None,
        given=False,
        collate={},
        tail=Tail.SHORT if world == 1 else Tail.PAD,
        rank=rank,
        world=world,
    )
