"""A replacement for ``torch.utils.data.DataLoader``: the same arguments and order, with standpipe's workers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from torch.utils import data
from torch.utils.data import IterDataPipe, MapDataPipe, default_collate

import standpipe as sp
from standpipe.answers import answering
from standpipe.plan.options import RunArguments
from standpipe.torch.epoch import Course, DataLoaderIterator, ResumePoint, generator_state, set_state
from standpipe.torch.samples import Samples
from standpipe.torch.turns import shares_itself_out

STATE_VERSION = 2
DEFAULTS = sp.LoaderOptions()
RAISE = sp.Raise()
OTHERS = sp.Pipeline | sp.Loader | sp.ImageFolder | sp.FileList | sp.TarShards
Sample = TypeVar("Sample", covariant=True)


@answering
class DataLoader(data.DataLoader[Sample]):
    """torch's ``DataLoader`` with standpipe's engine: the same arguments, order and batches.

    It calls the sampler at the same moments as torch's loader, so the same sampler and generator give the same
    order. ``collate_fn`` makes a batch from samples; the default is torch's ``default_collate``.
    Workers write tensors, arrays and numbers of one shape straight into the batch's memory, without pickling.

    The random numbers of a data set in worker processes depend on (base seed, epoch, position), so the
    process that makes a sample doesn't matter. They differ from those of torch's workers. With
    ``num_workers=0``, and in threads, they are this process's own, as with torch.

    With ``worker_init_fn``, and a data set that isn't iterable, worker ``k % num_workers`` makes batch k, and
    its generators continue as ``worker_init_fn`` left them: the numbers are those of torch's workers. A state
    doesn't contain these generators; workers that resume from it seed them anew.

    For a Hugging Face data set of images, ``standpipe.HuggingFace`` is faster: it reads them without Python code.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, generator, worker_init_fn
        As for torch's ``DataLoader``.
    num_workers : int, default 0
        0: the thread that asks for a batch makes its samples. n: n processes do, each with a copy of the
        data set.
    executor : {"process", "thread"}, default "process"
        ``"thread"``: n threads instead of processes. They share the data set; ``get_worker_info()`` is None, and
        ``worker_init_fn`` raises ``PlanError``.
    timeout : float, default 0
        Seconds for one sample, after which it fails with ``StalledError``. 0: 120 seconds. Workers have
        ``stall_timeout_s`` to start.
    prefetch_factor : int, optional
        Number of batches for each worker that are requested from the sampler ahead of time. Default: as many
        as keep workers busy.
    persistent_workers : bool, default False
        False: each ``iter()`` starts workers with the data set as it is then.
    pin_memory : bool, default False
        Copy batches into torch's pinned memory, if there is an accelerator.
    multiprocessing_context : str, optional
        ``"fork"``: workers are forks of this process, so the data set needn't be pickled. It raises
        ``PlanError`` at ``iter()`` while standpipe has threads here. Any other context: workers come from a
        process that all loaders share.
    in_order : bool, default True
        Accepted for compatibility: batches always come in the sampler's order.
    split_by_worker : bool, optional
        True: an iterable data set divides itself among workers, by ``get_worker_info()`` or in
        ``worker_init_fn``. Each worker then reads its part, and they take turns, batch by batch. Default: as
        its code suggests; it is an error if all workers begin with the same batch.
    on_error : Replace or Raise, default Raise()
        ``standpipe.Replace(at_most=…)``: another sample of the same batch replaces a bad one, and
        ``bad_samples`` lists the bad one. Each worker then makes whole batches.
    share_lists : bool, default True
        Share long lists inside the data set with workers, instead of copying them.
    memory, prefetch, large_image_memory, memory_per_worker, batch_release_timeout_s
        As in ``Pipeline.loader``.
    slow_sample_s, stall_timeout_s, error_log
        As in ``Pipeline.loader``.

    Raises
    ------
    PlanError
        For arguments that standpipe doesn't support: datapipes, and an iterable data set that doesn't divide
        itself among several workers, so each would read all of it.
    ValueError
        As torch's ``DataLoader``.

    Examples
    --------
    >>> import torch, standpipe.torch
    >>> data = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    >>> loader = standpipe.torch.DataLoader(data, batch_size=4)
    >>> for x, y in loader:
    ...     print(y.tolist())
    [0, 1, 2, 3]
    [4, 5, 6, 7]
    [8, 9]
    """

    def __init__(
        self,
        dataset: data.Dataset[Sample],
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
        split_by_worker: bool | None = None,
        on_error: sp.Raise | sp.Replace = RAISE,
        share_lists: bool = True,
        memory: int | str | None = DEFAULTS.memory,
        prefetch: int | Literal["auto"] = DEFAULTS.prefetch,
        large_image_memory: int | str | None = DEFAULTS.large_image_memory,
        memory_per_worker: int | str | None = DEFAULTS.memory_per_worker,
        batch_release_timeout_s: float = DEFAULTS.batch_release_timeout_s,
        slow_sample_s: float = DEFAULTS.slow_sample_s,
        stall_timeout_s: float | None = DEFAULTS.stall_timeout_s,
        error_log: str | os.PathLike[str] | None = DEFAULTS.error_log,
    ) -> None:
        # Every argument becomes an attribute, as in torch's class: Lightning copies a loader by its attributes.
        self.executor, self.share_lists, self.split_by_worker = executor, share_lists, split_by_worker
        self.on_error, self.error_log, self.stall_timeout_s = on_error, error_log, stall_timeout_s
        self.memory, self.memory_per_worker, self.prefetch = memory, memory_per_worker, prefetch
        self.large_image_memory, self.slow_sample_s = large_image_memory, slow_sample_s
        self.batch_release_timeout_s = batch_release_timeout_s
        self._prefetches = prefetch_factor is not None
        super().__init__(
            _checked(dataset),
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
        self._prepare(collate_fn)

    def _prepare(self, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        """Check the arguments, and choose the error policy and the server that starts workers.

        collate_fn  the caller's argument; torch's attribute has ``default_collate`` in place of None
        """
        self._is_stream = isinstance(self.dataset, data.IterableDataset)
        self._check()
        self._policy = self._counted(self.on_error)
        self._course = Course(collates=not self._writes_rows)
        self._fork_server = sp.ForkServer.shared()
        if self.num_workers and self.executor == "process" and not self._forks:
            self._fork_server._held_by(self)
            self._fork_server = self._fork_server.preload(
                Samples, self.dataset, collate_fn, self.worker_init_fn
            )

    @property
    def _writes_rows(self) -> bool:
        """True if workers write rows into a batch's memory before all of its samples are made."""
        # Samples of one shape are written straight into the batch's memory. With batch_sampler or batch_size=None,
        # the shape may differ between batches.
        # With Replace, a sample of another shape would be replaced as bad, although it isn't.
        # To learn the shapes, one sample is made first. With num_workers=0, torch wouldn't make this extra call.
        by_row = self.collate_fn is default_collate and (self.batch_size or 1) > 1 and not self._is_stream
        return by_row and self.num_workers > 0 and not isinstance(self.on_error, sp.Replace)

    @property
    def bad_samples(self) -> list[sp.BadSample]:
        """Bad samples that were replaced in delivered batches; empty without ``on_error=Replace(…)``.

        These are the newest 1,000 of finished epochs, and the newest 1,000 of the current one.
        """
        return self._course.bad_samples

    def state_dict(self) -> dict[str, object]:
        """Return the position of the newest ``iter()`` as plain data.

        The state contains the number of delivered batches, and the generator's state before it drew the order.
        """
        place = self._course.place
        if self._course.saved is not None:
            place = self._course.saved
        elif place is not None and place.ended:
            place = self._next_epoch(place)
        if place is None:
            random = None if self.generator is None else generator_state(self.generator)
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

        The sampler draws the order again, from the generator's saved state. So pass the same ``generator=``,
        sampler and dataset. If the sampler has ``set_epoch``, call it before ``iter()``. Raises ``StateError``
        if ``state`` is no valid state. ``iter()`` raises ``StateError`` if the sampler gives another order.
        """
        kinds: dict[str, tuple[type, ...]] = {"random": (bytes, type(None)), "base_seed": (int, type(None))}
        if isinstance(state, Mapping) and state.get("base_seed") is not None:
            kinds |= {"random": (bytes, type(None)), "number": (int,), "delivered": (int,), "digest": (str,)}
        if (
            not isinstance(state, Mapping)
            or state.get("version") != STATE_VERSION
            or not all(type(state.get(name)) in kind for name, kind in kinds.items())
        ):
            raise sp.StateError(
                "this isn't a state of standpipe.torch.DataLoader, or another version saved it, or it is damaged. "
                "Give the dict that state_dict() returned"
            )
        saved: Any = state
        if saved["base_seed"] is not None:
            self._course.saved = ResumePoint(
                saved["random"], saved["base_seed"], saved["number"], saved["delivered"], saved["digest"]
            )
            return
        self._course.saved = self._course.place = None
        if saved["random"] is not None and self.generator is not None:
            set_state(self.generator, saved["random"])

    def _get_iterator(self) -> Any:
        """Return a new iterator for torch's ``__iter__``; with ``persistent_workers``, torch keeps using it."""
        return DataLoaderIterator(self)

    def _next_epoch(self, place: ResumePoint) -> ResumePoint | None:
        """Return the start of the epoch after ``place``; None without ``persistent_workers``.

        New workers get a new base seed, which isn't drawn yet.
        """
        if not self.persistent_workers:
            return None
        random = None if self.generator is None else generator_state(self.generator)
        return replace(place, random=random, number=place.number + 1, delivered=0, digest="", ended=False)

    def _counted(self, policy: sp.Raise | sp.Replace) -> sp.Raise | sp.Replace:
        """Return the error policy, with a fractional ``at_most`` turned into a number of samples.

        Raises ``TypeError`` if the sampler has no length.
        """
        if not isinstance(policy, sp.Replace) or not isinstance(policy.at_most, float) or self._is_stream:
            return policy
        sampler: Any = self.sampler
        return sp.Replace(at_most=max(1, math.ceil(policy.at_most * len(sampler))))

    def _engine_settings(self) -> dict[str, Any]:
        """Return the keyword arguments of ``Pipeline.loader`` that correspond to this loader's arguments."""
        own = RunArguments.__annotations__.keys() & vars(self).keys()
        settings: dict[str, Any] = {name: getattr(self, name) for name in own - {"num_workers", "executor"}}
        if self.num_workers == 0:
            return settings | {
                "executor": "inline",
                "check_generators": False,
            }  # as in torch: this process makes the samples
        settings["start_timeout_s"] = self.stall_timeout_s
        if self.timeout:
            settings["stall_timeout_s"] = self.timeout
        if self._prefetches and self.prefetch == "auto":
            settings["prefetch"] = self.num_workers * (self.prefetch_factor or 1)
        if self.executor == "process":
            settings["mp_context"] = "fork" if self._forks else self._fork_server
            if self.worker_init_fn is not None and not self._is_stream:
                settings["round_robin"] = True
        return settings | {"executor": self.executor, "num_workers": self.num_workers}

    @property
    def _limit(self) -> str:
        """Name of the argument that limits the time for a sample: ``"timeout"`` or ``"stall_timeout_s"``."""
        is_ours = not self.timeout and self.stall_timeout_s != DEFAULTS.stall_timeout_s
        return "stall_timeout_s" if is_ours else "timeout"

    @property
    def _makes_here(self) -> bool:
        """True if the thread that calls ``next()`` makes the batch itself, without standpipe's engine."""
        return self.num_workers == 0 and not self._is_stream and isinstance(self.on_error, sp.Raise)

    @property
    def _forks(self) -> bool:
        """True if workers are forks of this process."""
        context = self.multiprocessing_context
        return context is not None and context.get_start_method() == "fork"

    def _check(self) -> None:
        """Raise ``PlanError`` for arguments that standpipe doesn't support."""
        if self.executor not in ("process", "thread"):
            raise sp.PlanError(
                f"executor must be 'process' or 'thread', got {self.executor!r}. num_workers=0 runs inline"
            )
        if isinstance(self.dataset, IterDataPipe | MapDataPipe):
            raise sp.PlanError(
                "standpipe.torch.DataLoader can't run a datapipe, which shuffles and shards in torch's own workers. "
                "Use torch's DataLoader"
            )
        if self._is_stream and self.num_workers > 1:
            self._check_parts()
        if self.num_workers and self.executor == "thread" and self.worker_init_fn is not None:
            raise sp.PlanError(
                "worker_init_fn needs processes: with executor='thread', workers share this process and the dataset. "
                "Use executor='process', or leave worker_init_fn out"
            )

    def _check_parts(self) -> None:
        """Raise ``PlanError`` for an iterable data set that several workers can't read in parts."""
        splits = self.split_by_worker
        if splits is None:
            splits = shares_itself_out(self.dataset, self.worker_init_fn)
        if not splits:
            raise sp.PlanError(
                f"num_workers={self.num_workers} with an IterableDataset: each worker would read all of it, and every "
                f"sample would come {self.num_workers} times. Use num_workers=1, with which one worker reads it once. "
                "Or let it divide itself among workers by get_worker_info(); if it does so where standpipe can't see "
                "it, add split_by_worker=True. Or give a dataset with dataset[index]"
            )
        if self.executor == "thread" or self._forks:
            raise sp.PlanError(
                "an IterableDataset that divides itself among workers needs processes from a worker server. "
                "Leave out executor='thread' and multiprocessing_context='fork', or use num_workers=1"
            )


def _checked(dataset: data.Dataset[Sample]) -> data.Dataset[Sample]:
    """Return a data set. Raises ``PlanError`` for a class, and for what ``standpipe.torch.loader`` takes."""
    if isinstance(dataset, type):
        raise sp.PlanError(f"DataLoader({dataset.__name__}) got a class. Write {dataset.__name__}(…)")
    if isinstance(dataset, OTHERS):
        raise sp.PlanError(
            f"standpipe.torch.DataLoader() takes a data set of torch, got {type(dataset).__name__}. Write "
            "standpipe.torch.loader(pipeline), where sp.Pipeline(source).map(…).batch(…) is a pipeline"
        )
    return dataset
