"""Build index files with additional columns."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from standpipe.errors import PlanError, StandpipeError
from standpipe.source.index.checksums import checksums_of
from standpipe.source.index.file import (
    BYTES_AT_ONCE,
    COLUMN_DTYPES,
    RANGE,
    Column,
    DamagedIndex,
    Facts,
    IndexFile,
    checksum_section,
    column_section,
    read_index,
)
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import (
    Finish,
    Indexed,
    Progress,
    Subject,
    build_at,
    keep_columns,
    places,
)
from standpipe.source.index.with_fields import OWN_FIELDS, is_field_name
from standpipe.source.index.writer import IndexWriter
from standpipe.source.records.npy import NpyFile, opened_npy
from standpipe.spec import AnyArray
from standpipe.system.claims import NoRoom, claimed
from standpipe.system.paths import AnyPath, absolute, path_text

ROWS_AT_ONCE = 1 << 14

# Yields byte fields' names and the CRC-32C of next records, in order.
Checksums: TypeAlias = Callable[[Listing], Iterable[tuple[str, AnyArray]]]
Values: TypeAlias = Callable[[str], int] | AnyArray | AnyPath


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The index file that ``build_index`` wrote.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    records : int
        Number of records.
    size_bytes : int
        Size of the file.
    columns : tuple of str
        Names of the additional columns that the index has, from this call or an earlier one.
    dropped : tuple of str
        Names of columns of the older index that weren't kept, since it has other records.

    Examples
    --------
    >>> report = sp.build_index(sp.FileList("list.txt"))
    >>> report.records, report.path.name
    (24, 'list.txt.standpipe-index')
    """

    path: Path
    records: int
    size_bytes: int
    columns: tuple[str, ...]
    dropped: tuple[str, ...]


def build_index(
    source: Indexed,
    *,
    columns: Mapping[str, Values] | None = None,
    checksums: bool = False,
    on_progress: Progress | None = None,
) -> IndexReport:
    """Write the index file of a list, a folder, shards or annotations, or replace it.

    The file is written to ``source.index``. Without that it is written beside the data, or to the user's
    cache folder if the data's folder isn't writable. Later runs find it there. The data may have any size.

    Parameters
    ----------
    source : FileList, ImageFolder, TarShards, TFRecords, MDS, Coco, YoloLabels or PascalVoc
        The list, folder, shards or annotations.
    columns : mapping of str to array, path or callable, optional
        Additional values of every record, by name. They become fields of each batch, like ``label``, and are
        known without reading a sample. A column is an array or ``.npy`` file of numbers, (records, …), or a
        function that takes a record's path and returns an int, for int64; for shards only arrays work.
        Columns of an older index of the same records are kept.

        The columns ``image_offset`` and ``image_length``, in bytes, aren't fields: they are the byte range of
        each image in its file. A length of -1 means to the end of the file.
    checksums : bool, default False
        True: read all records, and write the CRC-32C of each one's bytes too. A run compares each read with it: other
        bytes are a ``ReadError``, which ``on_error`` treats like others. ``verify_records`` compares all records.
        Further lists and folders have indexes of their own. Checksums of an older index aren't kept.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total, or None if it isn't known.

    Returns
    -------
    standpipe.reports.IndexReport
        The file and its contents.

    Raises
    ------
    PlanError
        If the source can't be indexed, or a column doesn't fit.
    ReadError
        If a record can't be read, with ``checksums=True``.
    StandpipeError
        If the index can't be written.

    Examples
    --------
    >>> report = sp.build_index(sp.FileList("list.txt"), columns={"width": np.full(24, 96)})
    >>> report.columns
    ('width',)
    """
    subject = subject_of(source)
    sums = partial(checksums_of, on_progress=on_progress) if checksums else None
    return built_index(subject, dict(columns or {}), sums, on_progress)


def built_index(
    subject: Subject,
    adding: Mapping[str, Values],
    checksums: Checksums | None = None,
    on_progress: Progress | None = None,
) -> IndexReport:
    """Write the index file of a subject with columns; ``checksums`` gives the CRC-32Cs to write, if any."""
    for name in adding:
        _check_name(name)
    tried = []
    for path in places(subject):
        try:
            with claimed(path) as file:
                old = _older(path, subject)
                finish = _writer(subject, adding, old, checksums, on_progress)
                index = build_at(subject, file, path, on_progress, finish)
        except NoRoom as error:
            tried.append(f"{path_text(path)} ({error})")
            continue
        dropped = tuple(name for name in (old.facts.added if old else ()) if name not in index.facts.columns)
        return IndexReport(
            Path(os.fsdecode(path)), index.facts.rows, index.size, tuple(index.facts.added), dropped
        )
    raise StandpipeError(
        f"can't write the index of {subject.name} to {', nor to '.join(tried)}; use another path, with "
        "index= or the option --output"
    )


def subject_of(source: object) -> Subject:
    """Return the list, folder or shards of an index file. Raises ``PlanError`` for other sources."""
    if not isinstance(source, Indexed) or isinstance(source, type):
        raise PlanError(f"{source!r} has no index file; lists, folders, shards and annotations have one")
    return source.subject()


def _check_name(name: str) -> None:
    if not is_field_name(name):
        raise PlanError(
            f"a column can't be named {name!r}: use an identifier such as length, except {', '.join(OWN_FIELDS)}"
        )


