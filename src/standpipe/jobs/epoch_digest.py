"""Digest the batches of an epoch, so that two ways of making them can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from standpipe.batch.instances import InstanceFields
from standpipe.errors import PlanError
from standpipe.jobs.fill_cache import loader_of
from standpipe.loader.loader import Loader
from standpipe.pipeline.description import Description
from standpipe.plan.options import LoaderArguments, LoaderOptions
from standpipe.spec import VALID
from standpipe.units import is_count

if TYPE_CHECKING:
    from hashlib import _Hash

MOST_RANKS = 1 << 10
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class EpochDigest:
    """The digest of an epoch. ``digest_epoch`` returns it.

    Attributes
    ----------
    sha256 : str
        SHA-256 of all rows, 64 hex digits.
    rows : int
        Number of rows, without padding.
    steps : int
        Number of steps that delivered them.

    Examples
    --------
    >>> found = sp.digest_epoch(sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2))
    >>> found.rows, found.steps, len(found.sha256)
    (8, 4, 64)
    """

    sha256: str
    rows: int
    steps: int


def digest_epoch(
    pipeline: Description,
    *,
    epoch: int = 0,
    ranks: int | Sequence[int] = 1,
    stop_at: Sequence[int] = (),
    on_progress: Progress | None = None,
    **options: Unpack[LoaderArguments],
) -> EpochDigest:
    """Deliver an epoch, and return the SHA-256 of its rows in order.

    Two runs that deliver the same rows in the same order have the same digest, whatever sources, workers,
    executors, ranks and resumes they use. The digest covers every field's name, dtype, shape and values. It
    leaves out rows of padding. So it doesn't depend on the batch size either, unless rows depend on their
    batch, as with padding to the longest sample or ``MixUp``.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline to run.
    epoch : int, default 0
        The epoch to deliver.
    ranks : int or sequence of int, default 1
        Number of data ranks, which this process runs side by side, each with its own loader. A sequence has
        a number for every part between two stops.
    stop_at : sequence of int, optional
        Stop after each of these steps, save the state, and continue with new loaders that load it. Steps are
        counted from the beginning of the epoch, in increasing order.
    on_progress : callable, optional
        Called after every step with the rows so far and the rows of the epoch, or None for an unknown number.
    **options
        Keyword arguments of ``Pipeline.plan``, such as ``num_workers`` and ``executor``. ``memory`` is the
        budget of each rank.

    Returns
    -------
    standpipe.reports.EpochDigest

    Raises
    ------
    PlanError
        If the plan can't be made, if the epoch ends before the last stop, and for batches with other values
        than arrays, numbers, strings and bytes.
    SampleError
        If a sample can't be made, as from a loader.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(sp.RandomResizedCrop(32)).batch(4)
    >>> whole = sp.digest_epoch(pipeline, num_workers=1)
    >>> resumed = sp.digest_epoch(pipeline, num_workers=2, stop_at=[2], ranks=[1, 2])
    >>> whole.sha256 == resumed.sha256, whole.steps, resumed.steps
    (True, 6, 4)
    """
    worlds = _checked(ranks, stop_at)
    chosen = LoaderOptions.of(options)
    digest, steps, state = _Digest(), 0, None
    for world, stop in zip(worlds, chain(stop_at, repeat(None)), strict=False):
        with ExitStack() as closing:
            loaders = [
                closing.enter_context(loader_of(pipeline.shard(rank, world), chosen)) for rank in range(world)
            ]
            for loader in loaders:
                _start(loader, epoch, state)
            plan = loaders[0].plan
            total = plan.rows_per_epoch if plan.ends_known else None
            # A state that was saved after the epoch's last step is at the next epoch.
            iterators = [iter(loader) for loader in loaders if loader.epoch == epoch]
            while steps != stop and _step(iterators, digest, plan.batch.instances):
                steps += 1
                if on_progress is not None:
                    on_progress(digest.rows, total)
            if stop is not None and steps < stop:
                raise PlanError(f"stop_at={list(stop_at)}: the epoch has only {steps} steps")
            # As text, since a checkpoint may store it so.
            state = json.loads(json.dumps(loaders[0].state_dict()))
    return EpochDigest(digest.hexdigest(), digest.rows, steps)


def _checked(ranks: int | Sequence[int], stop_at: Sequence[int]) -> list[int]:
    """Return the number of ranks for every part. Raises ``PlanError`` for invalid arguments."""
    parts = len(stop_at) + 1
    worlds = list(ranks) if isinstance(ranks, Sequence) else [ranks] * parts
    if len(worlds) == 1:
        worlds *= parts
    if not all(is_count(world, 1, MOST_RANKS) for world in worlds) or len(worlds) != parts:
        raise PlanError(
            f"ranks={ranks!r} must be an integer from 1 to {MOST_RANKS}, or one for each of {parts} parts of the epoch"
        )
    increasing = all(before < after for before, after in zip([0, *stop_at], stop_at, strict=False))
    if not increasing or not all(is_count(stop, 1, 1 << 60) for stop in stop_at):
        raise PlanError(f"stop_at={stop_at!r} must be increasing numbers of steps, from 1")
    return worlds


def _start(loader: Loader, epoch: int, state: Mapping[str, object] | None) -> None:
    """Move a new loader to the beginning of the epoch, or to a saved place in it."""
    if state is None:
        loader.set_epoch(epoch)
    else:
        loader.load_state_dict(state)


def _step(
    iterators: list[Iterator[dict[str, Any]]], digest: _Digest, instances: InstanceFields | None
) -> bool:
    """Add the next batch of every rank; return False at the end of the epoch."""
    for iterator in iterators:
        batch = next(iterator, None)
        if batch is None:
            return False  # all ranks have the same number of steps
        digest.add(batch if instances is None else instances.by_row(batch))
    return bool(iterators)


@dataclass(slots=True)
class _Field:
    """The rows of one field so far. ``form``: dtype and shape of the last rows."""

    digest: _Hash = field(default_factory=lambda: _sha256())
    form: str = ""

    def add(self, name: str, value: object, kept: NDArray[np.bool_] | None) -> None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            rows = value if kept is None or len(value) != len(kept) else value[kept]
            little = rows.dtype.newbyteorder("<")
            self._named(f"{little.str} {rows.shape[1:]}")
            self.digest.update(np.ascontiguousarray(rows, little).reshape(-1).view(np.uint8).data)
        elif isinstance(value, list | tuple):
            keep = kept is not None and len(value) == len(kept)
            for row, each in enumerate(value):
                if not keep or (kept is not None and kept[row]):
                    self.add(name, each, None)
        elif isinstance(value, Mapping):
            for key in sorted(value):
                self._named(repr(key))
                self.add(name, value[key], kept)
        elif value is None or isinstance(value, str | bytes | bool | int | float | np.generic):
            self._named(f"{type(value).__name__}")
            self.digest.update(f"{value!r};".encode())
        else:
            raise PlanError(
                f"the field {name!r} has a {type(value).__name__}, which has no digest; leave it out, or make "
                "it an array, number, string or bytes"
            )

    def _named(self, form: str) -> None:
        if form != self.form:
            self.form = form
            self.digest.update(f"{form};".encode())


def _sha256() -> _Hash:
    from hashlib import sha256  # loads OpenSSL, which importing standpipe needn't

    return sha256()


class _Digest:
    """The digest of all batches so far."""

    def __init__(self) -> None:
        self.rows = 0
        self._fields: dict[str, _Field] = {}

    def add(self, batch: Mapping[str, Any]) -> None:
        """Add the rows of a batch that aren't padding."""
        kept = None
        if VALID in batch and not batch[VALID].all():
            kept = batch[VALID]
        self.rows += len(batch["index"]) if kept is None else int(kept.sum())
        for name, value in batch.items():
            if name != VALID:
                self._fields.setdefault(name, _Field()).add(name, value, kept)

    def hexdigest(self) -> str:
        """Return the SHA-256 of the fields' digests, by name."""
        whole = _sha256()
        whole.update(f"epoch 1, {self.rows} rows;".encode())
        for name in sorted(self._fields):
            whole.update(f"{name!r} {self._fields[name].digest.hexdigest()};".encode())
        return whole.hexdigest()
