"""Make a torch ``DataLoader`` from a pipeline, for training loops and frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import torch
from torch.utils.data import DataLoader

import standpipe as sp
from standpipe.answers import answering
from standpipe.loader.wrapping import WrapsLoader
from standpipe.plan.options import RunArguments
from standpipe.torch.accelerate import InAccelerate
from standpipe.torch.batches import BatchDataset, LoaderSettings
from standpipe.torch.targets import TargetForm, check_targets
from standpipe.torch.tensors import Form

FIELDS = ("image", "label")


class TorchLoader(WrapsLoader, InAccelerate, DataLoader[Any]):  # type: ignore[misc]  # torch has iterators of its own
    """A ``torch.utils.data.DataLoader`` whose batches standpipe makes. ``standpipe.torch.loader`` makes it.

    Each ``iter()`` is the next epoch, and ``len()`` its number of batches. ``batch_size`` is None, because
    the data set's items are batches, and ``num_workers`` is 0, because standpipe has its own workers.

    Attributes
    ----------
    dataset : BatchDataset
        The data set of batches, whose ``len()`` counts batches, not rows. ``dataset.loader`` is the
        ``standpipe.Loader``.

    Examples
    --------
    >>> import torch, standpipe.torch
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> batches = standpipe.torch.loader(pipeline, memory="256MiB", num_workers=1)
    >>> isinstance(batches, torch.utils.data.DataLoader), len(batches)
    (True, 3)
    """

    dataset: BatchDataset

    def __init__(self, dataset: BatchDataset, **settings: Any) -> None:
        # Frameworks copy a loader by passing all of torch's arguments again, also batch_size.
        super().__init__(dataset, **{**settings, "batch_size": None})

    @property
    def _wrapped(self) -> sp.Loader:
        return self.dataset.loader

    def peek(self) -> Any:
        """Return a copy of the next batch, without taking it, as ``standpipe.Loader.peek`` does.

        Raises the same errors. After ``Accelerator.prepare`` the batch is on the accelerator's device.
        """
        return self._placed(self.dataset.peek())

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter()`` start epoch number ``epoch``."""
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, object]:
        """Return the position in the run as plain data. It counts delivered batches, not prefetched ones."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume where ``state`` was saved. Raises ``StateError`` if another pipeline saved it."""
        self.dataset.load_state_dict(state)


@answering
def loader(
    pipeline: sp.Pipeline,
    *,
    device: torch.device | str | int = "cpu",
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    fields: Sequence[str] | Mapping[str, str] | str | None = FIELDS,
    targets: TargetForm | None = None,
    shard: bool = True,
    device_prefetch: int = 1,
    static_buffers: bool = False,
    **settings: Unpack[RunArguments],
) -> TorchLoader:
    """Return a ``DataLoader`` of a pipeline's batches, for torch's own loops and frameworks.

    On the CPU a tensor shares the batch's memory. A CUDA device gets images as bytes: standpipe copies the
    next batch from pinned memory while the training step runs. One kernel on the device, on the current
    stream, then applies normalisation, dtype and memory format. Its results have the same bits as on the CPU.

    A pipeline without ``shuffle`` and ``last_batch=`` ends with a smaller batch in one process, so that a loop
    that counts rows counts each once. In several processes, and with ``static_buffers``, the last batch is
    padded; if ``fields`` leaves out ``valid`` there, the loader warns once.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    device : str or torch.device, default "cpu"
        The place of the tensors. ``"cuda"``: the current device when the loader starts.
    dtype : torch.dtype, optional
        The dtype of floating-point fields, such as ``torch.bfloat16``. Default: as the pipeline makes them.
    memory_format : torch.memory_format, optional
        The layout of floating-point fields with four axes. Default: as the pipeline makes them.
    fields : tuple, str, mapping or None, default ("image", "label")
        The form of a batch: ``("image", "label")`` is a tuple of two tensors, ``"image"`` a tensor,
        ``{"pixel_values": "image"}`` a dict with that key, None a dict of all fields. ``"valid"``, (rows,)
        bool, is False for padding.
    targets : {"torchvision", "detr", "yolo"}, optional
        In place of ``fields``, the form of a batch for a detector, of a source with boxes:

        - ``"torchvision"``: a list of images (C, H, W) and a list of dicts with ``boxes`` (M, 4) float32, xyxy in
          pixels, ``labels`` (M,) int64 and the other fields of instances, ``image_id``, ``orig_size``,
          ``to_original``, ``masks`` (M, H, W) uint8 with ``batch(masks="dense")``, and ``valid`` where rows are
          padding,
        - ``"detr"``: images (rows, C, H, W), a mask (rows, H, W) bool that is True for padding, and such a list, in
          which ``boxes`` are centre x and y, width and height, as fractions of the image without padding, and
          ``size`` is its height and width,
        - ``"yolo"``: a dict with ``img``, ``cls`` (total, 1), ``bboxes`` (total, 4) as such fractions,
          ``batch_idx`` (total,), ``keypoints``, ``ori_shape``, ``resized_shape`` and ``ratio_pad``; and ``masks``,
          which is the index map, with the classes of its pixels as ``sem_masks``.

        ``standpipe.boxes_to_original`` takes boxes back to the stored images.
    shard : bool, default True
        Give each process its own part of the rows, if the pipeline has no ``.shard(rank, world_size)``. Rank
        and world size come from torch.distributed if it is initialised, else from the launcher. False: every
        process gets all rows.
    device_prefetch : int, default 1
        Batches that are copied to a CUDA device ahead of the one that the caller has.
    static_buffers : bool, default False
        On a CUDA device: every batch is at the same address and replaces the one before, for steps in a CUDA
        graph.
    **settings
        Arguments of ``Pipeline.loader``: ``memory=``, ``num_workers=``, …

    Returns
    -------
    TorchLoader

    Raises
    ------
    PlanError
        For unknown fields; for ``targets`` with a source without boxes, or whose labels don't suit the detectors;
        else as ``Pipeline.loader``.

    Examples
    --------
    >>> import standpipe.torch
    >>> train = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(sp.RandomResizedCrop(32), sp.Normalize())
    >>> for images, labels in standpipe.torch.loader(train.batch(8), memory="256MiB", num_workers=1):
    ...     shapes = images.shape, labels.shape
    >>> shapes
    (torch.Size([8, 3, 32, 32]), torch.Size([8]))
    """
    given: Any = pipeline
    if not isinstance(given, sp.Pipeline):
        raise sp.PlanError(
            f"standpipe.torch.loader() takes a Pipeline, got {type(given).__name__}. Write "
            "sp.Pipeline(source).map(…).batch(…), or standpipe.torch.DataLoader(dataset, …) for a data set of torch"
        )
    if targets is not None:
        check_targets(targets)
        if fields is not FIELDS:
            raise sp.PlanError(
                f"targets={targets!r} has the form of a batch already: leave fields={fields!r} out"
            )
        fields = None
    form = Form.of(fields, device, dtype, memory_format)
    place = form.place(prefetch=device_prefetch, static_buffers=static_buffers)
    return TorchLoader(
        BatchDataset(LoaderSettings(pipeline, form, shard, {**settings, "device": place}, targets))
    )
