"""``torch.utils.data.DataLoader`` is watched as soon as the script imports it: its epochs, its steps, its workers."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from . import fetching, holdings, prints
from .record import Record

EPOCHS = 2  # that are watched of each loader,
MOST_EPOCHS = 12  # or so many where they are short
OTHERS = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__), "<")  # noqa: PTH100, PTH120
ITERABLE = 1  # torch.utils.data._DatasetKind.Iterable
KNOWN_THREADS = (
    "TMonitor",
    "_RefreshThread",
    "QueueFeederThread",
    "_pin_memory_loop",
)  # of tqdm, rich, torch


class Watch:
    """The known facts about the loaders of the script's main process.

    steps      batches of an epoch after which it is cut short
    seconds    time from the first epoch on, after which any epoch is cut short
    begins     a pipe that learns of the first epoch
    enough     called when everything has been seen
    """

    def __init__(
        self, record: Record, *, steps: int, seconds: float, begins: int, enough: Callable[[], None]
    ) -> None:
        self.record = record
        self.steps = steps
        self.seconds = seconds
        self.until = math.inf
        self.begins = begins
        self.enough = enough
        self.cut = False  # whether any epoch was
        self.sites: dict[int, str] = {}  # by id of the loader
        self.loaders: dict[tuple[Any, ...], int] = {}  # numbers
        self.epochs: dict[int, int] = {}
        self.batches: dict[int, int] = {}  # of all epochs
        self.own: dict[
            str, Any
        ] = {}  # plans of standpipe's loaders that run code in the script's process, by site
        self.torch: Any = None

    def install(self, module: Any) -> None:
        """Patch the classes of ``torch.utils.data.dataloader``."""
        self.torch = sys.modules["torch"]
        loader, base = module.DataLoader, module._BaseDataLoaderIter
        self._around(loader, "__init__", self._made)
        self._around(loader, "__iter__", self._iterated)
        self._around(base, "__next__", self._stepped)
        self._around(module._MultiProcessingDataLoaderIter, "__init__", self._workers)
        instrument(module, self.record)

    def install_own(self, module: Any) -> None:
        """Patch the class of ``standpipe.loader.loader``."""
        self._around(module.Loader, "__init__", self._planned)

    def _planned(self, inner: Any, loader: Any, plan: Any) -> None:
        inner(loader, plan)
        if plan.probes:
            self.own[site()] = plan

    def _around(self, kind: Any, name: str, around: Callable[..., Any]) -> None:
        inner = getattr(kind, name)

        def call(owner: Any, *values: Any, **named: Any) -> Any:
            return around(inner, owner, *values, **named)

        call.__wrapped__ = inner  # type: ignore[attr-defined]
        setattr(kind, name, call)

    def _made(self, inner: Any, loader: Any, *values: Any, **named: Any) -> None:
        inner(loader, *values, **named)
        self.sites[id(loader)] = site()

    def _iterated(self, inner: Any, loader: Any) -> Any:
        if any(type(each).__module__.startswith("standpipe.") for each in (loader, loader.dataset)):
            self.record.write("own")
            return inner(loader)
        self._begin()
        number = self._number(loader)
        epoch = self.epochs[number] = self.epochs.get(number, -1) + 1
        if epoch >= (EPOCHS if self._has_seen(number) else MOST_EPOCHS):
            self.enough()
        begin = time.monotonic()
        current.loader, current.epoch = number, epoch
        current.worker = fetching.NO_WORKER
        iterator = inner(loader)
        state = {"loader": number, "epoch": epoch, "begin": begin, "returned": None, "batches": 0}
        iterator.__dict__["_standpipe"] = state
        return iterator

    def _has_seen(self, number: int) -> bool:
        """Return True if a loader's epochs together had the batches of a whole one, or the time is over."""
        return self.batches.get(number, 0) >= self.steps or time.monotonic() > self.until

    def _begin(self) -> None:
        if self.until == math.inf:
            self.until = time.monotonic() + self.seconds
            os.write(self.begins, b"1")
            os.close(self.begins)

    def _number(self, loader: Any) -> int:
        """Return a loader's number: the same for one that is made anew in each epoch."""
        where = self.sites.get(id(loader)) or site()
        alike = (where, type(loader.dataset), _length(loader.dataset), loader.batch_size, loader.num_workers)
        number = self.loaders.get(alike)
        if number is None:
            number = self.loaders[alike] = len(self.loaders)
            same = sum(other[0] == where for other in self.loaders)
            name = where if same == 1 else f"{where} #{same}"
            self.record.write("loader", loader=number, site=name, **described(loader, self.torch))
        return number

    def _stepped(self, inner: Any, iterator: Any) -> Any:
        state = iterator.__dict__.get("_standpipe")
        if state is None:
            return inner(iterator)
        begin = time.monotonic()
        fetching.overhead.seconds = 0.0
        if state["batches"] >= self.steps or begin > self.until:
            self.cut = True
            raise StopIteration
        try:
            batch = inner(iterator)
        except StopIteration:
            self.record.write("ended", loader=state["loader"], epoch=state["epoch"])
            raise
        except Exception as error:
            self.record.write(
                "failed",
                loader=state["loader"],
                epoch=state["epoch"],
                type=type(error).__name__,
                message=str(error)[:2000],
            )
            raise
        now = time.monotonic()
        first = state["returned"] is None
        self.record.write(
            "step",
            loader=state["loader"],
            epoch=state["epoch"],
            wait_s=now - (state["begin"] if first else begin) - fetching.overhead.seconds,
            step_s=None if first else begin - state["returned"],
            bytes=prints.size(batch),
            cpu_s=time.process_time(),
            at=now,
        )
        state["batches"] += 1
        self.batches[state["loader"]] = self.batches.get(state["loader"], 0) + 1
        state["returned"] = time.monotonic()
        return batch

    def _workers(self, inner: Any, iterator: Any, loader: Any) -> None:
        method = _start_method(loader)
        others = [each for each in threading.enumerate() if each is not threading.main_thread()]
        self.record.write(
            "workers",
            loader=current.loader,
            epoch=current.epoch,
            method=method,
            threads=[
                each.name
                for each in others
                if type(each).__name__ not in KNOWN_THREADS
                and not any(known in each.name for known in KNOWN_THREADS)
            ],
            cuda=bool(self.torch.cuda.is_initialized()),
        )
        own = loader.worker_init_fn
        loader.worker_init_fn = WorkerStart(self.record, current.loader, current.epoch, own)
        try:
            inner(iterator, loader)
        finally:
            loader.worker_init_fn = own


