"""The drop-in for ``torch.utils.data.DataLoader``: its arguments, its order, penstock's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch.utils import data
from torch.utils.data import IterDataPipe, MapDataPipe, default_collate

import penstock as ps
from penstock.torch.epoch import Course, Epoch, Place, set_state, state_of

STATE_VERSION = 1
SETTINGS = {  # of penstock's own loader, beside those that arguments of torch's stand for
    "memory",
    "depth",
    "side_memory",
    "worker_memory",
    "lend_wait_s",
    "slow_after_s",
    "stall_timeout_s",
}


class DataLoader(data.DataLoader[Any]):
    """``torch.utils.data.DataLoader`` with penstock's engine: the same arguments, order and batches.

    It draws the sampler's batches when and as torch's does, so the same sampler and generator give the same order, and
    what it returns is what ``collate_fn`` makes of the samples, by default torch's ``default_collate``. Tensors,
    arrays and numbers of one shape are written into the batch's memory by the workers themselves, without being
    pickled and without /dev/shm.

    num_workers              0: samples are made in the thread that asks for a batch. n: in n processes, each with a
                             copy of the dataset, which this process never calls
    executor                 ``"thread"``: in n threads instead, which share the dataset; then ``get_worker_info()`` is
                             None, and ``worker_init_fn`` a ``PlanError``
    timeout                  seconds for one sample, after which it is given up with ``StalledError``; 0: 120
    prefetch_factor          batches of each worker that the sampler is asked for ahead; given, so many are in memory
                             too, else as many as keep the workers busy
    persistent_workers       False: each ``iter()`` starts workers, with the dataset as it is then
    pin_memory               batches are copied into torch's pinned memory, where there is an accelerator
    multiprocessing_context  ``"fork"``: workers are forks of this process, whose dataset needn't be pickled; a
                             ``PlanError`` at ``iter()`` while penstock has threads here. Else they come from a process
                             of the loader's own, which ends with it, whatever the context
    in_order                 batches always come in their order
    pack                     whether long lists inside the dataset are packed on the way to workers, as ``Indexed`` says
    settings                 ``memory=``, ``depth=``, ``side_memory=``, ``worker_memory=``, ``lend_wait_s=``,
                             ``slow_after_s=``, ``stall_timeout_s=``, as of ``Pipeline.loader``

    Random numbers that the dataset draws are seeded for each sample by (base seed, epoch, place): who makes it and in
    which process makes no difference, and so they are others than torch's workers would draw.

    Raises what torch's raises for arguments that can't be, and ``PlanError`` for what can't be honoured: an iterable
    dataset with several workers, which would each read all of it; and datapipes.
    """

    def __init__(
        self,
        dataset: data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: data.Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: data.Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        executor: Literal["process", "thread"] = "process",
        pack: bool = True,
        **settings: Any,
    ) -> None:
        self._executor, self._pack, self._settings = executor, pack, settings
        self._prefetches = prefetch_factor is not None
        self._fork_server = ps.ForkServer()  # so that only the first epoch waits for imports
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._is_stream = isinstance(dataset, data.IterableDataset)
        self._check()
        # Rows of one shape that meet in a batch are written where it has them. Of batches that a sampler makes, and
        # of single samples, each may have a shape of its own.
        by_row = self.collate_fn is default_collate and (self.batch_size or 1) > 1 and not self._is_stream
        self._course = Course(collates=not by_row)

    def state_dict(self) -> dict[str, object]:
        """Where it stands, as plain data: batches of the epoch that were delivered, and what its order was drawn from.

        Of the ``iter()`` that was begun last.
        """
        place = self._course.place
        if self._course.saved is not None:
            place = self._course.saved
        elif place is not None and place.ended:
            place = self._next_epoch(place)
        if place is None:
            random = None if self.generator is None else state_of(self.generator)
            return {"version": STATE_VERSION, "random": random, "base_seed": None}
        return {
            "version": STATE_VERSION,
            "random": place.random,
            "base_seed": place.base_seed,
            "number": place.number,
            "delivered": place.delivered,
            "digest": place.digest,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Let the next ``iter()`` give the rest of the epoch in which ``state`` was saved.

        Its order is drawn again from the generator as it stood then, so ``generator=``, the sampler and the dataset are
        to be the same. Samplers with a ``set_epoch`` are to be told the epoch before. Raises ``StateError`` for
        what is no state; ``iter()`` does when the sampler gives another order than it gave.
        """
        kinds: dict[str, tuple[type, ...]] = {"random": (bytes, type(None)), "base_seed": (int, type(None))}
        if isinstance(state, Mapping) and state.get("base_seed") is not None:
            kinds |= {"random": (bytes, type(None)), "number": (int,), "delivered": (int,), "digest": (str,)}
        if (
            not isinstance(state, Mapping)
            or state.get("version") != STATE_VERSION
            or not all(type(state.get(name)) in kind for name, kind in kinds.items())
        ):
            raise ps.StateError(
                "this is no state of penstock.torch.DataLoader, or it is damaged: it is a dict as state_dict() gives it"
            )
        saved: Any = state
        if saved["base_seed"] is not None:
            self._course.saved = Place(
                saved["random"], saved["base_seed"], saved["number"], saved["delivered"], saved["digest"]
            )
            return
        self._course.saved = self._course.place = None
        if saved["random"] is not None and self.generator is not None:
            set_state(self.generator, saved["random"])

    def _get_iterator(self) -> Any:
        """What torch's ``__iter__`` gives, again and again while workers stay."""
        return Epoch(self)

    def _next_epoch(self, place: Place) -> Place | None:
        """The beginning of the epoch after one; None where nothing of the next one is known."""
        if not self.persistent_workers:
            return None
        random = None if self.generator is None else state_of(self.generator)
        return replace(place, random=random, number=place.number + 1, delivered=0, digest="", ended=False)

    def _engine_settings(self) -> dict[str, Any]:
        """Settings of penstock's own loader."""
        settings = dict(self._settings)
        if self.num_workers == 0:
            return settings | {"executor": "inline"}
        if self.timeout:
            settings["stall_timeout_s"] = self.timeout
        if self._prefetches:
            settings.setdefault("depth", 1 + self.num_workers * (self.prefetch_factor or 1))
        if self._executor == "process":
            settings["fork_from"] = "trainer" if self._forks else self._fork_server
        return settings | {"executor": self._executor, "workers": self.num_workers}

    @property
    def _forks(self) -> bool:
        """Whether workers are to be forks of this process."""
        context = self.multiprocessing_context
        return context is not None and context.get_start_method() == "fork"

    def _check(self) -> None:
        """Raise for what can't be honoured."""
        if unknown := self._settings.keys() - SETTINGS:
            known = ", ".join(f"{name}=" for name in sorted(SETTINGS))
            raise TypeError(
                f"no argument of DataLoader: {', '.join(sorted(unknown))}; beside torch's there are {known}"
            )
        if self._executor not in ("process", "thread"):
            raise ps.PlanError(f"executor={self._executor!r}: 'process' or 'thread'; num_workers=0 is inline")
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            raise ps.PlanError(
                "a datapipe shuffles and shards in torch's own workers: use torch's DataLoader"
            )
        if self._is_stream and self.num_workers > 1:
            raise ps.PlanError(
                f"num_workers={self.num_workers} with an IterableDataset: each worker would read all of it, and every "
                f"sample come {self.num_workers} times, unless it shares itself out. Say num_workers=1: one worker "
                "reads it once, and get_worker_info() says so to one that shares itself out. Or give a dataset with "
                "dataset[index], which any number of workers can share"
            )
        if self.num_workers and self._executor == "thread" and self.worker_init_fn is not None:
            raise ps.PlanError(
                "worker_init_fn with executor='thread': threads share this process and the dataset, so there is "
                "nothing to set up for each; use processes, or leave it out"
            )
