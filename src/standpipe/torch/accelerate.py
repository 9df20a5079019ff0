"""Present a loader to Hugging Face's Accelerate as a prepared one.

Accelerate's ``prepare`` would let one process read for all, or give each process every n-th batch. standpipe has
already divided the rows among processes, so rows would be lost. Accelerate's loaders also fetch one batch ahead to
notice the end of an epoch, so a state would count one batch too many. Therefore a standpipe loader tells Accelerate
that it is already prepared. It then does the work of Accelerate's loaders itself: it copies batches to the
accelerator's device, and reports the end of an epoch for gradient accumulation and ``gather_for_metrics``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Self

from torch.autograd.profiler import record_function

from standpipe.torch.batches import BatchDataset


class Profiled:
    """An iterator that torch's profiler shows as it shows torch's ``DataLoader``: the time spent in ``next()``."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with record_function("enumerate(DataLoader)#TorchLoader.__next__"):
            return self._batches.__next__()


class InAccelerate:
    """A base class with the attributes that Accelerate reads from a ``DataLoader``.

    end_of_dataloader  True if the batch that was delivered last is the last one of its epoch
    remainder          rows of the epoch's last batch, over all ranks, that aren't padding; −1: that batch is full.
                       The Trainer weighs a shorter batch's loss by it
    """

    dataset: BatchDataset
    end_of_dataloader = False
    remainder = -1
    # For ``skip_first_batches``, which makes a loader of Accelerate's around the dataset.
    rng_types = None
    synchronized_generator = None
    _was_prepared = False

    @property
    def device(self) -> Any:
        """The accelerator's device after ``Accelerator.prepare(loader)``; None before that call."""
        return _accelerate().PartialState().device if self._was_prepared else None

    @property
    def iteration(self) -> int:
        """Number of the epoch that the next ``iter()`` starts."""
        return self.dataset.next_epoch

    @property
    def _is_accelerate_prepared(self) -> bool:
        return _accelerate() is not None

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared: bool) -> None:
        self._was_prepared = prepared

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The loader's own class; with Accelerate in use, a subclass of it and of ``DataLoaderShard``.

        ``skip_first_batches`` tests for ``DataLoaderShard`` by ``isinstance``.
        """
        return type(self) if _accelerate() is None else _also_accelerates(type(self))

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after ``load_state_dict``, start the rest of the saved epoch."""
        batches = Profiled(iter(self.dataset))
        if self._was_prepared:
            return self._told(batches)
        self.dataset.warn_of_padding()
        return batches

    def _placed(self, batch: Any) -> Any:
        """Return a batch on the accelerator's device; without ``Accelerator.prepare`` as it is."""
        if not self._was_prepared:
            return batch
        from accelerate.utils import send_to_device

        return send_to_device(batch, self.device)

    def _told(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches on the accelerator's device, and keep Accelerate's position in the epoch up to
        date.
        """
        state = _accelerate().GradientState()
        self.end_of_dataloader, self.remainder = False, self.dataset.remainder
        state._add_dataloader(self)
        try:
            for batch in batches:
                self.end_of_dataloader = self.dataset.has_ended
                yield self._placed(batch)
        finally:
            state._remove_dataloader(self)


_classes: dict[type, type] = {}


def _accelerate() -> Any:
    """Return the module ``accelerate.state``; None while it isn't imported or has no state yet."""
    module = sys.modules.get("accelerate.state")
    return module if module is not None and module.PartialState._shared_state else None


def _also_accelerates(kind: type) -> type:
    """Return a subclass of ``kind`` and ``DataLoaderShard``. It serves ``isinstance`` and has no instances."""
    from accelerate.data_loader import DataLoaderShard

    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (kind, DataLoaderShard), {})
    return _classes[kind]
