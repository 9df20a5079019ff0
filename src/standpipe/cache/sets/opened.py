"""A cache set that a loader has open: it gives the native store room for rows, and closes the files at the end."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from standpipe import _native
from standpipe.cache.files.directory import Home, open_folder
from standpipe.cache.files.extents import DISK_FULL, Extent
from standpipe.cache.files.manifest import Manifest, read_set
from standpipe.cache.files.session import Session, SessionLimits
from standpipe.cache.files.spilled import Spilled, SpillFolder, make_spilled
from standpipe.cache.files.users import Counts, User, fold, locked_folder
from standpipe.cache.sets.growth import Full, Tier, Wish, grow
from standpipe.cache.sets.removal import USERS
from standpipe.errors import CacheError
from standpipe.system.files import closing_descriptor, is_at

KEPT_EXTENTS = 8  # extents that are kept open: a store writes only to its last few
CLOSE_MS = 5000  # longest wait for rows that are still being written to a disk


@dataclass(frozen=True, slots=True)
class Parts:
    """The open folders and files of a cache set.

    home     standpipe's folder
    session  session whose limits apply
    folder   file descriptor of the set's own folder
    user     this loader's file in the set's ``users/``; None if the loader may only read
    opened   closes everything except ``home``
    """

    home: Home
    session: Session
    folder: int
    user: User | None
    opened: contextlib.ExitStack


class OpenSet:
    """A cache set that one loader has open. Only one thread at a time may call its methods. The loader closes it.

    store   the native store, in which any thread finds, reads and stores rows
    writes  True if rows may be stored; False for a group's set that this user may only read
    notes   warnings about damage that opening the set found; ``notes()`` returns them
    """

    def __init__(
        self,
        name: str,
        limits: SessionLimits,
        manifest: Manifest,
        parts: Parts,
        store: _native.CacheStore,
        *,
        writes: bool,
        notes: Sequence[str],
    ) -> None:
        self.store, self.writes = store, writes
        self._name, self._limits, self._manifest, self._parts = name, limits, manifest, parts
        self._spilled: Spilled | None = None
        self._extents: list[Extent] = []
        self._notes = list(notes)
        self._said: set[str] = set()
        self._closed = self._said_full = False
        self._lacks_spill = True  # until the disk folder is open, rows in it can't be found
        self._full: str | None = None  # the reason why there is no more room

    @property
    def is_there(self) -> bool:
        """False after the set was removed. Loaders that have it open still read its rows, and store none."""
        return is_at(self._parts.folder, self._manifest.digest, self._parts.home.sets)

    def supply(self) -> None:
        """Give the native store an extent for more rows if the store asks for one and the limits allow it.

        It does nothing while another process has the session's lock; the next call tries again.
        """
        wants = self.store.wants()
        if not wants.extent or not self.writes:
            return
        if not self.is_there:
            self.store.refuse()
            return
        with locked_folder(self._parts.session.folder) as free:
            if free:
                self._grow(wants)

    def notes(self) -> list[str]:
        """Return the new warnings since the last call, each text only once. It works after ``close()`` too."""
        if not self._closed:
            self._note_error()
        if self._full is not None and not self._said_full and self.store.wants().skipped:
            self._said_full = True
            self._note(self._full)
        notes, self._notes = self._notes, []
        return notes

    def stamp(self) -> None:
        """Write the time and the counters to this loader's file in the set."""
        if self._parts.user is None or not self.is_there:
            return
        with contextlib.suppress(OSError):
            self._parts.user.stamp(Counts.of(self.store.stats()))
            self._parts.session.link(self._manifest.digest)  # a process that clears up may have removed it

    def __enter__(self) -> OpenSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the set's files, add this loader's counters to the set's totals, and free unused bytes.

        It waits at most 5 s for rows that are being written to a disk. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        ended = self.store.close(CLOSE_MS)
        self.stamp()
        self._note_error()
        for extent in self._extents:
            if ended:
                extent.leave()
            else:
                extent.abandon()
        with contextlib.ExitStack() as last:
            last.callback(self._parts.home.close)
            with contextlib.suppress(OSError):  # no descriptor is left: the next loader adds the counters
                folder = os.dup(self._parts.folder)
                last.callback(os.close, folder)
                last.callback(self._fold, folder)
            self._parts.opened.close()
            if self._spilled is not None:
                self._spilled.close()

    def _fold(self, folder: int) -> None:
        """Add the counters of ended loaders to the set's totals. After an error, the next process does it."""
        with contextlib.suppress(OSError, CacheError):
            users = open_folder(folder, USERS, self._parts.home.access, make=False)
            with closing_descriptor(users):
                fold(self._parts.home, folder, users)

    def _grow(self, wants: _native.CacheWants) -> None:
        """Give the store an extent in the cache's directory or else on the disk, or tell it that none has room.

        wants  the store's request

        It records a warning if there is no room, except if the store has stopped using a level after an error:
        then the store's own error is the warning.
        """
        home, reasons, failed = self._parts.home, [], False
        row_bytes = max(wants.row_bytes, self._manifest.row_bytes or 1)
        wish = Wish(home, self._parts.session, row_bytes, self._limits.idle_after)
        tiers = [Tier(home, self._parts.folder, self._limits.memory, spilled=False)]
        if self._spilled is not None:
            there = self._spilled
            tiers.append(Tier(there.home, there.folder, self._limits.spill_limit, spilled=True))
        for tier in tiers:
            if not (wants.spill if tier.spilled else wants.memory):
                failed = True
                continue
            try:
                found = grow(tier, wish)
            except (OSError, CacheError) as error:
                found = Full(f"{tier.home.path}: {_why(error)}")
            if isinstance(found, Extent):
                self.store.add_extent(found.number, found.file, found.begin, found.end, tier.spilled)
                self._keep(found)
                return
            reasons.append(found.reason)
        self.store.refuse()
        if failed:
            return
        more = "" if self._spilled is not None else ", or give it spill=, a folder on a disk"
        self._note_full(
            f"cache {self._name!r} keeps no more rows: {'; '.join(reasons)}. Other rows come from their source. Raise "
            f"its limit{more}"
        )

    def _keep(self, extent: Extent) -> None:
        self._extents.append(extent)
        if len(self._extents) > KEPT_EXTENTS:
            self._extents.pop(0).retire()

    def look_for_spill(self) -> None:
        """Open the set's folder on a disk; make the folder if the limits name a disk and the set has none.

        The store finds rows on the disk only after this call. A later call opens a folder that another job has
        made since. The call blocks while the disk hangs.
        """
        if self._spilled is not None:
            return
        try:
            place = read_set(self._parts.folder, self._manifest.digest).spill
            if place is None and self._limits.spill is not None and self.writes:
                place = self._given_spill(self._limits.spill)
            if place is not None:
                self._spilled = Spilled(place, self._parts.home.access)
                self.store.set_spill(self._spilled.folder)
            self._lacks_spill = False
        except (OSError, CacheError) as error:
            self._note(
                f"cache {self._name!r} can't use its folder on the disk: {_why(error)}. Rows that are there come from "
                "their source"
            )

    def _given_spill(self, directory: str) -> SpillFolder | None:
        """Make the set's folder in ``directory``, on a disk; None while another job makes it.

        It returns the existing folder if another job was faster.
        """
        with locked_folder(self._parts.folder) as free:
            if not free:
                return None
            manifest = read_set(self._parts.folder, self._manifest.digest)
            if manifest.spill is not None:
                return manifest.spill
            place = make_spilled(directory, self._parts.home, manifest.digest)
            manifest.at(place).write(self._parts.home, self._parts.folder)
        return place

    def _note_error(self) -> None:
        """Record a warning about the store's last error, if there was an error."""
        if error := self.store.last_error():
            text = f"cache {self._name!r}: {error}. Rows that can't be read or stored come from their source"
            if any(os.strerror(code) in error for code in DISK_FULL):
                self._note_full(text)
            elif not (_is_missing(error) and (self._lacks_spill or not self.is_there)):
                self._note(text)  # a missing file isn't news once the set or its disk is known to be gone

    def _note_full(self, text: str) -> None:
        """Keep the first text that says why no more rows fit. ``notes()`` warns once a row didn't fit."""
        self._full = self._full or text

    def _note(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notes.append(text)


def _is_missing(error: str) -> bool:
    """Return True if an error's text is that of a missing file, or of a disk folder that isn't open."""
    return os.strerror(errno.ENOENT) in error or os.strerror(errno.EBADF) in error


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
