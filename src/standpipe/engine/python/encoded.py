"""Find the bytes of an encoded image in the value that a dataset gives: bytes, or a place in a file."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.engine.rows import EncodedFile, RowFailed, RowKey, Sample
from standpipe.spec import UInt8Array
from standpipe.transform.python.values import as_array, is_picture, is_tensor

MOST_OFFSET = 2**63 - 1  # of a file
OF_HUGGING_FACE = frozenset(("bytes", "path"))


@dataclass(frozen=True, slots=True)
class EncodedBytes:
    """An encoded image in memory.

    data  (n,) uint8; a view of the dataset's object
    name  the name that the dataset gave, for messages; None without one
    """

    data: UInt8Array
    name: str | None = None


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row whose image waits to be decoded, with the other values of its sample."""

    row: int
    key: RowKey
    sample: Sample
    image: EncodedBytes


def encoded_image(value: Any, field: str = "image") -> EncodedFile | EncodedBytes:
    """Return the bytes of an image, or their place in a file. Raises ``RowFailed`` for other values of the field."""
    match value:
        case EncodedFile():
            return value
        case bytes():
            return EncodedBytes(np.frombuffer(value, np.uint8))
        case Mapping() if OF_HUGGING_FACE.issuperset(value):
            return _of_dict(value, field)
        case str() | os.PathLike():
            return _file(value, 0, -1, field)
        case (path, offset, length) if isinstance(value, tuple) and isinstance(
            path, str | bytes | os.PathLike
        ):
            return _file(path, offset, length, field)
        case _:
            return EncodedBytes(_viewed(value, field))


def is_struct(value: Mapping[Any, Any]) -> bool:
    """Return True for Hugging Face's dict of an image, which a dataset of images alone gives as its sample."""
    return bool(value) and OF_HUGGING_FACE.issuperset(value)


def is_part_of_file(value: Any) -> bool:
    """Return True for a tuple (path, offset, length), which a dataset without further fields gives alone."""
    match value:
        case (str() | os.PathLike(), int() | np.integer(), int() | np.integer()):
            return isinstance(value, tuple)
    return False


def name_and_offset(encoded: EncodedFile | EncodedBytes) -> tuple[str | None, int]:
    """Return an encoded image's path or name for messages, and the offset of its bytes in that file."""
    if isinstance(encoded, EncodedBytes):
        return encoded.name, 0
    return encoded.name


def _of_dict(value: Mapping[str, Any], field: str) -> EncodedFile | EncodedBytes:
    data, path = value.get("bytes"), value.get("path")
    if data is None:
        if not isinstance(path, str) or not path:
            raise RowFailed("source", f"{field!r} is a dict whose 'bytes' and 'path' are both empty")
        return _file(path, 0, -1, field)
    return EncodedBytes(_viewed(data, field), path if isinstance(path, str) and path else None)


def _file(path: str | bytes | os.PathLike[Any], offset: Any, length: Any, field: str) -> EncodedFile:
    encoded = os.fsencode(path)
    try:
        begin, size = operator.index(offset), operator.index(length)
    except TypeError:
        begin, size = -1, -1
    if not 0 <= begin <= begin + max(size, 0) <= MOST_OFFSET or size < -1 or not encoded or b"\0" in encoded:
        raise RowFailed(
            "source",
            f"{field!r} is ({path!r}, {offset!r}, {length!r}); it must be a path, an offset from 0 on in bytes, and a "
            "length in bytes, or -1 for the rest of the file",
        )
    return EncodedFile(encoded, begin, size)


def _viewed(value: Any, field: str) -> UInt8Array:
    array = as_array(value) if is_tensor(value) else value
    if isinstance(array, np.ndarray):
        if array.dtype == np.uint8 and array.ndim == 1:
            return np.ascontiguousarray(array)
    elif not is_picture(value):
        with contextlib.suppress(TypeError):  # no buffer, or one with gaps
            view = memoryview(value)
            if view.itemsize == 1:
                return np.frombuffer(view.cast("B"), np.uint8)
    raise RowFailed(
        "source",
        f"with encoded={field!r}, the dataset must give the image's bytes, a path, a tuple (path, offset, length) or a "
        f"dict {{'bytes': …, 'path': …}}, but {field!r} is {_what(value, field)}",
    )


def _what(value: Any, field: str) -> str:
    kind = type(value)
    if is_picture(value):
        return (
            f"a {kind.__name__}, which is decoded. A Hugging Face dataset gives bytes after "
            f"cast_column({field!r}, datasets.Image(decode=False)), and decode(orientation='apply') turns photos as "
            "it does; for Pillow images, leave encoded= out"
        )
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} {value.dtype}; an array of bytes is (n,) uint8"
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(map(repr, list(value)[:5]))}"
    return kind.__name__
