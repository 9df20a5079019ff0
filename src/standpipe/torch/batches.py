"""A torch ``IterableDataset`` whose items are standpipe's batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import distributed
from torch.utils.data import IterableDataset, get_worker_info

import standpipe as sp
from standpipe.spec import LastBatch
from standpipe.torch.targets import TargetForm, Targets
from standpipe.torch.tensors import Form


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The arguments from which ``BatchDataset`` makes a ``standpipe.Loader``. They can be pickled.

    form      how a batch is returned: a tuple, dict or tensor, its device and dtype
    shards    True: each process of torch.distributed gets its own part, unless the pipeline is sharded
    settings  keyword arguments of ``Pipeline.loader``
    targets   the form of a batch for a detector; None: ``form`` is all
    """

    pipeline: sp.Pipeline
    form: Form
    shards: bool
    settings: Mapping[str, Any]
    targets: TargetForm | None = None

    def pipeline_of(self, rank: int, world_size: int) -> sp.Pipeline:
        """Return the pipeline for the process with this rank, sharded.

        Where a single process would pad the last batch by default, that batch is ``"partial"`` instead, as
        loops for torch expect. Only a device that needs batches of one shape keeps the padding.
        """
        part = replace(self.pipeline.shard(rank, world_size), delivered=self.form.delivered)
        drops = part.shuffled or isinstance(part.source, sp.Mixture)
        if part.last_batch is not None or drops or part.batch_sampler or part.batch_rows is None:
            return part
        if world_size > 1 or self.settings["device"].same_shapes:
            return part
        return replace(part, last_batch=LastBatch.PARTIAL)

    def part(self) -> tuple[int, int]:
        """Return (rank, world_size), by which this process's part of the rows is chosen.

        They come from the pipeline, else from torch.distributed if initialised, else from the launcher.
        """
        if self.pipeline.world_size > 1 or not self.shards:
            return self.pipeline.rank, self.pipeline.world_size
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        launched = self.pipeline.shard()
        return launched.rank, launched.world_size