def _older(path: bytes, subject: Subject) -> IndexFile | None:
    """Return the index at ``path``, even if it doesn't fit; None if there is none."""
    try:
        return read_index(path)
    except (OSError, DamagedIndex):
        return None


def _writer(
    subject: Subject,
    adding: Mapping[str, Values],
    old: IndexFile | None,
    checksums: Checksums | None,
    on_progress: Progress | None,
) -> Finish:
    """Return a function that writes checksums and columns into an index: new ones, and those of an older index."""

    def finish(writer: IndexWriter, facts: Facts, draft: IndexFile) -> Facts:
        columns = dict(facts.columns)
        if old is not None and old.facts.manifest == facts.manifest:
            columns |= keep_columns(writer, old, [name for name in old.facts.added if name not in adding])
        listing = Listing(subject, draft)
        for name, values in adding.items():
            if name in (*facts.encoded, *facts.instances, *facts.columns, *facts.texts):
                raise PlanError(
                    f"the column {name!r} has the name of a field of the records: use another one"
                )
            columns[name] = _add_column(writer, listing, name, values, on_progress)
        if len(half := [name for name in RANGE if name in columns]) == 1:
            raise PlanError(
                f"the column {half[0]!r} is only half of a byte range; give both {' and '.join(RANGE)}"
            )
        facts = replace(facts, columns=columns)
        if checksums is not None:
            facts = writer.finish(facts)  # byte ranges that are columns can be read now
            draft = replace(draft, file=os.dup(draft.file), size=os.fstat(draft.file).st_size, facts=facts)
            for name, block in checksums(Listing(subject, draft)):
                writer.add(checksum_section(name), block.astype("<u4"))
            facts = replace(facts, optional={**facts.optional, "checksums": 1})
        return facts

    return finish


def _add_column(
    writer: IndexWriter, listing: Listing, name: str, values: Values, on_progress: Progress | None
) -> Column:
    if listing.index.facts.encoded and (callable(values) or name in RANGE):
        raise PlanError(
            f"the column {name!r}: records of shards have no paths, and their places are known; give the values of "
            "another column as an array"
        )
    if callable(values):
        for done, block in _called(listing, name, values):
            writer.add(column_section(name), block)
            if on_progress is not None:
                on_progress(f"rows of {name}", done, listing.num_records)
        return Column("<i8", (), "")
    array = _array(name, values, listing.num_records)
    if name in RANGE:
        array = _half_of_range(name, array[:])
    dtype = array.dtype.newbyteorder("<")
    rows = max(1, BYTES_AT_ONCE * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        writer.add(column_section(name), np.ascontiguousarray(array[start : start + rows], dtype))
    origin = ""
    if isinstance(values, str | bytes | os.PathLike):
        import shlex

        origin = f"--column {shlex.quote(f'{name}={path_text(values)}')}"
    return Column(dtype.str, array.shape[1:], origin)


def _array(name: str, values: AnyArray | AnyPath, rows: int) -> AnyArray | NpyFile:
    """Return the values of a column. Raises ``PlanError`` if they don't fit."""
    what = f"the column {name!r}"
    array: AnyArray | NpyFile
    if isinstance(values, str | bytes | os.PathLike):
        path = absolute(values, field=what)
        what += f", {path_text(values)},"
        array = opened_npy(what, path)
    else:
        array = values
    if array.ndim == 0 or len(array) != rows:
        raise PlanError(
            f"{what} has the shape {array.shape}; there are {rows:,} records, so its shape must be ({rows}, …)"
        )
    if array.dtype.newbyteorder("<").str not in COLUMN_DTYPES or 0 in array.shape:
        raise PlanError(
            f"{what} is {array.dtype} {array.shape}; it must be numbers of up to 64 bits, or bool"
        )
    return array


def _half_of_range(name: str, array: AnyArray) -> AnyArray:
    """Return offsets or lengths as int64. Raises ``PlanError`` if they can't be a byte range."""
    least = -1 if name == RANGE[1] else 0
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < least or array.max() >= 1 << 62:
        raise PlanError(
            f"the column {name!r} is {array.dtype} of shape {array.shape}; it must be an integer of at least {least} "
            "per record, in bytes"
        )
    return array.astype(np.int64)


def _called(listing: Listing, name: str, fn: Callable[[str], int]) -> Iterator[tuple[int, AnyArray]]:
    """Call a function for all records; yield its results in blocks, each with the number of records so far."""
    rows = listing.num_records
    for start in range(0, rows, ROWS_AT_ONCE):
        paths = listing.paths(np.arange(start, min(start + ROWS_AT_ONCE, rows)))
        block = np.empty(len(paths), np.int64)
        for row in range(len(paths)):
            path = os.fsdecode(paths[row])
            value = None
            try:
                value = fn(path)
                block[row] = operator.index(value)
            except (TypeError, OverflowError) as error:
                if value is None:
                    raise PlanError(f"the column {name!r}, for {path_text(path)}: {error}") from error
                raise PlanError(
                    f"the column {name!r}, for {path_text(path)}: the function returned {value!r}; it must be an int"
                ) from error
            except StandpipeError:
                raise
            except Exception as error:
                raise PlanError(
                    f"the column {name!r}, for {path_text(path)}: {type(error).__name__}: {error}"
                ) from error
        yield start + len(paths), block
