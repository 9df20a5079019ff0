"""Store the check results of one source's files in SQLite, so that a later check can continue.

A row per file has its size and time when it was read, and the result. The database is in the user's
cache folder. Its name is a key of all that results depend on except the files. If that folder can't be
written, the database is a temporary file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from standpipe.errors import StandpipeError
from standpipe.jobs.file_check.checking import Verdict
from standpipe.spec import Int64Array
from standpipe.system.claims import cache_folder, is_believed
from standpipe.system.logs import logger

# Version of the tables, of the words in them, and of the rules for files. Version 1 had no "smoothed", and accepted
# JPEGs that Pillow 13 refuses; version 2 accepted images of more than 8 bits, which Pillow clips.
VERSION = 3
UNKNOWN = -2  # size and time of a file that must be checked
CACHE_KIB = 8192
STEPS = 100_000  # of SQLite's, some milliseconds, after which it asks

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    record INTEGER PRIMARY KEY, -- times the number of fields with images, plus the field's place
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,  -- 0: not to be relied on
    label INTEGER,
    fault TEXT,                 -- why it is bad
    text TEXT,
    flaw TEXT,                  -- what it is decoded in spite of
    misnamed TEXT,              -- its format, when its name says another
    digest BLOB
);
"""
# Files with the same bytes as an earlier one of their field, and all of those whose labels differ.
_COPIES = """
CREATE TABLE copies AS
SELECT f.record, g.first, f.label, g.low IS NOT g.high AS conflict
FROM files f JOIN (
    SELECT digest, MIN(record) AS first, MIN(label) AS low, MAX(label) AS high
    FROM files WHERE digest IS NOT NULL GROUP BY digest, record % {fields} HAVING COUNT(*) > 1
) g ON f.digest = g.digest AND f.record % {fields} = g.first % {fields}
WHERE conflict OR f.record > g.first ORDER BY f.record
"""


class ResultStore:
    """A database with the check results of one source. Only one process at a time writes to it.

    path  path of the database; None for a temporary file
    """

    def __init__(self, connection: sqlite3.Connection, path: bytes | None) -> None:
        self.path = path
        self._connection = connection
        weakref.finalize(self, connection.close)

    @classmethod
    def open(cls, key: str, *, fresh: bool) -> ResultStore:
        """Open the database named ``key`` in the user's cache folder; with ``fresh``, delete its results.

        If the folder can't be written, it warns and opens a temporary database.

        Raises ``StandpipeError`` if another process is writing it.
        """
        path = cache_folder() + b"/checks/" + key.encode()
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 (bytes)
            if not is_believed(path):
                raise OSError("other users may write there")
            store = cls._at(path, fresh)
        except (OSError, sqlite3.OperationalError) as error:
            _warn_of_no_place(path, error)
            return cls(_connected(b""), None)
        return store

    @classmethod
    def _at(cls, path: bytes, fresh: bool) -> ResultStore:
        with contextlib.suppress(_Damaged):
            return cls(_connected(path, fresh=fresh), path)
        for each in (path + b"-journal", path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(each)  # noqa: PTH108 (bytes)
        return cls(_connected(path), path)

    def known(self, start: int, stop: int, *, digests: bool) -> tuple[Int64Array, Int64Array]:
        """Return the stored sizes and modification times of the files [start, stop), (n,) each.

        Both are ``UNKNOWN`` for a file that must be checked: a new file, a file that couldn't be read, and, if
        ``digests`` is True, a file whose result has no digest.
        """
        sizes, times = np.full((2, stop - start), UNKNOWN)
        rows = self._all(
            "SELECT record, size, mtime_ns FROM files WHERE record >= ? AND record < ? AND mtime_ns <> 0"
            + (" AND (fault IS NOT NULL OR digest IS NOT NULL)" if digests else ""),
            start,
            stop,
        )
        for record, size, mtime_ns in rows:
            sizes[record - start], times[record - start] = size, mtime_ns
        return sizes, times

    def add(self, verdicts: Sequence[Verdict]) -> None:
        """Add results to the database; only ``commit`` makes them permanent."""
        with _told():
            self._connection.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                map(_row, verdicts),
            )

    def commit(self) -> None:
        """Make all added results permanent, even if this process is killed."""
        with _told():
            self._connection.commit()

    def finish(self, fields: int) -> None:
        """Find files with the same bytes, store them in the table ``copies``, and release the write lock.

        fields  number of files of each record
        """
        with _told():
            self._connection.execute("DROP TABLE IF EXISTS copies")
            self._execute_long(_COPIES.format(fields=fields))
            self._connection.commit()
            self._connection.execute("PRAGMA locking_mode = NORMAL").fetchone()
            self._connection.execute("SELECT 1 FROM files").fetchone()  # SQLite releases the lock here

    def _execute_long(self, statement: str) -> None:
        """Execute a statement that takes seconds, 8 for a million files, so that Ctrl-C ends it.

        SQLite doesn't look for signals, so another thread executes it, and SQLite asks whether it is still wanted.
        """
        given_up = threading.Event()
        self._connection.set_progress_handler(given_up.is_set, STEPS)
        with ThreadPoolExecutor(1, "standpipe store") as thread:
            try:
                thread.submit(self._connection.execute, statement).result()
            except BaseException:
                given_up.set()
                raise
        self._connection.set_progress_handler(None, 0)

    def one(self, query: str) -> Any:
        """Return the first value of an SQL query's first row."""
        return next(iter(self._all(query)))[0]

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of an SQL query's result."""
        return self._all(query)

    def _all(self, query: str, *values: int) -> Iterator[tuple[Any, ...]]:
        with _told():
            yield from self._connection.execute(query, values)


class _Damaged(Exception):
    """The error that a file isn't a database of check results, or has those of another version."""


def _connected(path: bytes, *, fresh: bool = False) -> sqlite3.Connection:
    """Open the database at ``path`` and lock it for writing by this process; with ``fresh``, delete its results.

    Raises ``_Damaged``, ``sqlite3.OperationalError`` if the file can't be written, and ``StandpipeError`` if
    another process is writing it.
    """
    connection = sqlite3.connect(path, timeout=0, isolation_level="IMMEDIATE", check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise _Damaged
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(_TABLES)
        if fresh:
            connection.execute("DELETE FROM files")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.commit()
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise StandpipeError("another process is checking these files. Wait until it ends") from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise _Damaged from error
        raise
    return connection


def _row(verdict: Verdict) -> tuple[Any, ...]:
    return (
        verdict.file.number,
        verdict.size,
        verdict.mtime_ns,
        verdict.file.label,
        None if verdict.fault is None else verdict.fault.value,
        verdict.text or None,
        verdict.flaw,
        verdict.misnamed,
        verdict.digest,
    )


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn an SQLite error in the ``with`` block into a ``StandpipeError`` that says what the user can do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StandpipeError(
            f"the results of the check can't be stored: {error}. Free some space, set XDG_CACHE_HOME to another "
            "folder, or start again with fresh=True"
        ) from error


def _warn_of_no_place(path: bytes, error: Exception) -> None:
    logger().warning(
        "can't write %s (%s): the results are lost when this process ends, so a later check can't continue from "
        "them. Set XDG_CACHE_HOME to a folder that can be written",
        os.fsdecode(path),
        error,
    )
