"""The part of a set that is on a disk, and its removal when the set is gone.

A restart of the machine removes a set's folder in memory, and leaves its rows on the disk. So a spilled
folder has a note that says where its set is, and the next process that uses the disk removes folders whose
set is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from standpipe.cache.directory import (
    READ_FOLDER,
    Access,
    Home,
    clear_aside,
    names_in,
    new_folder,
    open_folder,
    open_home,
    publish,
    read_manifest,
    remove,
    write_manifest,
)
from standpipe.cache.extents import trim
from standpipe.cache.moment import boot_id
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint

NOTE = "home.json"
NAME = re.compile(
    r"[0-9a-f]{32}\.[0-9a-f]{16}"
)  # no other name is accepted, since the named folder is removed with its set
SET = "set.json"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a set's spilled rows.

    directory  the folder on the disk that contains standpipe's own
    name       name of the set's folder there; a set that is made again gets a new name
    """

    directory: str
    name: str

    @classmethod
    def of(cls, facts: object) -> Place | None:
        """Return the place in a value of set.json; None if the set has no rows on a disk."""
        match facts:
            case {"directory": str(directory), "name": str(name)} if "\0" not in directory and NAME.fullmatch(
                name
            ):
                return cls(directory, name)
        return None

    @property
    def facts(self) -> dict[str, str]:
        """Return the values that set.json stores."""
        return {"directory": self.directory, "name": self.name}


class Spilled:
    """A set's folder on a disk, open and locked against removal. The caller that opened it closes it."""

    def __init__(self, place: Place, access: Access) -> None:
        """Open and lock the folder. Raises ``OSError``, ``CacheError``."""
        faultpoint("cache.spill")
        self.home = open_home(place.directory, access, make=False)
        try:
            self.folder = open_folder(self.home.spilled, place.name, access, make=False)
            fcntl.flock(self.folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            self.home.close()
            raise

    def close(self) -> None:
        """Close its descriptors."""
        fcntl.flock(self.folder, fcntl.LOCK_UN)
        os.close(self.folder)
        self.home.close()


def make_spilled(directory: str, home: Home, digest: str) -> Place:
    """Make a folder on a disk for rows of a set of ``home``. Raises ``OSError``, ``CacheError``."""
    there = open_home(directory, home.access, make=True)
    try:
        clear_spilled(there)
        place = Place(directory, f"{digest}.{os.urandom(8).hex()}")
        with new_folder(there) as (made, folder):
            note = {"directory": os.path.dirname(home.path), "set": digest, "boot": boot_id(), **home.mark}  # noqa: PTH120
            write_manifest(there, folder, NOTE, note)
            publish(there, made, there.spilled, place.name)
    finally:
        there.close()
    return place


def names_of_sets(there: Home, digests: Iterable[str]) -> list[str]:
    """Return the names of the folders on a disk that belong to some sets."""
    known = set(digests)
    return [name for name in names_in(there.spilled) if name.partition(".")[0] in known]


def remove_spilled(place: Place, access: Access) -> None:
    """Remove the folder on a disk of a removed set, if it can be reached."""
    with contextlib.suppress(OSError, CacheError):
        there = open_home(place.directory, access, make=False)
        try:
            remove(there.spilled, place.name)
        finally:
            there.close()


def clear_spilled(there: Home) -> None:
    """Remove folders on a disk whose set is gone, and half made ones. Keep those where that is unknown."""
    clear_aside(there)
    for name in names_in(there.spilled):
        with contextlib.suppress(OSError, CacheError):
            folder = os.open(name, READ_FOLDER, dir_fd=there.spilled)
            try:
                trim(folder)
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _has_set(name, read_manifest(folder, NOTE), there.access):
                    remove(there.spilled, name)
            finally:
                os.close(folder)


def _has_set(name: str, note: dict[str, Any], access: Access) -> bool:
    """Return True if the set of a spilled folder exists, or may exist in another container."""
    directory = str(note.get("directory"))
    if "\0" in directory:
        return False
    try:
        home = open_home(directory, access, make=False)
    except FileNotFoundError:
        return bool(note.get("boot") == boot_id())
    try:
        if any(note.get(key) != value for key, value in home.mark.items()) and note.get("boot") == boot_id():
            return True  # another container's /dev/shm, which isn't this one
        folder = os.open(name.partition(".")[0], READ_FOLDER, dir_fd=home.sets)
        try:
            place = Place.of(read_manifest(folder, SET).get("spill"))
        finally:
            os.close(folder)
        return place is not None and place.name == name
    except FileNotFoundError:
        return False
    finally:
        home.close()
