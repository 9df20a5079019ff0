"""Plan a cache: where rows are kept, of which stage, and under which name."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from standpipe.cache.description import Cache
from standpipe.contracts import KnownHere, OpenSource, PythonSource, StreamSource, Transform
from standpipe.errors import PlanError
from standpipe.identity.cached_set import Identity
from standpipe.identity.parts import code_parts
from standpipe.pipeline.description import Description
from standpipe.plan.fields import has_files, kernels_around
from standpipe.plan.memory import WorkerCost
from standpipe.source import OpenConcat
from standpipe.spec import PIXEL_CONTRACT
from standpipe.transform import (
    Function,
    NativeKernel,
    SampleProgram,
    decoder_version,
    first_random,
    segments_of,
)

if TYPE_CHECKING:
    from standpipe.cache.files.manifest import Kind
    from standpipe.cache.sets.facts import Forecast

ROWS_FORMAT = 1  # of what rows hold; enters a set's identity


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The part of each record that is kept, and where.

    kind       ``"encoded"``: the bytes of its file; ``"images"``: (height, width, C) uint8; ``"samples"``:
    its fields,
               as Python code left them
    before     the kernel that makes images which are kept; None for other kinds
    identity   names the cache set: equal for rows that are equal
    records    number of records in the source
    row_bytes  bytes of a row; None where they differ
    spills     True if rows may go to a disk
    """

    cache: Cache
    kind: Kind
    before: NativeKernel | None
    identity: Identity
    records: int
    row_bytes: int | None
    spills: bool

    def look(self) -> Forecast:
        """Return the rows and room that a loader would find now. Raises ``CacheError`` for an unusable cache."""
        from standpipe.cache.sets.facts import look  # pipelines without a cache start sooner

        return look(self.cache, self.identity)

    @property
    def checks(self) -> bool:
        """True if rows are compared with their files."""
        return self.cache.validate != "never"

    def memory_bytes(self) -> int:
        """Return the bytes of this process for the cache: a bit per record, and rows on their way to the
        disk.
        """
        from standpipe.cache.sets.sets import queue_bytes

        return -(-self.records // 8) + (queue_bytes(self.row_bytes) if self.spills else 0)

    def of_worker(self, cost: WorkerCost) -> WorkerCost:
        """Return ``cost`` with the memory for an image between two kernels added to each worker."""
        return cost if self.before is None else replace(cost, each=cost.each + (self.row_bytes or 0))


def cache_plan(pipeline: Description, source: OpenSource, program: SampleProgram | None) -> CachePlan | None:
    """Plan the cache of a pipeline; None without one.

    Raises ``PlanError`` for a place where nothing can be kept.

    program  the steps of Python workers for every sample, or None
    """
    cached = pipeline.cached
    if cached is None or cached.cache.is_off:
        return None
    from standpipe.cache.sets.facts import spills

    cached.cache.check()
    check_cache_place(pipeline, source)
    kind, before, row_bytes = _kept(pipeline, source, program)
    identity = Identity(_identity(pipeline, source, kind), _label(pipeline, kind))
    return CachePlan(
        cached.cache, kind, before, identity, source.num_records, row_bytes, spills(cached.cache, identity)
    )


def with_place(pipeline: Description, source: OpenSource) -> Description:
    """Return the pipeline with its cache at the place that the plan chooses, where the user hasn't chosen one.

    That is after the last native transform before the first random one, if images have a fixed size there and
    all of them fit; otherwise right after the source.
    """
    cached = pipeline.cached
    if cached is None or cached.chosen or cached.cache.is_off:
        return pipeline
    if not has_files(source):
        raise PlanError("cache(place='auto') works for files only. Write cache() where rows should be kept")
    if after := _deterministic(pipeline.transforms):
        from standpipe.cache.sets.facts import look

        at = replace(
            pipeline,
            transforms=segments_of(pipeline.transforms)[0][1],
            cached=replace(cached, after=after, chosen=True, why="chosen because all images fit"),
        )
        with contextlib.suppress(PlanError):  # no fixed size there
            all_bytes = kernels_around(at, source)[0].image.output.row_bytes * source.num_records
            if all_bytes <= room_bytes(look(cached.cache, Identity({}, ""))):
                return replace(pipeline, cached=at.cached)
    why = "chosen because images have no fixed size before the first random transform, or don't all fit"
    return replace(pipeline, cached=replace(cached, after=0, chosen=True, why=why))


def room_bytes(found: Forecast) -> int:
    """Return the bytes that a set may use, including those that it uses."""
    there = 0 if found.present is None else found.present.bytes + found.present.bytes_on_disk
    return there + found.memory_free + found.spill_free


def _deterministic(transforms: Sequence[Transform]) -> int:
    """Return the number of transforms before the first random one; unknown Python code counts as random."""
    drawn = first_random(transforms)
    known = transforms if drawn is None else transforms[: transforms.index(drawn)]
    return next((place for place, each in enumerate(known) if isinstance(each, Function)), len(known))


def check_cache_place(pipeline: Description, source: OpenSource) -> None:
    """Raise ``PlanError`` where a cache would freeze random numbers, or keep nothing useful."""
    assert pipeline.cached is not None
    before = pipeline.transforms[: pipeline.cached.after]
    if isinstance(source, StreamSource):
        raise PlanError(
            "cache() can't keep a stream's samples: they have no numbers by which a later epoch could find "
            "them"
        )
    if (drawn := first_random(before)) is not None:
        fixed = before[: before.index(drawn)]
        place = f"after {fixed[-1].describe()}" if fixed else "right after the source"
        raise PlanError(
            f"cache() after {drawn.describe()} would keep its random choices: every epoch would see the "
            f"same ones. Put cache() {place}, before the random transform"
        )
    if not before and not has_files(source) and not isinstance(source, PythonSource):
        raise PlanError("cache() right after arrays would keep what is in memory already. Leave cache() out")


def _kept(
    pipeline: Description, source: OpenSource, program: SampleProgram | None
) -> tuple[Kind, NativeKernel | None, int | None]:
    """Return what the cache keeps, the kernel that makes its images, and the bytes of a row if they are
    known.
    """
    assert pipeline.cached is not None
    if has_files(source) and pipeline.cached.after == 0:
        return "encoded", None, None
    if program is not None:
        return "samples", None, None
    before, _ = kernels_around(pipeline, source)
    return "images", before, before.image.output.row_bytes


def _identity(pipeline: Description, source: OpenSource, kind: Kind) -> Mapping[str, str | int]:
    """Return everything that the bytes of cached rows depend on, by name."""
    assert pipeline.cached is not None
    parts: dict[str, str | int] = {
        "format": ROWS_FORMAT,
        "kind": kind,
        "source": source.digest,
        "records": source.num_records,
        "here": ascii(_here(source)),
    }
    if kind == "encoded":
        return parts
    from PIL import __version__ as pillow  # takes 50 ms, and is asked for only where rows are kept

    before = pipeline.transforms[: pipeline.cached.after]
    return {
        **parts,
        **code_parts(
            before,
            source.dataset if isinstance(source, PythonSource) else None,
            version=pipeline.cached.cache.version,
        ),
        "transforms": "; ".join(transform.describe() for transform in before),
        "decode": pipeline.decoding.describe(),
        "limits": repr(pipeline.limits),
        "pixel_contract": PIXEL_CONTRACT,
        "decoder": decoder_version(),
        "pillow": pillow,
        **({"numpy": np.__version__, "fields": _fields(source)} if kind == "samples" else {}),
    }


def _here(source: OpenSource) -> list[str]:
    """Return the location of a source, or of each of several: two folders may have files of the same names."""
    if isinstance(source, OpenConcat):
        return [each for part in source.parts for each in _here(part)]
    return [source.here()] if isinstance(source, KnownHere) else []


def _fields(source: OpenSource) -> str:
    """Describe the fields that the first function gets: a mix adds one to those of its sources."""
    fields = source.declared if isinstance(source, PythonSource) else source.fields
    return f"{type(source).__name__} of {'; '.join(f'{name} {spec}' for name, spec in sorted((fields or {}).items()))}"


def _label(pipeline: Description, kind: Kind) -> str:
    """Return a cache set's description for people: its source, and the transforms before the cache."""
    assert pipeline.cached is not None
    made = [transform.describe() for transform in pipeline.transforms[: pipeline.cached.after]]
    return (
        " → ".join([pipeline.source.describe(), *made]) if made else f"{pipeline.source.describe()}, {kind}"
    )