class BatchDataset(IterableDataset[Any]):
    """A torch data set whose items are whole batches of tensors.

    ``torch.utils.data.DataLoader(batches, batch_size=None, num_workers=0)`` delivers them. Each ``iter()`` is
    the next epoch; each process gets its own part of the rows. A pickled copy contains its position in the run.

    Attributes
    ----------
    loader : standpipe.Loader
        The loader that makes the batches.

    Examples
    --------
    >>> import standpipe.torch
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> batches = standpipe.torch.loader(pipeline, memory="256MiB", num_workers=1).dataset
    >>> images, labels = batches.peek()
    >>> images.shape
    torch.Size([8, 32, 32, 3])
    """

    def __init__(self, order: LoaderSettings) -> None:
        super().__init__()
        self._order = order
        self._started = False
        self._entered: int | None = None  # the epoch of the last iter()
        self._resumed: int | None = None  # the epoch of a loaded state, until the next iter()
        self._warned = False
        self._targets: Targets | None = None
        self._form = order.form
        self._plan_for(order.part())

    @property
    def loader(self) -> sp.Loader:
        """The ``standpipe.Loader`` that makes the batches.

        It is planned again if rank or world size have changed before the first ``iter()``. A later change
        raises ``PlanError``.
        """
        part = self._order.part()
        if part != self._part:
            if self._started:
                raise sp.PlanError(
                    f"this process was rank {self._part[0]} of {self._part[1]} when the first batch was made, and is "
                    f"rank {part[0]} of {part[1]} now. Begin to iterate after torch.distributed is initialised"
                )
            state = self._loader.state_dict()
            self._plan_for(part)
            self._loader.load_state_dict(state)
        return self._loader

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, the same on every rank."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after ``load_state_dict``, start the rest of the saved epoch."""
        if (worker := get_worker_info()) is not None:
            raise sp.PlanError(
                f"a DataLoader with num_workers={worker.num_workers} would make every batch {worker.num_workers} "
                "times. standpipe has workers of its own: use num_workers=0 here, and loader(num_workers=…)"
            )
        loader = self.loader
        self._started, self._resumed = True, None
        batches = iter(loader)
        self._entered = loader.epoch
        return map(self._formed, batches)

    def peek(self) -> Any:
        """Return a copy of the next batch, without taking it, as ``standpipe.Loader.peek`` does."""
        return self._formed(self.loader.peek())

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next ``iter()`` starts."""
        epoch = self.loader.epoch
        return epoch + 1 if epoch == self._entered else epoch

    @property
    def has_ended(self) -> bool:
        """True if all batches of the epoch of the last ``iter()`` were delivered.

        For a stream this is known only when its iterator has raised ``StopIteration``.
        """
        return self.loader.epoch != self._entered

    @property
    def remainder(self) -> int:
        """Number of rows of all ranks in the last batch, padding not counted; −1 if that batch is full or unknown.

        Read it between ``iter()`` and the first batch: a resumed epoch may have another last batch.
        """
        plan, steps = self.loader.plan, self.loader.plan.steps
        if not plan.ends_known or steps.unit != "rows" or steps.last_batch.value == "drop":
            return -1
        consumed = cast("int", self.loader.state_dict()["consumed"])
        return (steps.num_positions - consumed) % steps.global_batch or -1

    def warn_of_padding(self) -> None:
        """Warn once if the last batch is padded and ``fields`` leaves out ``valid``, which marks the padding."""
        form, steps = self._order.form, self.loader.plan.steps
        padded = steps.last_batch.value == "pad" and steps.num_positions % steps.global_batch
        if self._warned or not padded or form.has_valid:
            return
        self._warned = True
        warnings.warn(
            f"the last batch of an epoch is filled up with samples that came before, and fields={form.fields!r} leaves "
            "out 'valid', which is False for them, so a loop that counts all rows counts them twice. Add the field, as "
            'in fields=("image", "label", "valid"), and count only valid rows, or leave the last rows out by '
            '.batch(…, last_batch="drop"). With Accelerate, prepare() the loader and use gather_for_metrics(), which '
            "leaves the padding out",
            stacklevel=3,
        )

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter()`` start epoch number ``epoch``, as ``standpipe.Loader.set_epoch`` does.

        Raises ``PlanError`` between ``load_state_dict`` and ``iter()`` if the state is of another epoch. A
        framework that counts epochs from 0 after a restart would otherwise undo the resume.
        """
        if self._resumed not in (None, epoch):
            raise sp.PlanError(
                f"set_epoch({epoch!r}) comes after load_state_dict() of epoch {self._resumed}. Let the "
                "framework continue "
                f"with that epoch, for example by set_epoch({self._resumed}) of the loader that it made"
            )
        self.loader.set_epoch(epoch)
        self._entered = None

    def state_dict(self) -> dict[str, object]:
        """Return the position in the run as plain data. It counts delivered batches, not prefetched ones."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume where ``state`` was saved. Raises ``StateError`` if another pipeline saved it."""
        self.loader.load_state_dict(state)
        self._resumed, self._entered = self.loader.epoch, None

    def __getstate__(self) -> tuple[LoaderSettings, dict[str, object]]:
        return self._order, self.state_dict()

    def __setstate__(self, saved: tuple[LoaderSettings, dict[str, object]]) -> None:
        order, state = saved
        self.__init__(order)  # type: ignore[misc]
        self.load_state_dict(state)

    def _plan_for(self, part: tuple[int, int]) -> None:
        self._part = part
        self._loader = self._order.pipeline_of(*part).loader(**self._order.settings)
        plan = self._loader.plan
        self._form = replace(self._order.form, kept=plan.batch.layout.kept)
        if not plan.batch.open:
            self._order.form.check([*plan.batch.layout.in_slot, *plan.batch.listed])
        if self._order.targets is not None:
            self._targets = Targets.of(self._order.targets, plan.batch.instances, plan.classes)

    def _formed(self, arrays: Mapping[str, Any]) -> Any:
        """Return a batch in the form that is asked for."""
        batch = self._form.batch(arrays)
        return batch if self._targets is None else self._targets.batch(batch)
