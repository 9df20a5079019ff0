"""Every error that standpipe raises, in one tree.

::

    StandpipeError
    ├── PlanError          the description can't work
    ├── SampleError        one sample can't be delivered
    │   ├── ReadError
    │   ├── DecodeError
    │   ├── TransformError
    │   ├── EmptyStreamError
    │   └── TooManyBadSamples
    ├── BudgetError        the memory budget doesn't allow it
    ├── StateError         a saved state belongs to another recipe
    ├── WorkerDiedError         a worker ended before its work was done
    ├── StalledError       something took longer than it may
    └── CacheError
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST_KEY = 1 << 40  # records from this number on stand for keys, which have no numbers of their own


def record_name(index: int, path: str | None, end: str = "") -> str:
    """Return what messages call a record: ``"record 7, photos/7.jpg"``, or ``"key 'dog'"``.

    path  its file, or the key that it stands for
    end   what follows a file, such as a comma
    """
    if path is None:
        return f"record {index}"
    return f"record {index}, {path}{end}" if index < FIRST_KEY else f"key {path}"


class StandpipeError(Exception):
    """The root of all errors that standpipe raises on purpose."""


class PlanError(StandpipeError, ValueError):
    """The description can't work: the message says which field, what it got, and what would fit."""


class SampleError(StandpipeError):
    """One sample can't be delivered.

    place   the place that found it: ``"source"``, ``"read"``, ``"transform"`` or ``"batch"``
    index   the record's number in its source
    path    the record's file as a printable string, or None for records that have none
    offset  byte offset of the record inside ``path``; 0 for whole files
    reason  what is wrong, without the facts above
    """

    def __init__(
        self, reason: str, *, place: str, index: int, path: str | None = None, offset: int = 0
    ) -> None:
        self.reason = reason
        self.place = place
        self.index = index
        self.path = path
        self.offset = offset
        where = f"{place}, {record_name(index, path)}" + (f" at byte {offset}" if path and offset else "")
        super().__init__(f"{reason} ({where})")

    def __reduce__(self) -> tuple[object, ...]:
        facts = (type(self), self.reason, self.place, self.index, self.path, self.offset)
        return (_rebuild, facts, self.__dict__)


class ReadError(SampleError):
    """The bytes of a sample could not be read: missing file, permission, I/O error."""


class DecodeError(SampleError):
    """The bytes were read and are not the image they should be: empty, truncated, foreign, unsupported."""


class TransformError(SampleError):
    """A transform failed on this sample."""


class EmptyStreamError(SampleError):
    """A stream has no sample at the place where an epoch begins, so nobody knows what its batches look like."""


class TooManyBadSamples(SampleError):
    """More samples of an epoch were bad than ``Replace(at_most=…)`` allows. The facts are those of the last one.

    counts  bad samples of the epoch by what is wrong with them, the most frequent first
    """

    counts: Mapping[str, int] = {}


class BudgetError(StandpipeError):
    """The memory budget doesn't allow it.

    asked_bytes     what was asked for
    budget_bytes    what there is
    smallest_bytes  the smallest budget that would work, when one is known
    """

    def __init__(
        self, message: str, *, asked_bytes: int, budget_bytes: int, smallest_bytes: int | None = None
    ) -> None:
        self.asked_bytes = asked_bytes
        self.budget_bytes = budget_bytes
        self.smallest_bytes = smallest_bytes
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_budget, (type(self), str(self)), self.__dict__)


class StateError(StandpipeError, ValueError):
    """A saved state is damaged or doesn't belong to this recipe; the message says what differs."""


class WorkerDiedError(StandpipeError, RuntimeError):
    """A worker process or a thread of the loader ended before its work was done.

    The message says which one, how, and over what.

    index  the record that it died of twice, or None where it wasn't a sample's fault
    path   the record's file, or None
    """

    def __init__(self, message: str, *, index: int | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.path = path


class StalledError(StandpipeError, RuntimeError):
    """Something took longer than ``stall_timeout_s``.

    index    the record that was at work, or None where it was no sample
    path     its file, or None
    doing    what was done: a step of the pipeline, ``"reading its file"``, …
    worker   who did it
    seconds  for how long
    where    the Python stacks of that thread or process, or what the kernel said of it; empty when neither is known
    """

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        path: str | None = None,
        doing: str = "",
        worker: str = "",
        seconds: float = 0.0,
        where: str = "",
    ) -> None:
        super().__init__(message)
        self.index = index
        self.path = path
        self.doing = doing
        self.worker = worker
        self.seconds = seconds
        self.where = where


class CacheError(StandpipeError):
    """A cache can't be used as asked."""


def _rebuild_budget(kind: type[BudgetError], message: str) -> BudgetError:
    return kind(message, asked_bytes=0, budget_bytes=0)  # its own come with its ``__dict__``


def _rebuild(
    kind: type[SampleError], reason: str, place: str, index: int, path: str | None, offset: int
) -> SampleError:
    return kind(reason, place=place, index=index, path=path, offset=offset)
