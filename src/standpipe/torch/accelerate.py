"""Present a loader to Hugging Face's Accelerate as a prepared one.

Accelerate's ``prepare`` would let one process read for all, or give each process every n-th batch, although standpipe
has divided the rows already: rows would be lost. Its loaders also hold one batch ahead, to notice the end of an
epoch, which standpipe knows: the delivered batches would be miscounted. So a loader says that it is prepared, and
does what Accelerate's loaders do: it puts batches on the accelerator's device and reports the end of an epoch, for
gradient accumulation and ``gather_for_metrics``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from standpipe.torch.batches import Batches


class InAccelerate:
    """The part of a loader of torch's that Accelerate asks.

    end_of_dataloader  whether the batch that was given last is its epoch's last
    remainder          rows of that one, of all ranks, that aren't padding; −1 where there is none
    """

    dataset: Batches
    end_of_dataloader = False
    remainder = -1
    # For ``skip_first_batches``, which makes a loader of Accelerate's around the dataset.
    rng_types = None
    synchronized_generator = None
    _was_prepared = False

    @property
    def device(self) -> Any:
        """The accelerator's, once ``prepare`` was asked; None before."""
        return _accelerate().PartialState().device if self._was_prepared else None

    @property
    def iteration(self) -> int:
        """The epoch that the next ``iter()`` gives."""
        return self.dataset.next_epoch

    @property
    def _is_accelerate_prepared(self) -> bool:
        return _accelerate() is not None

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared: bool) -> None:
        self._was_prepared = prepared

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """A class that also derives from Accelerate's loader, for ``skip_first_batches``."""
        return type(self) if _accelerate() is None else _also_accelerates(type(self))

    def __iter__(self) -> Iterator[Any]:
        """The next epoch; after ``load_state_dict`` the rest of the saved one."""
        batches = iter(self.dataset)
        return self._told(batches) if self._was_prepared else batches

    def _told(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches on the accelerator's device, and keep Accelerate's position in the epoch up to
        date.
        """
        from accelerate.utils import send_to_device

        state, device = _accelerate().GradientState(), self.device
        self.end_of_dataloader, self.remainder = False, self.dataset.padded_remainder
        state._add_dataloader(self)
        try:
            for batch in batches:
                self.end_of_dataloader = self.dataset.has_ended
                yield send_to_device(batch, device)
        finally:
            state._remove_dataloader(self)


_classes: dict[type, type] = {}


def _accelerate() -> Any:
    """The module that has Accelerate's state, once there is any; None before."""
    module = sys.modules.get("accelerate.state")
    return module if module is not None and module.PartialState._shared_state else None


def _also_accelerates(kind: type) -> type:
    """Return a class that derives from both, for ``isinstance``. It has no instances."""
    from accelerate.data_loader import DataLoaderShard

    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (kind, DataLoaderShard), {})
    return _classes[kind]
