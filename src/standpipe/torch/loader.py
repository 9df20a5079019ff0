"""Make a torch ``DataLoader`` from a pipeline, for training loops and frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

import standpipe as sp
from standpipe.torch.accelerate import InAccelerate
from standpipe.torch.batches import Batches, Order
from standpipe.torch.tensors import Form


class TorchLoader(InAccelerate, DataLoader[Any]):  # type: ignore[misc]  # torch has iterators of its own
    """A ``torch.utils.data.DataLoader`` whose batches standpipe makes; ``loader()`` gives one.

    Each ``iter()`` is the next epoch. ``len()`` is the batches of one, ``.dataset`` the ``Batches``, and
    ``.dataset.loader`` standpipe's own loader. ``batch_size`` is None, since the dataset's items are batches,
    and ``num_workers`` 0, since standpipe has its own.
    """

    dataset: Batches

    def __init__(self, dataset: Batches, **settings: Any) -> None:
        # Frameworks that put a loader together again say all of torch's settings.
        super().__init__(dataset, **{**settings, "batch_size": None})

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one."""
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, object]:
        """Where it stands, as plain data: batches that were delivered, none that are only prefetched."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on where ``state`` was saved. Raises ``StateError`` when it is another recipe's."""
        self.dataset.load_state_dict(state)

    def close(self) -> None:
        """End standpipe's threads and processes. Batches that were delivered stay valid."""
        self.dataset.loader.close()


def loader(
    pipeline: sp.Pipeline,
    *,
    device: torch.device | str | int = "cpu",
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    fields: Sequence[str] | Mapping[str, str] | str | None = ("image", "label"),
    shard: bool = True,
    device_prefetch: int = 1,
    static_buffers: bool = False,
    **settings: Any,
) -> TorchLoader:
    """A pipeline's batches as tensors, from a DataLoader that torch's own loops and frameworks know.

    device           where tensors are: ``"cpu"``, ``"cuda"`` for the process's current device when the loader starts,
                     ``"cuda:1"``, or another one that torch knows
    dtype            of floating-point fields, such as ``torch.bfloat16``; default: as the pipeline makes them
    memory_format    ``torch.channels_last``, of floating-point fields of four dimensions; default: likewise
    fields           of a batch: ``("image", "label")`` is a tuple of two tensors, ``"image"`` a tensor,
                     ``{"pixel_values": "image"}`` a dict with that key, and None a dict of all. ``"valid"``, (rows,)
                     bool, says which rows aren't padding: all where the pipeline pads nothing
    shard            whether each process gets its own part of the rows, where the pipeline doesn't say ``.shard(rank,
                     world_size)``: rank and world size are those of torch.distributed once it is initialised, else the
                     launcher's. False for a loader that gives every process all rows
    device_prefetch  batches that are brought to a CUDA device ahead of the one that the caller has, as bytes;
                     default: 1
    static_buffers   on a CUDA device, whether every batch lies where the one before it did and takes its place, for
                     steps that are captured in a CUDA graph
    settings         as of ``Pipeline.loader``: ``memory=``, ``num_workers=``, ``executor=``, …

    On the CPU a tensor shares the batch's memory. A CUDA device gets images as the bytes they were decoded
    to, where native code makes them: the next batch is copied from pinned memory while the step works on this
    one; normalising, dtype and memory format are one step there, on the caller's current stream, with the
    bits that the CPU gives. A batch is the caller's for as long as he holds it, in memory that torch gives.

    Raises as ``Pipeline.loader`` does, and ``PlanError`` for fields that
    there aren't.
    """
    form = Form.of(fields, device, dtype, memory_format)
    settings = {**settings, "device": form.place(prefetch=device_prefetch, static_buffers=static_buffers)}
    if pipeline.gpu is not None and form.device.type == "cuda":
        settings = {"decode_device": str(form.device), **settings}
    return TorchLoader(Batches(Order(pipeline, form, shard, settings)))
