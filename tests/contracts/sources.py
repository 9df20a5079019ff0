"""What every source promises, checked on one that has some records."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from standpipe.contracts import Encoded, OpenSource, Records, Source


def check_source(source: Source) -> None:
    """Open the source twice and check what the contract says. It must have at least one record."""
    assert isinstance(source, Source)
    assert source.describe() == source.describe()
    assert "\n" not in source.describe()
    assert source.describe().isprintable()

    opened = source.open()
    _check_facts(opened)
    every = np.arange(opened.num_records)
    _check_columns(opened, opened.locate(every))
    _check_known_columns(opened, opened.locate(every))
    _check_any_rows(opened)

    again = source.open()
    assert again.digest == opened.digest
    assert _as_rows(again.locate(every)) == _as_rows(opened.locate(every))


def _check_facts(opened: OpenSource) -> None:
    assert opened.num_records > 0
    assert opened.index_bytes >= 0
    assert re.fullmatch(r"[0-9a-f]{32,}", opened.digest)
    assert "index" not in opened.fields
    for index in (0, opened.num_records - 1):
        name = opened.name(index)
        assert name is None or name.isprintable()
    if opened.classes is not None:
        assert all(name.isprintable() for name in opened.classes)
        labels = opened.locate(np.arange(opened.num_records)).plain["label"]
        assert labels.min() >= 0
        assert labels.max() < len(opened.classes)


def _check_columns(opened: OpenSource, records: Records) -> None:
    """Every field is in exactly one kind of column, with the dtype and shape that ``fields`` says."""
    count = len(records.index)
    assert records.index.dtype == np.int64
    assert sorted([*records.files, *records.rows, *records.plain]) == sorted(opened.fields)
    for name, files in records.files.items():
        assert isinstance(opened.fields[name], Encoded)
        assert len(files.paths) == len(files.offset) == len(files.length) == count
        assert files.offset.dtype == files.length.dtype == np.int64
        assert all(
            Path(files.paths[row].decode("utf-8", "surrogateescape")).is_absolute() for row in range(count)
        )
    for name, rows in records.rows.items():
        spec = opened.fields[name]
        for part in rows.parts:
            assert (part.array.shape[1:], part.array.dtype) == (spec.shape, spec.dtype)
            assert part.array.flags.c_contiguous
            assert part.array.dtype.isnative
            assert len(part.rows) == count
        where = np.array([part.rows for part in rows.parts])
        assert np.all((where >= 0).sum(axis=0) == 1), "each record is in one array"
        assert not rows.others or where.min(initial=-1) == -1
    for name, values in records.plain.items():
        spec = opened.fields[name]
        assert (values.shape, values.dtype) == ((count, *spec.shape), spec.dtype)
        assert values.dtype.isnative


def _check_known_columns(opened: OpenSource, records: Records) -> None:
    """A column is the same in any pieces, one number a record, and what the field of its name holds."""
    count = opened.num_records
    for name in opened.columns:
        whole = opened.column(name, 0, count)
        assert whole.shape == (count,)
        assert whole.dtype.kind in "biufc"
        assert whole.dtype.isnative
        if name in opened.fields:
            assert whole.dtype == records.plain[name].dtype
            assert whole.tobytes() == records.plain[name].tobytes()
        for cut in {0, 1, count // 2, count}:
            parts = (opened.column(name, 0, cut), opened.column(name, cut, count))
            assert np.concatenate(parts).tobytes() == whole.tobytes()
        for start, stop in ((-1, 1), (0, count + 1), (1, 0)):
            with pytest.raises(IndexError):
                opened.column(name, start, stop)
    for name in ("", "no such column"):
        with pytest.raises(KeyError):
            opened.column(name, 0, 1)


def _check_any_rows(opened: OpenSource) -> None:
    """Rows are the same in any order, repeated, alone, and none at all."""
    every = _as_rows(opened.locate(np.arange(opened.num_records)))
    chosen = np.random.default_rng(0).integers(0, opened.num_records, 2 * opened.num_records)
    asked = chosen.copy()
    records = opened.locate(chosen)
    assert _as_rows(records) == [every[index] for index in chosen]
    assert np.array_equal(records.index, asked)
    assert _as_rows(opened.locate(chosen[:1])) == [every[chosen[0]]]
    none = opened.locate(chosen[:0])
    _check_columns(opened, none)
    assert _as_rows(none) == []


def _as_rows(records: Records) -> list[tuple[object, ...]]:
    """One comparable tuple per record."""
    columns: list[list[object]] = [records.index.tolist()]
    for files in records.files.values():
        paths = [files.paths[row] for row in range(len(files.paths))]
        columns.append(list(zip(paths, files.offset.tolist(), files.length.tolist(), strict=True)))
    for rows in records.rows.values():
        found = {
            i: part.array[row].tobytes() for part in rows.parts for i, row in enumerate(part.rows) if row >= 0
        }
        columns.append([found[i] for i in range(len(records.index))])
    columns += [[value.tobytes() for value in values] for values in records.plain.values()]
    return list(zip(*columns, strict=True))