class Current:
    """The sample that this process makes next."""

    loader = -1
    epoch = 0
    worker = fetching.NO_WORKER


current = Current()


class WorkerStart:
    """Runs first in each worker, in place of the script's ``worker_init_fn``, which it calls."""

    def __init__(self, record: Record, loader: int, epoch: int, own: Any) -> None:
        self.folder, self.rank = record.folder, record.rank
        self.loader, self.epoch, self.own = loader, epoch, own

    def __call__(self, worker: int) -> None:
        """Run in the worker when it starts."""
        if self.own is not None:
            self.own(worker)
        module = sys.modules["torch.utils.data.dataloader"]
        if not hasattr(module._DatasetKind, "_standpipe"):  # started by spawn: nothing is patched yet
            instrument(module, Record(self.folder, self.rank))
        current.loader, current.epoch, current.worker = self.loader, self.epoch, worker


def instrument(module: Any, record: Record) -> None:
    """Have every fetcher that this process makes watched."""
    kind = module._DatasetKind
    create = kind.create_fetcher

    def created(which: int, dataset: Any, *rest: Any) -> Any:
        # Before the fetcher is there: an iterable dataset's first samples may be drawn when its iterator is made.
        maker = None
        if current.loader >= 0:
            place = (current.loader, current.epoch, current.worker)
            maker = fetching.Maker(record, *place, dataset, which == ITERABLE)
        fetcher = create(which, dataset, *rest)
        if maker is not None:
            fetching.watch(fetcher, maker)
        current.epoch += 1  # a worker that stays makes another fetcher for its next epoch
        return fetcher

    kind.create_fetcher = staticmethod(created)
    kind._standpipe = True


def described(loader: Any, torch: Any) -> dict[str, Any]:
    """Describe a loader's settings, and what its dataset holds."""
    dataset = loader.dataset
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    world_size = 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world_size = torch.distributed.get_world_size()
    return {
        "dataset": type(dataset).__name__,
        "iterable": loader._dataset_kind == ITERABLE,
        "samples": _length(dataset),
        "batches": _length(loader),
        "sampler": type(sampler).__name__,
        "sampled": _length(sampler),
        "workers": loader.num_workers,
        "batch": loader.batch_size,
        "prefetch": loader.prefetch_factor,
        "persistent": bool(loader.persistent_workers),
        "pinned": bool(loader.pin_memory),
        "method": _start_method(loader) if loader.num_workers else None,
        "world_size": world_size,
        "holdings": holdings.holdings(dataset),
        "cuda_path": holdings.on_cuda(dataset),
        "collate": getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__),
    }


def _start_method(loader: Any) -> str:
    import multiprocessing

    context = loader.multiprocessing_context
    return str((context or multiprocessing).get_start_method())


def _length(value: Any) -> int | None:
    with contextlib.suppress(Exception):  # whatever a class of the script's own raises
        return len(value)
    return None


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def site() -> str:
    """The line of the script, or of what it imports, that is at work: not of torch, and not ours."""
    standpipe = getattr(sys.modules.get("standpipe"), "__file__", None)
    others = OTHERS if standpipe is None else (*OTHERS, os.path.dirname(standpipe))  # noqa: PTH120
    stack = traceback.extract_stack()
    own = [
        frame
        for frame in stack
        if not frame.filename.startswith(others) and not _is_installed(frame.filename)
    ]
    frame = own[-1] if own else stack[0]
    return f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119
