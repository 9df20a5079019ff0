"""The errors that standpipe raises, in one tree.

::

    StandpipeError
    ├── PlanError          the description can't work
    ├── SampleError        a sample can't be delivered
    │   ├── ReadError
    │   ├── DecodeError
    │   ├── TransformError
    │   ├── EmptyStreamError
    │   └── TooManyBadSamples
    ├── BudgetError        the memory budget is too small
    ├── StateError         a saved state is damaged or belongs to another recipe
    ├── WorkerDiedError    a worker ended before its work was done
    ├── StalledError       work took longer than its time limit
    └── CacheError         a cache can't be used
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST_KEY = 1 << 40  # record numbers from here on stand for keys
MOST_NAMED = 100  # characters of a key that an error shows


def record_name(index: Any, path: str | None, end: str = "") -> str:
    """Return a record's name for messages: ``"record 7, photos/7.jpg"``, or ``"key 'dog'"``.

    index  the record's number; a key that isn't an integer is named itself
    path   the record's file, or the key that the number stands for
    end    text after a file's path, such as a comma
    """
    if path is None:
        return f"record {index}" if hasattr(index, "__index__") else f"key {key_name(index)}"
    return f"record {index}, {path}{end}" if index < FIRST_KEY else f"key {path}"


def batch_name(epoch: int, consumed: int) -> str:
    """Return the name for messages of the batch that begins at ``Cursor(epoch, consumed)``."""
    return f"the batch at position {consumed} of epoch {epoch}"


def key_name(key: object) -> str:
    """Return ``repr(key)`` for messages, cut to 100 characters."""
    return repr(key)[:MOST_NAMED]


class StandpipeError(Exception):
    """The base class of all errors that standpipe raises on purpose.

    Examples
    --------
    >>> try:
    ...     sp.Pipeline(sp.ImageFolder("missing")).map(sp.CenterCrop(64)).batch(8).plan()
    ... except sp.StandpipeError as error:
    ...     print(type(error).__name__)
    PlanError
    """


class PlanError(StandpipeError, ValueError):
    """An error for a description that can't work.

    The message names the field, its value, and a value that would work. It is a ``ValueError`` too.

    Examples
    --------
    >>> sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(0).plan()
    Traceback (most recent call last):
        ...
    standpipe.errors.PlanError: ...integer...
    """


class SampleError(StandpipeError):
    """An error for a sample that can't be delivered.

    Attributes
    ----------
    place : str
        The place that found it: ``"source"``, ``"read"``, ``"transform"`` or ``"batch"``.
    index : int
        The record's number in its source. If the sampler of a ``standpipe.torch.DataLoader`` gave a key that
        isn't an integer, that key.
    path : str or None
        The record's file as a printable string; None for records without a file.
    offset : int
        Byte offset of the record inside ``path``; 0 for whole files.
    reason : str
        The fault, without the facts above.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"not an image")
    >>> with sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4).loader() as loader:
    ...     try:
    ...         next(iter(loader))
    ...     except sp.SampleError as error:
    ...         print(error.place, error.index)
    transform 0
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
    """A ``SampleError`` for bytes that can't be read: missing file, no permission, I/O error.

    Examples
    --------
    >>> import pathlib
    >>> with sp.Pipeline(sp.FileList("list.txt")).map(sp.CenterCrop(32)).batch(4).loader() as loader:
    ...     pathlib.Path("photos/cat/000.jpg").unlink()
    ...     try:
    ...         next(iter(loader))
    ...     except sp.ReadError as error:
    ...         print(error.place, error.index)
    read 0
    """


class DecodeError(SampleError):
    """A ``SampleError`` for bytes that can't be decoded.

    They aren't the expected image: empty, truncated, damaged, or in an unsupported format.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"")
    >>> with sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4).loader() as loader:
    ...     try:
    ...         next(iter(loader))
    ...     except sp.DecodeError as error:
    ...         print(error.path)
    /.../photos/cat/000.jpg
    """


class TransformError(SampleError):
    """A ``SampleError`` for a transform that failed. The transform's own error is its ``__cause__``.

    Examples
    --------
    >>> def fails(sample):
    ...     raise ValueError("too dark")
    >>> pipeline = sp.Pipeline(sp.MapSource([{"x": 1}])).map(fails).batch(1)
    >>> with pipeline.loader(executor="thread") as loader:
    ...     next(iter(loader))
    Traceback (most recent call last):
        ...
    standpipe.errors.TransformError: ...too dark...
    """


