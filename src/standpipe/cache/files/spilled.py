"""A set's folder on a disk, for rows that don't fit into the cache's directory, and the folder's removal.

A restart of the machine removes a set's folder in memory, but not the rows on the disk. So each folder on the
disk contains a note, home.json, that says where its set is. The next process that uses the disk removes folders
whose set is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from standpipe.cache.files.directory import (
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
from standpipe.cache.files.extents import trim
from standpipe.cache.files.moment import boot_id
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor

NOTE = "home.json"
NAME = re.compile(
    r"[0-9a-f]{32}\.[0-9a-f]{16}"
)  # no other name is accepted, since the named folder is removed with its set
SET = "set.json"


@dataclass(frozen=True, slots=True)
class SpillFolder:
    """The names of a set's folder on a disk.

    directory  path of the folder on the disk in which standpipe has its own folder
    name       name of the set's folder in there, DIGEST.TAG; a set that is made again gets a new random TAG
    """

    directory: str
    name: str

    @classmethod
    def of(cls, facts: object) -> SpillFolder | None:
        """Return the place that a value of set.json describes; None if the value describes none."""
        match facts:
            case {"directory": str(directory), "name": str(name)} if "\0" not in directory and NAME.fullmatch(
                name
            ):
                return cls(directory, name)
        return None

    @property
    def facts(self) -> dict[str, str]:
        """The place as plain values, for set.json."""
        return {"directory": self.directory, "name": self.name}


class Spilled:
    """A set's open folder on a disk, locked so that no process removes it. The code that makes it closes it."""

    def __init__(self, place: SpillFolder, access: Access) -> None:
        """Open and lock the folder at ``place``. Raises ``OSError``, ``CacheError``."""
        faultpoint("cache.spill")
        self.home = open_home(place.directory, access, make=False)
        try:
            self.folder = open_folder(self.home.spilled, place.name, access, make=False)
            fcntl.flock(self.folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            self.home.close()
            raise

    def close(self) -> None:
        """Unlock the folder and close its file descriptors."""
        fcntl.flock(self.folder, fcntl.LOCK_UN)
        os.close(self.folder)
        self.home.close()


def make_spilled(directory: str, home: Home, digest: str) -> SpillFolder:
    """Make a folder on a disk for rows of the set ``digest``. Raises ``OSError``, ``CacheError``.

    directory  path of a folder on the disk
    home       standpipe's folder that contains the set
    """
    with contextlib.closing(open_home(directory, home.access, make=True)) as there:
        clear_spilled(there)
        place = SpillFolder(directory, f"{digest}.{os.urandom(8).hex()}")
        with new_folder(there) as (made, folder):
            note = {"directory": os.path.dirname(home.path), "set": digest, "boot": boot_id(), **home.mark}  # noqa: PTH120
            write_manifest(there, folder, NOTE, note)
            publish(there, made, there.spilled, place.name)
    return place


def names_of_sets(there: Home, digests: Iterable[str]) -> list[str]:
    """Return the names of the folders on a disk that belong to the sets ``digests``.

    there  standpipe's folder on the disk
    """
    known = set(digests)
    return [name for name in names_in(there.spilled) if name.partition(".")[0] in known]


def remove_spilled(place: SpillFolder, access: Access) -> None:
    """Remove the folder that a removed set has on a disk. Errors are ignored."""
    with (
        contextlib.suppress(OSError, CacheError),
        contextlib.closing(open_home(place.directory, access, make=False)) as there,
    ):
        remove(there.spilled, place.name)


def clear_spilled(there: Home) -> None:
    """Remove folders on a disk whose set is gone, and unfinished folders that dead processes left.

    there  standpipe's folder on the disk

    It keeps folders that are locked, and those whose set may exist.
    """
    clear_aside(there)
    for name in names_in(there.spilled):
        with (
            contextlib.suppress(OSError, CacheError),
            closing_descriptor(os.open(name, READ_FOLDER, dir_fd=there.spilled)) as folder,
        ):
            trim(folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _has_set(name, read_manifest(folder, NOTE), there.access):
                remove(there.spilled, name)


def _has_set(name: str, note: dict[str, Any], access: Access) -> bool:
    """Return True if the set of a folder on a disk exists, or may exist in another container.

    name  name of the folder, DIGEST.TAG
    note  content of the folder's home.json, which says where the set is
    """
    directory = str(note.get("directory"))
    if "\0" in directory:
        return False
    try:
        home = open_home(directory, access, make=False)
    except FileNotFoundError:
        return bool(note.get("boot") == boot_id())
    with contextlib.closing(home):
        if any(note.get(key) != value for key, value in home.mark.items()) and note.get("boot") == boot_id():
            return True  # another container's /dev/shm, which isn't this one
        with contextlib.suppress(FileNotFoundError):
            folder = os.open(name.partition(".")[0], READ_FOLDER, dir_fd=home.sets)
            with closing_descriptor(folder):
                place = SpillFolder.of(read_manifest(folder, SET).get("spill"))
            return place is not None and place.name == name
    return False
