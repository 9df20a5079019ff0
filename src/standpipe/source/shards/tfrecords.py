"""The source of images in TFRecord files of ``tf.train.Example``, which are read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.index.writer import IndexWriter
from standpipe.source.shards.listing import ShardListing
from standpipe.source.shards.named import Named, NamedReader, NamedSubject, check_fields, named_text
from standpipe.source.shards.names import check_shards, shard_paths, shards_text
from standpipe.source.shards.subject import RECORDS_AT_ONCE, ShardPart
from standpipe.spec import AnyArray
from standpipe.system.paths import AnyPath, absolute, path_text

MOST_NAMED = 20  # features in a message
Fault: TypeAlias = tuple[str, int, int, int, int]  # of ``_native.ExampleRecords``

SUCH = "image='image/encoded'"
AGAIN = "copy the file again"
FAULTS = {  # with {feature} and {field}, the {kind} of the first record's values, and {found}, a record's features
    "compressed": "the file is compressed, and parts of a compressed file can't be read alone; unpack it, for example "
    "with 'gzip -dc FILE > FILE.tfrecord' if TensorFlow wrote it as GZIP, and with 'zlib-flate -uncompress < FILE > "
    "FILE.tfrecord' if as ZLIB",
    "not_records": "this isn't a record's length with its checksum; TFRecords reads uncompressed TFRecord files",
    "bad_length": f"the checksum of the record's length differs; {AGAIN}",
    "bad_data": f"the checksum of the record differs; {AGAIN}",
    "cut": f"the file ends inside this record, so it is cut; {AGAIN}",
    "too_long": "the record is longer than 1 GiB; write it again in smaller records",
    "no_example": "the record isn't a tf.train.Example; TFRecords reads no other messages",
    "missing": "it has no feature {feature!r} with a value, for the field {field!r}; it has {found}",
    "kind": "the feature {feature!r} isn't {kind} as in the first record; leave it out, or write the file again",
    "count": "the feature {feature!r} hasn't as many values as in the first record, or several byte strings. Lists "
    "of one length alone can be a field; leave it out",
}


@dataclass(frozen=True, slots=True, init=False)
class TFRecords:
    """Images in uncompressed TFRecord files of ``tf.train.Example``, which are read where they are.

    ``TFRecords("train-*", image="image/encoded", label="image/class/label")`` reads ImageNet as TensorFlow's scripts
    write it: each argument is a field, and says which feature of each record it is. The first record says what each
    feature is. One byte string is an encoded image, or other bytes if it doesn't begin like an image: ``map(…,
    field=…)`` passes these to a function. With ``texts="caption"`` it is a text, and a batch has a list of str. Numbers
    are columns: int64 or float32, () for lists of one value, (n,) for others. All records have the features that are
    named, of the same kind and length. Other features are left out.

    Labels are the numbers in the file. In ImageNet's files they count from 1, as 0 is a class of its own there:
    ``map(lambda label: label - 1, field="label")`` counts from 0.

    All records are read once, into an index, and the checksums of all lengths and records are compared. Later runs use
    the index while the sizes and modification times of all files are the same. Records have numbers in the order of the
    files' names, and of their places there, so shuffles, splits, ranks and resuming work as for a folder of files. The
    digest covers the records' checksums, but not the paths. Numbers and texts are in the index, which grows by them.

    Parameters
    ----------
    shards : path or sequence of paths
        Files, such as ``"train-{00000..01023}-of-01024"``: with ranges and choices in braces, and ``*``, ``?`` and
        ``[…]`` as in a shell. They are sorted by name.
    index : path, optional
        Path of the index file. Default: beside the first file if it exists there, else in the user's cache folder, or
        in memory for a few small files.
    texts : str or sequence of str, optional
        The fields that are texts in UTF-8, such as ``"caption"``.
    named : tuple of (str, str), optional
        Fields as pairs, in the form in which the attribute ``named`` has them.
    **fields : str
        The feature of each field. At least one must be an image. ``label`` must be one integer.

    Raises
    ------
    PlanError
        By ``plan()``, with file, record and byte: for files that are missing, empty, cut, damaged or compressed, for
        records that aren't a ``tf.train.Example``, and for one that lacks a feature, with those that it has.

    Examples
    --------
    >>> source = sp.TFRecords("train-*.tfrecord", image="image/encoded", label="image/class/label")
    >>> source.describe()
    "TFRecords('train-*.tfrecord', image='image/encoded', label='image/class/label')"
    """

    shards: AnyPath | Sequence[AnyPath]
    index: AnyPath | None
    texts: str | Sequence[str]
    named: Named

    def __init__(
        self,
        shards: AnyPath | Sequence[AnyPath],
        index: AnyPath | None = None,
        *,
        texts: str | Sequence[str] = (),
        named: Named = (),
        **fields: str,
    ) -> None:
        object.__setattr__(self, "shards", shards)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "named", (*named, *fields.items()))

    def open(self) -> OpenSource:
        """Find the files' index, or read all records and build one.

        Raises ``PlanError`` if a file can't be read or is damaged, or a record lacks a feature.
        """
        return ShardListing.open(self.subject())

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        texts = f", texts={self.texts!r}" if self.texts else ""
        return f"TFRecords({shards_text(self.shards)}{named_text(self.named, self.index)}{texts})"

    def subject(self) -> RecordSubject:
        """Return the files, as the subject of an index."""
        check_shards(self.shards, "TFRecords")
        texts = tuple(self.texts) if isinstance(self.texts, list | tuple) else (self.texts,)
        check_fields("TFRecords", self.named, SUCH, texts)
        index = None if self.index is None else absolute(self.index, field="TFRecords' index")
        name = shards_text(self.shards).strip("'")
        return RecordSubject(shard_paths(self.shards, "TFRecords"), name, index, self.named, texts)


@dataclass(frozen=True, slots=True)
class RecordSubject(NamedSubject):
    """A ``Subject`` of TFRecord files."""

    kind = "tfrecord"

    def options(self) -> dict[str, bool]:
        """Return the feature of each field, and the texts."""
        options = {f"{field}={feature}": True for field, feature in self.named}
        return options | {f"text {field}": True for field in self.texts}

    def reader(self, writer: IndexWriter) -> _Reader:
        """Return a reader of all records."""
        return _Reader(writer, self)


class _Reader(NamedReader):
    """Reads TFRecord files, and compares their checksums."""

    def __init__(self, writer: IndexWriter, subject: RecordSubject) -> None:
        super().__init__(writer, subject)
        self._subject = subject
        self._records = _native.ExampleRecords([feature for _, feature in subject.named])

    def read(self, number: int, file: int, size: int) -> Iterator[ShardPart]:
        """Yield the records of a file."""
        records, named = self._records, self._subject.named
        shard = path_text(self._subject.shards[number])
        records.begin(file, size)
        more = True
        while more:
            more = records.take(RECORDS_AT_ONCE)
            if records.fault is not None:
                _refuse(shard, records, records.fault, named)
            if not named:
                raise PlanError(
                    f"TFRecords needs the feature of each field, such as {SUCH}; a record of {shard} has "
                    f"{_features(records)}"
                )
            yield self._taken(file)

    def _taken(self, file: int) -> ShardPart:
        ranges, numbers = {}, dict[str, AnyArray]()
        for at, (field, _) in enumerate(self._subject.named):
            kind, count = self._records.kind(at)
            if kind == "bytes":
                ranges[field] = self._records.offsets(at), self._records.lengths(at)
            else:
                values = self._records.ints(at) if kind == "integers" else self._records.floats(at)
                numbers[field] = values if count == 1 else values.reshape(-1, count)
        return self.part(file, ranges, numbers, np.asarray(self._records.sums))


def _refuse(shard: str, records: _native.ExampleRecords, fault: Fault, named: Named) -> NoReturn:
    """Raise the ``PlanError`` for a fault."""
    what, record, at, number, code = fault
    if what == "cant_read":
        raise OSError(code, os.strerror(code))
    field, feature = named[number] if named else ("", "")
    kind = records.kind(number)[0] if named else ""
    text = FAULTS[what].format(feature=feature, field=field, kind=kind, found=_features(records))
    raise PlanError(f"{shard}, record {record:,} at byte {at:,}: {text}")


def _features(records: _native.ExampleRecords) -> str:
    """Return the features of the record that was read last, and what each is, printable."""
    found = [f"{path_text(name)!r} ({kind})" for name, kind in sorted(records.features)]
    more = ", …" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more if found else "no features"
