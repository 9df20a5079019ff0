"""Deliver a pipeline's batches as JAX arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import jax
import numpy as np

import standpipe as sp
from standpipe.answers import answering
from standpipe.jax.lent import Lent
from standpipe.jax.placing import Placing
from standpipe.loader.wrapping import WrapsLoader
from standpipe.plan.options import RunArguments


@answering
class JaxLoader(WrapsLoader):
    """An iterable over a pipeline's batches as JAX arrays. ``standpipe.jax.loader`` makes it.

    Each ``iter()`` is the next epoch.

    Attributes
    ----------
    loader : standpipe.Loader
        The loader that makes the batches, with its plan, counters, memory and bad samples.

    Examples
    --------
    >>> import standpipe.jax
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with standpipe.jax.loader(pipeline, memory="256MiB", num_workers=1) as batches:
    ...     print(len(batches), batches.peek()["image"].shape)
    3 (8, 32, 32, 3)
    """

    def __init__(
        self,
        pipeline: sp.Pipeline,
        placing: Placing,
        fields: Mapping[str, str] | None,
        **settings: Unpack[RunArguments],
    ) -> None:
        self._placing, self._lent = placing, Lent()
        part = pipeline if pipeline.world_size > 1 else pipeline.shard(placing.rank, placing.world_size)
        taken = None if fields is None else frozenset(fields.values())
        self.loader = replace(part, delivered=taken).loader(**settings)
        pads = self.loader.plan.steps.last_batch.value == "pad"
        self._fields = fields if fields is None or not pads else {"valid": "valid", **fields}
        placing.check(self.loader.plan)
        if not self.loader.plan.batch.open:
            self._check([*self.loader.plan.fields, *self.loader.plan.batch.listed])

    @property
    def _wrapped(self) -> sp.Loader:
        return self.loader

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, the same in every process."""
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next epoch; after ``load_state_dict``, start the rest of the saved epoch."""
        return map(self._placed, iter(self.loader))

    def peek(self) -> dict[str, Any]:
        """Return a copy of the next batch, without taking it, as ``standpipe.Loader.peek`` does."""
        return self._placed(self.loader.peek())

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter()`` start epoch number ``epoch``."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, object]:
        """Return the position in the run as plain data. It counts delivered batches, not prefetched ones."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume where ``state`` was saved. Raises ``StateError`` if another pipeline saved it."""
        self.loader.load_state_dict(state)

    def _placed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        self._check(list(batch))
        chosen = batch if self._fields is None else {key: batch[name] for key, name in self._fields.items()}
        numbers = {key: value for key, value in chosen.items() if _are_numbers(value)}
        own = self._lent.take(numbers, most=self.loader.plan.slots)
        return {**chosen, **{key: self._placing.array(value) for key, value in own.items()}}

    def _check(self, known: Sequence[str]) -> None:
        for name in () if self._fields is None else self._fields.values():
            if name not in known:
                raise sp.PlanError(
                    f"fields={list(self._fields or ())!r}: there is no field {name!r}. A batch has {', '.join(known)}"
                )


def _are_numbers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


@answering
def loader(
    pipeline: sp.Pipeline,
    sharding: jax.sharding.Sharding | None = None,
    *,
    fields: Sequence[str] | Mapping[str, str] | None = ("image", "label"),
    **settings: Unpack[RunArguments],
) -> JaxLoader:
    """Return an iterable over a pipeline's batches: dicts of JAX arrays on a device or a mesh.

    Without ``.shard(rank, world_size)`` in the pipeline, each process makes the rows that the sharding gives
    to its devices; without a sharding, each process has its own part of the rows. With a ``NamedSharding``, an
    array is the batch of all processes, (world_size × rows, …).

    On the CPU an array shares the batch's memory, if JAX can take it. standpipe reuses that memory after JAX
    has released it. While JAX or your code holds as many batches as the plan has slots, further batches are
    copied, so work that JAX has queued never uses up ``memory=``. JAX turns int64 into int32 unless
    ``jax_enable_x64`` is set. Lists of Python objects stay lists.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    sharding : jax.sharding.NamedSharding, optional
        The layout on devices of the batch of all processes. Its first axis is the rows:
        ``NamedSharding(mesh, PartitionSpec("data"))``. Fields with fewer axes use its first ones. Default: this
        process's default device.
    fields : tuple of str, mapping or None, default ("image", "label")
        The fields of a batch: their names, a mapping from a batch's key to the field's name, or None for all.
        Where the pipeline pads the last batch, as without ``shuffle``, ``valid``, (rows,) bool, is added. It
        is False for padding.
    **settings
        Arguments of ``Pipeline.loader``: ``memory=``, ``num_workers=``, …

    Returns
    -------
    JaxLoader

    Raises
    ------
    PlanError
        For unknown fields, and for rows that can't be divided equally among the devices; else as
        ``Pipeline.loader``.

    Examples
    --------
    >>> import jax, standpipe.jax
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with standpipe.jax.loader(pipeline, memory="256MiB", num_workers=1) as batches:
    ...     for batch in batches:
    ...         assert isinstance(batch["label"], jax.Array)
    """
    if isinstance(fields, str) or not (fields is None or isinstance(fields, Mapping | Sequence)):
        raise sp.PlanError(
            f"fields must be names such as ('image', 'label'), or a dict such as {{'pixels': 'image'}} for "
            f"other keys, or None for all, got {fields!r}"
        )
    keys = (
        None if fields is None else fields if isinstance(fields, Mapping) else {name: name for name in fields}
    )
    return JaxLoader(pipeline, Placing.of(sharding), keys, **settings)
