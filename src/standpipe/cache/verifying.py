"""Read every row of a cache, and check the bytes against the stored checksum."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.cache.description import Cache, check_given
from standpipe.cache.files.directory import READ_FOLDER, Home, names_in
from standpipe.cache.files.manifest import Manifest, missing_is_damage, read_set, remedied
from standpipe.cache.files.session import Session, no_session
from standpipe.cache.files.spilled import Spilled
from standpipe.cache.sessions import home_of
from standpipe.cache.sets.facts import entries_of
from standpipe.cache.sets.sets import open_store
from standpipe.errors import CacheError

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class CacheSetCheckReport:
    """The result of ``verify_cache`` for one cache set.

    Attributes
    ----------
    digest : str
        The set's name, as in ``CachedSet``.
    label : str
        The set's name for people, such as that of a folder.
    rows : int
        Rows that were checked.
    wrong : int
        Rows that can't be read, differ from what was stored, or have a damaged entry in the table. A loader
        never delivers them: it reads these samples from the source.
    problem : str
        Why no row could be checked; empty otherwise.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.fill_cache(sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8))
    >>> (checked,) = sp.verify_cache(cache).sets
    >>> checked.rows, checked.wrong, checked.problem
    (24, 0, '')
    """

    digest: str
    label: str
    rows: int
    wrong: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CacheCheckReport:
    """The result of ``verify_cache``.

    Attributes
    ----------
    sets : tuple of CacheSetCheckReport
        One report for each set of the session.
    ok : bool
        True if all rows of all sets have the bytes that were stored.
    rows : int
        Rows that were checked.
    wrong : int
        Rows that are wrong.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.fill_cache(sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8))
    >>> report = sp.verify_cache(cache)
    >>> report.ok, report.rows, report.wrong
    (True, 24, 0)
    """

    sets: tuple[CacheSetCheckReport, ...]

    @property
    def ok(self) -> bool:
        """True if all rows of all sets have the bytes that were stored, and every set could be checked."""
        return not any(each.wrong or each.problem for each in self.sets)

    @property
    def rows(self) -> int:
        """The number of rows that were checked."""
        return sum(each.rows for each in self.sets)

    @property
    def wrong(self) -> int:
        """The number of rows that can't be read or whose bytes changed."""
        return sum(each.wrong for each in self.sets)

    def facts(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {"ok": self.ok, "rows": self.rows, "wrong": self.wrong, **asdict(self)}


def verify_cache(cache: Cache, *, on_progress: Progress | None = None) -> CacheCheckReport:
    """Read every row of a cache session, and check the bytes against the stored checksum.

    Parameters
    ----------
    cache : Cache
        The session, by its name, ``directory`` and ``shared_group``.
    on_progress : callable, optional
        A function that is called with three arguments: ``"rows"``, the number of rows checked so far, and None.

    Returns
    -------
    standpipe.reports.CacheCheckReport
        The rows that were checked and those that are wrong, by set.

    Raises
    ------
    CacheError
        If there is no session of that name, or its folder can't be used.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.fill_cache(sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8))
    >>> sp.verify_cache(cache).ok
    True
    """
    check_given(cache)
    checked: list[CacheSetCheckReport] = []
    with home_of(cache, make=False) as home:
        if home is None:
            raise no_session(cache, [])
        try:
            session = Session(home, cache.name)
        except FileNotFoundError as error:
            raise no_session(cache, names_in(home.sessions)) from error
        with contextlib.closing(session):
            for digest in session.sets:
                before = sum(each.rows for each in checked)
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    checked.append(_checked(home, cache.name, digest, _from(before, on_progress)))
    return CacheCheckReport(tuple(checked))


def _from(before: int, on_progress: Progress | None) -> Callable[[int], None]:
    """Return a function that reports progress: ``before`` rows of earlier sets, plus its argument."""

    def tell(done: int) -> None:
        if on_progress is not None:
            on_progress("rows", before + done, None)

    return tell


def _checked(home: Home, name: str, digest: str, tell: Callable[[int], None]) -> CacheSetCheckReport:
    """Check all rows of the set ``digest``. Raises ``FileNotFoundError`` if another process removed the set.

    name  name of the session, for messages
    tell  function that gets the number of rows checked so far
    """
    with contextlib.ExitStack() as opened:
        folder = os.open(digest, READ_FOLDER, dir_fd=home.sets)
        opened.callback(os.close, folder)
        try:
            with missing_is_damage(home, folder, digest):
                manifest = read_set(folder, digest)
                store = open_store(folder, manifest, writes=False, queue=0)
            opened.callback(store.close, 0)
        except CacheError as error:
            return CacheSetCheckReport(digest, "", 0, 0, remedied(error, home, name))
        if manifest.spill is not None:
            with contextlib.suppress(OSError, CacheError):  # rows on a disk that can't be read count as wrong
                spilled = Spilled(manifest.spill, home.access)
                opened.callback(spilled.close)
                store.set_spill(spilled.folder)
        return _read_all(folder, manifest, store, tell)


def _read_all(
    folder: int, manifest: Manifest, store: _native.CacheStore, tell: Callable[[int], None]
) -> CacheSetCheckReport:
    rows = wrong = 0
    for first, entries in entries_of(folder):
        stop = max(min(first + len(entries), manifest.records), first)
        found = store.have(first, stop)
        blank = entries["check"][: stop - first] == 0
        wrong += int(np.count_nonzero(~found & ~blank))
        rows += int(np.count_nonzero(found | ~blank))
        for record in first + np.flatnonzero(found):
            wrong += store.get(int(record)) is None
        tell(rows)
    return CacheSetCheckReport(manifest.digest, manifest.label, rows, wrong)
