"""Publish a loader's newest snapshot to this user's other processes, in a small file that ends with the
process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.observe.snapshot import Foreign, Snapshot
from standpipe.system.published import published_messages

KIND = "snapshot"  # of published files
STALE_S = 15.0  # a snapshot that is older is of a process that stands still


@dataclass(frozen=True, slots=True)
class Found:
    """A loader of a running process, as ``standpipe.observe.loaders()`` found it.

    Attributes
    ----------
    age_s : float
        Seconds since its snapshot was taken.
    snapshot : Snapshot
        Its newest snapshot.

    Examples
    --------
    >>> import standpipe.observe
    >>> [found.snapshot.script for found in standpipe.observe.loaders() if found.stale]
    [...]
    """

    age_s: float
    snapshot: Snapshot

    @property
    def pid(self) -> int:
        """The process ID, as the process itself sees it."""
        return self.snapshot.pid

    @property
    def stale(self) -> bool:
        """True if the snapshot is older than 15 s, so that the process seems to hang."""
        return self.age_s > STALE_S


def loaders() -> list[Found]:
    """Return all loaders of this user's processes on this machine, by process and rank.

    Loaders whose figures can't be read are left out.

    Returns
    -------
    list of Found

    Examples
    --------
    >>> import standpipe.observe
    >>> for found in standpipe.observe.loaders():
    ...     rate = found.snapshot.recent.rows_per_s
    """
    found: list[Found] = []
    for _, message in published_messages(KIND):
        with contextlib.suppress(Foreign):
            snapshot = Snapshot.from_json(message)
            found.append(Found(max(time.monotonic() - snapshot.time_s, 0.0), snapshot))
    return sorted(found, key=lambda each: (each.pid, each.snapshot.rank, each.snapshot.source))


def loaders_of(process: int) -> list[Found]:
    """Return the loaders of the process with this ID."""
    return [found for found in loaders() if found.pid == process]


def delivers(before: Sequence[Found], after: Sequence[Found]) -> bool:
    """Return True if a loader delivered batches between two calls of ``loaders_of``.

    If a loader wrote no new snapshot between them, its last one counts, unless it is stale.
    """
    then = {_key(found): found.snapshot for found in before}
    return any(_goes_on(found, then.get(_key(found))) for found in after)


def _goes_on(found: Found, then: Snapshot | None) -> bool:
    now = found.snapshot
    if then is not None and then.time_s != now.time_s:
        return now.stats.step.steps > then.stats.step.steps
    return not found.stale and now.rows_per_s > 0


def _key(found: Found) -> tuple[object, ...]:
    now = found.snapshot
    return now.pid, now.rank, now.source, now.batch, now.steps_per_epoch