class EmptyStreamError(SampleError):
    """A ``SampleError`` for a stream that has no sample at the beginning of an epoch.

    Without a sample, the layout of batches is unknown.

    Examples
    --------
    >>> with sp.Pipeline(sp.IterableSource(lambda: iter(()))).batch(2).loader(executor="thread") as loader:
    ...     next(iter(loader))
    Traceback (most recent call last):
        ...
    standpipe.errors.EmptyStreamError: ...
    """


class TooManyBadSamples(SampleError):
    """A ``SampleError`` for an epoch with more bad samples than ``Replace(at_most=…)`` allows.

    Its other attributes describe the last bad sample.

    Attributes
    ----------
    counts : mapping of str to int
        Number of bad samples of the epoch for each fault, the most frequent fault first. Beyond 100 faults, the
        rest is counted as ``"other faults"``.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("photos/cat/000.jpg").write_bytes(b"not an image")
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(4)
    >>> with pipeline.on_error(sp.Replace(at_most=0)).loader() as loader:
    ...     try:
    ...         next(iter(loader))
    ...     except sp.TooManyBadSamples as error:
    ...         print(error.index, sum(error.counts.values()))
    0 1
    """

    counts: Mapping[str, int] = {}


class BudgetError(StandpipeError):
    """An error for a memory budget that is too small.

    Attributes
    ----------
    asked_bytes : int
        Bytes that are needed.
    budget_bytes : int
        Bytes of the budget.
    smallest_bytes : int or None
        Bytes of the smallest budget that would work; None if it is unknown.

    Examples
    --------
    >>> try:
    ...     sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(224)).batch(256).plan(memory="20MiB")
    ... except sp.BudgetError as error:
    ...     print(error.smallest_bytes > error.budget_bytes)
    True
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
    """An error for a saved state that is damaged or belongs to another recipe.

    The message names the parts that differ. It is a ``ValueError`` too.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).loader() as loader:
    ...     loader.load_state_dict({})
    Traceback (most recent call last):
        ...
    standpipe.errors.StateError: ...isn't a loader's state: it has no 'version'...
    """


class WorkerDiedError(StandpipeError, RuntimeError):
    """An error for a worker process or thread that ended before its work was done.

    The message says which one, how it ended, and during which work. It is a ``RuntimeError`` too, as in
    torch.

    Attributes
    ----------
    index : int or None
        The record over which two workers died; None if no single sample was at fault.
    path : str or None
        The record's file, if it has one.

    Examples
    --------
    >>> issubclass(sp.WorkerDiedError, RuntimeError)
    True
    """

    def __init__(self, message: str, *, index: int | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.path = path


class StalledError(StandpipeError, RuntimeError):
    """An error for work that took longer than its time limit, such as ``stall_timeout_s``.

    It is a ``RuntimeError`` too, as in torch.

    Attributes
    ----------
    index : int or None
        The record that was being made; None if the work wasn't on a single sample.
    path : str or None
        The record's file, if it has one.
    doing : str
        The work: a step of the pipeline, ``"reading its file"``, …
    worker : str
        The worker that did it.
    seconds : float
        Seconds since that work began.
    where : str
        The Python stacks of that thread or process, or its state in the kernel; empty if neither is known.

    Examples
    --------
    >>> issubclass(sp.StalledError, RuntimeError)
    True
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
    """An error for a cache that can't be used: its folder, session or files are missing or unusable.

    Examples
    --------
    >>> sp.destroy_cache(sp.Cache("no-such-cache"))
    Traceback (most recent call last):
        ...
    standpipe.errors.CacheError: ...
    """


def _rebuild_budget(kind: type[BudgetError], message: str) -> BudgetError:
    return kind(message, asked_bytes=0, budget_bytes=0)  # its own values come with its ``__dict__``


def _rebuild(
    kind: type[SampleError], reason: str, place: str, index: int, path: str | None, offset: int
) -> SampleError:
    return kind(reason, place=place, index=index, path=path, offset=offset)
