"""The files of a pack while they are written: drafts, the folder's lock, and names of members."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from standpipe.errors import PlanError, StandpipeError
from standpipe.formats import HEAD_BYTES, SUFFIXES, format_of
from standpipe.jobs.packing.layout import FACTS, PackFacts
from standpipe.system.files import closing_descriptor

OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def suffix(path: bytes, offset: int, size: int, *, is_part: bool) -> bytes:
    """Return the extension of an image's member: a whole file's suffix if that is an image's, else one that its first
    bytes name.
    """
    ending = "" if is_part else os.fsdecode(os.path.splitext(path)[1]).lower()  # noqa: PTH122 (bytes)
    if ending not in SUFFIXES:
        found = None
        with suppress(OSError), closing_descriptor(os.open(path, OPEN)) as file:  # packing it fails too
            found = format_of(os.pread(file, min(HEAD_BYTES, size), offset))
        ending = found.suffixes[0] if found is not None and found.suffixes else ".jpg"
    return ending.encode()


def part(path: Path) -> Path:
    """Return the name of a file while it is written."""
    return path.with_name(f"{path.name}.part")


def draft(path: Path) -> AbstractContextManager[int]:
    """Open an empty file that gets the name ``path`` later."""
    return closing_descriptor(os.open(part(path), NEW_DRAFT, 0o644))


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors into ``StandpipeError``."""
    try:
        yield
    except OSError as error:
        raise StandpipeError(
            f"can't write {path}: {error.strerror}; afterwards run the same command again, and it goes on"
        ) from error


def sync(folder: Path) -> None:
    """Have the names in a folder survive a power cut."""
    with closing_descriptor(os.open(folder, OPEN_FOLDER)) as file:
        os.fsync(file)


@contextmanager
def claimed_folder(folder: Path, facts: PackFacts) -> Iterator[bool]:
    """Create the folder or check that it fits, and lock it against other packers; yield whether all of it was written
    before.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, OPEN_FOLDER)
    except OSError as error:
        raise StandpipeError(f"can't write to {folder}: {error.strerror}") from error
    with closing_descriptor(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StandpipeError(f"another process packs into {folder}; wait for its end") from None
        before = PackFacts.read(folder)
        if before is None:
            # A packer that was killed before it wrote anything else left a draft of its facts.
            if any(not each.match(f"{FACTS}.*.part") for each in folder.iterdir()):
                raise PlanError(f"{folder} has other files in it; use an empty folder")
            facts.write(folder)
        elif not before.same(facts):
            raise PlanError(
                f"{folder} has shards of another source, or of another shard_size, order or seed; use an empty folder"
            )
        for each in folder.glob(f"{FACTS}.*.part"):
            each.unlink()
        yield before is not None and before.shards is not None
