"""Check a source with some records against the contract of all sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from standpipe.contracts.source import Encoded, HasInstances, HasMasks, OpenSource, Records, Source
from standpipe.spec import ArraySpec, Listed, RaggedSpec


def check_source(source: Source) -> None:
    """Check everything that ``Source`` and ``OpenSource`` promise, for tests of your own source.

    Parameters
    ----------
    source : Source
        A source of a few records. It is opened twice, and all records are looked up.

    Raises
    ------
    AssertionError
        With the first broken promise.

    Examples
    --------
    >>> from standpipe.contracts import check_source
    >>> check_source(sp.ImageFolder("photos"))
    """
    _require(isinstance(source, Source), "a source has open() and describe()")
    described = source.describe()
    _require(described == source.describe(), "describe() returns the same text each time")
    _require(described.isprintable(), f"describe() returns one printable line, got {described!r}")

    opened = source.open()
    _check_facts(opened)
    every = opened.locate(np.arange(opened.num_records))
    _check_fields(opened, every)
    _check_classes(opened, every)
    _check_columns(opened, every)
    _check_any_rows(opened)

    again = source.open()
    _require(again.digest == opened.digest, "digest is the same each time the source is opened")
    same = _as_rows(again.locate(np.arange(again.num_records))) == _as_rows(every)
    _require(same, "records are the same each time the source is opened")


def _require(holds: bool | np.bool_, promise: str) -> None:
    if not holds:
        raise AssertionError(promise)


def _check_facts(opened: OpenSource) -> None:
    _require(opened.num_records > 0, f"num_records is at least 1, got {opened.num_records}")
    _require(opened.index_bytes >= 0, f"index_bytes is at least 0, got {opened.index_bytes}")
    is_digest = re.fullmatch(r"[0-9a-f]{32,}", opened.digest) is not None
    _require(is_digest, f"digest is 32 hex digits or more, got {opened.digest!r}")
    _require("index" not in opened.fields, "no field is named 'index': the batch place adds it")
    for index in (0, opened.num_records - 1):
        name = opened.name(index)
        _require(name is None or name.isprintable(), f"name({index}) is printable or None, got {name!r}")


def _check_classes(opened: OpenSource, records: Records) -> None:
    if opened.classes is None:
        return
    _require(all(name.isprintable() for name in opened.classes), "class names are printable")
    labels = records.plain["label"] if "label" in records.plain else records.ragged["labels"].values
    in_range = labels.min(initial=0) >= 0 and labels.max(initial=-1) < len(opened.classes)
    _require(in_range, f"labels are in [0, {len(opened.classes)}), one for each class")


def _check_fields(opened: OpenSource, records: Records) -> None:
    """Check that every field is in one of the columns of ``Records``, with the dtype and shape of ``fields``."""
    count = len(records.index)
    _require(records.index.dtype == np.int64, f"index is int64, got {records.index.dtype}")
    found = sorted([*records.files, *records.rows, *records.plain, *records.ragged, *records.texts])
    _require(
        found == sorted(opened.fields), f"locate() gives each of {sorted(opened.fields)} once, got {found}"
    )
    for name in records.files:
        _check_files(opened, records, name)
    for name in records.rows:
        _check_rows(opened, records, name)
    for name, values in records.plain.items():
        spec = opened.fields[name]
        _require(
            not isinstance(spec, Encoded), f"{name!r} is Encoded in fields, so locate() gives files for it"
        )
        got = ArraySpec(values.shape[1:], values.dtype)
        fits = len(values) == count and got == spec and values.dtype.isnative
        _require(fits, f"{name!r} is {spec} for each of {count} records, got {values.dtype} {values.shape}")

    _check_ragged(opened, records)
    for name, texts in records.texts.items():
        spec, ends = opened.fields[name], texts.ends
        _require(spec == Listed("str"), f"{name!r} is {Listed('str')}, got {spec}")
        fits = ends.dtype == np.int64 and len(ends) == count and texts.blob.dtype == np.uint8
        counts = np.diff(ends, prepend=0)
        whole = bool((counts >= 0).all()) and counts.sum() == len(texts.blob)
        _require(fits and whole, f"{name!r} is uint8, cut at an int64 end for each record")


def _check_ragged(opened: OpenSource, records: Records) -> None:
    for name, rows in records.ragged.items():
        got, ends = RaggedSpec(rows.values.shape[1:], rows.values.dtype), rows.ends
        fits = got == opened.fields[name] and rows.values.dtype.isnative
        _require(fits, f"{name!r} is {opened.fields[name]} for each record, got {got}")
        counts = np.diff(ends, prepend=0)
        _require(
            ends.dtype == np.int64 and len(ends) == len(records.index) and bool((counts >= 0).all()),
            f"ends of {name!r} are int64 for each record, none less than the one before",
        )
        _require(counts.sum() == len(rows.values), f"the last end of {name!r} is the number of its values")
        same = all(np.array_equal(ends, other.ends) for other in records.ragged.values())
        _require(same, f"{name!r} has as many values as the record has instances in other ragged fields")
        most = opened.most_instances if isinstance(opened, HasInstances) else counts.max(initial=0)
        _require(
            counts.max(initial=0) <= most, f"a record has at most {most} instances, as most_instances says"
        )
    sizes = records.sizes
    known = sizes is not None and sizes.dtype == np.int64 and sizes.shape == (len(records.index), 2)
    _require(known or not records.ragged, "sizes are int64, a height and a width for each record")
    if isinstance(opened, HasMasks) and opened.has_masks:
        shapes, total = records.shapes, max((len(rows.values) for rows in records.ragged.values()), default=0)
        fits = shapes is not None and shapes.values.dtype == np.float32 and shapes.values.shape[1:] == (2,)
        whole = (
            shapes is not None and len(shapes.ends) == total and shapes.ends[-1:].sum() == len(shapes.values)
        )
        _require(fits and whole, "shapes are (total, 2) float32, cut at an end for each instance")


def _check_files(opened: OpenSource, records: Records, name: str) -> None:
    files, count = records.files[name], len(records.index)
    _require(
        isinstance(opened.fields[name], Encoded), f"{name!r} is Encoded in fields, as locate() gives files"
    )
    counts = {len(files.paths), len(files.offset), len(files.length)}
    _require(counts == {count}, f"{name!r} has a path, an offset and a length for each record")
    _require(files.offset.dtype == files.length.dtype == np.int64, f"offset and length of {name!r} are int64")
    for known in (files.file_bytes, files.mtime_ns, files.crc32c):
        _require(
            known is None or (known.dtype == np.int64 and len(known) == count),
            f"file_bytes, mtime_ns and crc32c of {name!r} are None, or int64 for each record",
        )
    _require(bool(np.all(files.offset >= 0)), f"offsets of {name!r} are at least 0")
    _require(
        bool(np.all(files.length >= -1)), f"lengths of {name!r} are at least 0, or -1 for the whole file"
    )
    for row in range(count):
        path = files.paths[row].decode("utf-8", "surrogateescape")
        _require(Path(path).is_absolute(), f"paths of {name!r} are absolute, got {path!r}")


def _check_rows(opened: OpenSource, records: Records, name: str) -> None:
    rows, spec = records.rows[name], opened.fields[name]
    for part in rows.parts:
        array = part.array
        fits = isinstance(spec, ArraySpec) and (array.shape[1:], array.dtype) == (spec.shape, spec.dtype)
        _require(fits, f"a row of {name!r} is {spec}, got {array.dtype} {array.shape[1:]}")
        _require(
            array.flags.c_contiguous and array.dtype.isnative, f"{name!r} has C order and native byte order"
        )
        _require(len(part.rows) == len(records.index), f"{name!r} has a row for each record")
    where = np.array([part.rows for part in rows.parts])
    _require(bool(np.all((where >= 0).sum(axis=0) == 1)), f"each record of {name!r} is in one array")
    _require(not rows.others or where.min(initial=-1) == -1, f"the row of {name!r} in all other arrays is -1")


def _check_columns(opened: OpenSource, records: Records) -> None:
    """Check that a column has one number per record, the same in any pieces, and equal to the field of its
    name.
    """
    count = opened.num_records
    for name in opened.columns:
        whole = opened.column(name, 0, count)
        fits = whole.shape == (count,) and whole.dtype.kind in "biufc" and whole.dtype.isnative
        _require(fits, f"column({name!r}) is one number for each record, got {whole.dtype} {whole.shape}")
        if name in opened.fields:
            same = (
                whole.dtype == records.plain[name].dtype and whole.tobytes() == records.plain[name].tobytes()
            )
            _require(same, f"column({name!r}) has the values that locate() gives")
        for cut in {0, 1, count // 2, count}:
            parts = np.concatenate([opened.column(name, 0, cut), opened.column(name, cut, count)])
            _require(
                parts.tobytes() == whole.tobytes(), f"column({name!r}) is the same in pieces, cut at {cut}"
            )
        for start, stop in ((-1, 1), (0, count + 1), (1, 0)):
            _require_error(IndexError, f"column({name!r}, {start}, {stop})", opened.column, name, start, stop)
    for name in ("", "no such column"):
        _require_error(KeyError, f"column({name!r}, 0, 1)", opened.column, name, 0, 1)


def _require_error(kind: type[Exception], what: str, call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"{what} raises {kind.__name__}")


def _check_any_rows(opened: OpenSource) -> None:
    """Check that ``locate()`` gives the same records in any order, repeated, alone, and none for no indices."""
    every = _as_rows(opened.locate(np.arange(opened.num_records)))
    chosen = np.random.default_rng(0).integers(0, opened.num_records, 2 * opened.num_records)
    asked = chosen.copy()
    records = opened.locate(chosen)
    same = _as_rows(records) == [every[index] for index in chosen]
    _require(same, "locate() gives the same records in any order, also repeated")
    _require(
        np.array_equal(records.index, asked), "index of locate(indices) is indices, which stay as they are"
    )
    _require(_as_rows(opened.locate(chosen[:1])) == [every[chosen[0]]], "locate() gives one record alone")
    none = opened.locate(chosen[:0])
    _check_fields(opened, none)
    _require(_as_rows(none) == [], "locate() of no indices gives no records")


def _as_rows(records: Records) -> list[tuple[object, ...]]:
    """Return one tuple per record, for comparisons."""
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
    columns += [
        [part.tobytes() for part in np.split(ragged.values, ragged.ends[:-1])] if len(ragged.ends) else []
        for ragged in records.ragged.values()
    ]
    columns += [[*texts.texts()] for texts in records.texts.values()]
    return list(zip(*columns, strict=True))
