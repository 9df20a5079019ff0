"""Watch the code that makes a batch's samples, in worker processes and in the main process.

torch makes a fetcher wherever samples are made, once for each epoch. Its dataset and its collate function are
replaced by ones that pass everything on: the script's own objects stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from . import holdings, prints, timed
from .record import Memory, Record, anonymous, queued

FEW = 64  # of a batch's samples have their numbers written down
SAMPLES_PRINTED = 16  # and so many their fingerprints
MANY = 4  # batches of a worker of which samples have fingerprints
NO_WORKER = -1


class Overhead:
    """Seconds that the probe itself took for batches of this process, which a loop mustn't seem to wait for."""

    seconds = 0.0


overhead = Overhead()


class Maker:
    """One worker's part of one epoch, or the main process's where a loader has no workers.

    random  a state for every generator that samples may use, before the first
    """

    def __init__(
        self, record: Record, loader: int, epoch: int, worker: int, dataset: Any, iterable: bool
    ) -> None:
        self.record = record
        self.loader = loader
        self.epoch = epoch
        self.worker = worker
        self.iterable = iterable
        self.batches = 0
        self.dataset = dataset
        self._generators = holdings.generators(dataset)
        self._random = self._states()
        self._memory = Memory()
        self.began = (0.0, 0.0)
        self.seconds = 0.0
        self.slowest: tuple[Any, float] = (None, 0.0)
        self.took: list[float] = []
        self.samples: list[tuple[Any, Any]] = []
        record.write("maker", **self._who(), random=self._random, memory=self._memory.now())
        self._begin_batch()

    def sample(self, index: Any, make: Any) -> Any:
        """Make one sample, and note how long it takes and what goes wrong."""
        self.record.at(index)
        begin = time.perf_counter()
        try:
            sample = make()
        except StopIteration:
            raise
        except Exception as error:
            self.bad(index, error, where="sample")
            raise
        finally:
            took = time.perf_counter() - begin
            self.record.at(None)
            self.seconds += took
            if took > self.slowest[1]:
                self.slowest = (index if isinstance(index, int) else str(index)[:80], took)
        self.took.append(took)
        self.samples.append((index, sample))
        return sample

    def collated(self, collate: Any, data: Any) -> Any:
        """Make the batch of its samples, then write down all that is known of it."""
        begin = time.perf_counter()
        try:
            batch = collate(data)
        except Exception as error:
            self.bad(None, error, where="collate")
            raise
        self._end_batch(time.perf_counter() - begin)
        return batch

    def bad(self, index: Any, error: Exception, *, where: str) -> None:
        """Write down an exception of the script's own code."""
        path = None if index is None else path_of(self.dataset, index) or getattr(error, "filename", None)
        self.record.write(
            "bad",
            **self._who(),
            index=index,
            path=path,
            type=type(error).__name__,
            message=str(error)[:500],
            where=where,
            shapes=[(at, prints.shapes(sample)) for at, sample in self.samples] if where == "collate" else [],
            paths=[path_of(self.dataset, at) for at, _ in self.samples] if where == "collate" else [],
        )

    def _begin_batch(self) -> None:
        self.began = (time.process_time(), queued())
        self.seconds = 0.0
        self.slowest = (None, 0.0)
        self.took = []
        self.samples = []
        timed.spent.clear()

    def _end_batch(self, collate_s: float) -> None:
        begin = time.monotonic()
        cpu_s, queued_s = time.process_time() - self.began[0], queued() - self.began[1]
        few = self.samples[:FEW]
        shown = few[:SAMPLES_PRINTED] if self.iterable and self.batches < MANY else []
        states = self._states() if self.batches == 0 else {}
        self.record.write(
            "made",
            **self._who(),
            samples=len(self.samples),
            indices=[index for index, _ in few if isinstance(index, int)],
            prints=[prints.of_sample(sample) for _, sample in shown],
            seconds=self.seconds,
            cpu_s=cpu_s,
            queued_s=queued_s,
            collate_s=collate_s,
            slowest=self.slowest,
            median_s=sorted(self.took)[len(self.took) // 2] if self.took else 0.0,
            transforms=dict(timed.spent),
            drawn=[name for name, state in states.items() if state != self._random.get(name)],
            memory=self._memory.now(),
            anonymous=anonymous(),
        )
        self.batches += 1
        overhead.seconds += time.monotonic() - begin
        self._begin_batch()

    def _states(self) -> dict[str, str]:
        own = {path: prints.of_generator(each) for path, each in self._generators.items()}
        return {**prints.of_globals(), **own}

    def _who(self) -> dict[str, int]:
        return {"loader": self.loader, "epoch": self.epoch, "worker": self.worker}


class Watched:
    """A dataset whose samples are watched. Anything else asked of it is the dataset's own answer."""

    def __init__(self, dataset: Any, maker: Maker) -> None:
        self._dataset = dataset
        self._maker = maker
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = self._several

    def __getitem__(self, index: Any) -> Any:
        return self._maker.sample(index, lambda: self._dataset[index])

    def _several(self, indices: Any) -> Any:
        """Samples of a dataset that makes many at once. Each is taken to take as long as the others."""
        maker = self._maker
        begin = time.perf_counter()
        try:
            samples = self._dataset.__getitems__(indices)
        except Exception as error:
            index, cause = self._culprit(indices) or (list(indices), error)
            maker.bad(index, cause, where="sample")
            raise
        took = time.perf_counter() - begin
        maker.seconds += took
        maker.took += [took / max(len(indices), 1)] * len(indices)
        maker.samples += zip(indices, samples, strict=False)
        return samples

    def _culprit(self, indices: Any) -> tuple[Any, Exception] | None:
        """Return the first of several samples that raises by itself, and its error."""
        for index in indices:
            try:
                self._dataset[index]
            except Exception as error:
                return index, error
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class WatchedIterator:
    """The iterator of an iterable dataset."""

    def __init__(self, iterator: Iterator[Any], maker: Maker) -> None:
        self._iterator = iterator
        self._maker = maker
        self._number = 0

    def __iter__(self) -> WatchedIterator:
        return self

    def __next__(self) -> Any:
        number = self._number
        self._number += 1
        return self._maker.sample(number, lambda: next(self._iterator))


def watch(fetcher: Any, maker: Maker) -> None:
    """Have a fetcher's samples and batches watched."""
    timed.time_transforms(maker.dataset)
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = WatchedIterator(fetcher.dataset_iter, maker)
    else:
        fetcher.dataset = Watched(fetcher.dataset, maker)
    collate = fetcher.collate_fn
    fetcher.collate_fn = lambda data: maker.collated(collate, data)


def path_of(dataset: Any, index: Any) -> str | None:
    """The file of a sample, where a list of the dataset has one for each: torchvision's ``samples``, or any other."""
    indices = getattr(dataset, "indices", None)
    try:
        if hasattr(dataset, "dataset") and indices is not None:  # a Subset
            return path_of(dataset.dataset, int(indices[index]))
        for value in vars(dataset).values():
            if isinstance(value, list | tuple) and len(value) == len(dataset):
                entry = value[index]
                first = entry[0] if isinstance(entry, list | tuple) and entry else entry
                if isinstance(first, str) or hasattr(first, "__fspath__"):
                    return str(first)
    except Exception:  # a dataset of one's own may answer any question with an error
        return None
    return None
