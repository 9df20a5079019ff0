"""An opened Arrow table, whose images are read from the files in which they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from standpipe.contracts import Encoded, Records
from standpipe.contracts.source import FieldSpec, check_part
from standpipe.errors import PlanError
from standpipe.source.tables.columns import Images, Numbers, Strings, image_column, number_column, text_column
from standpipe.source.tables.memory import Buffers, MappedFile
from standpipe.spec import BATCH_FIELDS, AnyArray, Int64Array
from standpipe.system.paths import path_text

ROWS_AT_ONCE = 1 << 16
IMAGE, LABEL = "image", "label"


@dataclass(frozen=True, eq=False)
class OpenTable:
    """An ``OpenSource`` of a table's rows.

    num_records  number of records
    memories     the mapped files of the table, and of the order
    order        the row of each record; None: in the table's order
    images       columns of encoded images by the name of their field
    numbers      columns of numbers by name
    texts        columns of texts by name
    left_out     the types of other columns by name
    classes      names of the numbers in the column ``label``, or None
    """

    num_records: int
    memories: tuple[Buffers, ...]
    order: Numbers | None
    images: Mapping[str, Images]
    numbers: Mapping[str, Numbers]
    texts: Mapping[str, Strings]
    left_out: Mapping[str, str]
    classes: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        call: str,
        table: Any,
        files: list[MappedFile],
        *,
        image: str,
        features: Mapping[str, Any],
        indices: Any = None,
    ) -> OpenTable:
        """Find the columns of a ``pyarrow.Table`` that a source can have.

        call      the source, for errors
        files     the mapped files
        image     the name of the column that becomes the field ``image``
        features  what Hugging Face's metadata say of columns, by name
        indices   the column with the row of each record; None: in the table's order

        Raises ``PlanError`` if it has no records, or no such column of images.
        """
        count = table.num_rows if indices is None else len(indices)
        if count == 0:
            raise PlanError(f"{call} has no records")
        memory = Buffers(files, table)
        images, numbers, texts, left_out = {}, {}, {}, {}
        for name in table.column_names:
            column, field = table.column(name), IMAGE if name == image else name
            is_image = name == image or _feature(features, name).get("_type") == "Image"
            if field in BATCH_FIELDS or (field == IMAGE and name != image):
                left_out[name] = "its name stands for another field"
            elif is_image and (found := image_column(column, memory)) is not None:
                images[field] = found
            elif not is_image and (values := number_column(column, memory)) is not None:
                numbers[field] = values
            elif not is_image and (strings := text_column(column, memory)) is not None:
                texts[field] = strings
            else:
                left_out[name] = f"{_type(column.type)}{' with nulls' if column.null_count else ''}"
        if IMAGE not in images:
            known = ", ".join(f"{name!r} ({_type(table.column(name).type)})" for name in table.column_names)
            raise PlanError(
                f"{call} needs a column of encoded images, binary or a struct of bytes and path, and image={image!r} "
                f"isn't one. Its columns: {known}. Name one of them by image="
            )
        of_order = Buffers(files, indices)
        classes = named_classes(features.get(LABEL)) if LABEL in numbers else None
        order = None if indices is None else number_column(indices, of_order)
        return cls(count, (memory, of_order), order, images, numbers, texts, left_out, classes)

    @property
    def aside(self) -> list[str]:
        """The fields with images that aren't in mapped files."""
        return [name for name, each in self.images.items() if not each.in_place]

    @cached_property
    def fields(self) -> Mapping[str, FieldSpec]:
        """Images, numbers, and texts."""
        return {
            **dict.fromkeys(self.images, Encoded()),
            **{name: each.spec for name, each in self.numbers.items()},
            **{name: each.spec for name, each in self.texts.items()},
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns with one number per record."""
        return tuple(self.numbers)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column for the records [start, stop)."""
        check_part(self, name, start, stop)
        return self.numbers[name].take(self._rows(np.arange(start, stop)))

    @cached_property
    def digest(self) -> str:
        """A digest of all records' numbers, and the lengths and places of their images and texts, in order."""
        fields = {name: str(spec) for name, spec in self.fields.items()}
        begin = repr(("table 1", self.num_records, fields, self.classes))
        return self.digest_of(begin, self._stand_for_records())

    def digest_of(self, begin: str, arrays: Iterable[AnyArray]) -> str:
        """Return the digest of a text and of arrays."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(begin.encode(), digest_size=16)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _stand_for_records(self) -> Iterator[AnyArray]:
        for start in range(0, self.num_records, ROWS_AT_ONCE):
            rows = self._rows(np.arange(start, min(start + ROWS_AT_ONCE, self.num_records)))
            for each in self._of_bytes:
                yield from each.stands_for(rows)
            yield from (values.take(rows) for values in self.numbers.values())

    @property
    def index_bytes(self) -> int:
        """Bytes of memory that grow with the table: the chunks' places, and values outside of mapped files."""
        return sum(each.nbytes for each in self.memories)

    @property
    def index_note(self) -> str:
        """The columns that are read in place, and those that are left out, for ``explain()``."""
        files = len({path for each in self.images.values() for path, _, _ in each.files})
        own = " and files of their own" if any(each.has_paths for each in self.images.values()) else ""
        note = f"{', '.join(self.images)} read in place, from {files:,} mapped file{'s' if files > 1 else ''}{own}"
        others = ", ".join(f"{name} ({kind})" for name, kind in self.left_out.items())
        return f"{note}; columns left out: {others}" if others else note

    def locate(self, indices: Int64Array) -> Records:
        """Return the places of the images, the numbers, and the texts."""
        rows = self._rows(indices)
        return Records(
            indices,
            files={name: each.locate(rows) for name, each in self.images.items()},
            plain={name: each.take(rows) for name, each in self.numbers.items()},
            texts={name: each.take(rows) for name, each in self.texts.items()},
        )

    def here(self) -> str:
        """Return the files of images and texts, with their sizes and times, which the digest doesn't cover."""
        return repr(sorted({file for each in self._of_bytes for file in each.files}))

    @property
    def _of_bytes(self) -> list[Images | Strings]:
        return [*self.images.values(), *self.texts.values()]

    def name(self, index: int) -> str:
        """Return the file that the record's image is in, and the image's own path or name there."""
        return self.images[IMAGE].name(int(self._rows(np.array([index]))[0]))

    def _rows(self, indices: Int64Array) -> Int64Array:
        """Return the rows of records."""
        return indices if self.order is None else self.order.take(indices).astype(np.int64)


def check_values(what: str, table: Any) -> None:
    """Raise ``PlanError`` for limits, dictionaries and texts that can't be, like those of damaged files.

    Images' bytes aren't read. ``what``: the table in messages.
    """
    import pyarrow as pa

    try:
        table.validate(full=True)
        table.schema.names  # noqa: B018 (they are decoded)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise PlanError(f"{what} is damaged: {error!s:.200}; write it again") from error


def _feature(features: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return what metadata say of a column; nothing if it isn't known."""
    found = features.get(name)
    return found if isinstance(found, Mapping) else {}


def named_classes(feature: Any) -> tuple[str, ...] | None:
    """Return the names of a column's numbers, if metadata have them."""
    names = feature.get("names") if isinstance(feature, Mapping) else None
    return tuple(map(path_text, names)) if isinstance(names, list) else None


def _type(kind: Any) -> str:
    """Return the name of a column's type without its parts."""
    return str(kind).partition("<")[0]
