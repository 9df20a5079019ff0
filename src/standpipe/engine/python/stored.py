"""Samples as bytes, and back: what a cache keeps of those that Python code makes.

::

    form  fields  { name's length, name, value } …

A value begins with its kind and what that needs, such as an array's dtype and shape; all numbers are little endian.
Elements of arrays, tensors and images follow at the next multiple of their item's size, so that arrays are views of
what was read. Nothing is unpickled, and every length is compared with what there is: bytes from anywhere give a sample
or ``NotStored``.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from standpipe.engine.rows import Sample
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform.values import is_picture, is_tensor

FORMS = (dict, tuple, object)  # what a dataset's sample was: a dict, a tuple, or its only value
MOST_DEPTH = 16  # of lists, tuples and dicts in one another
MOST_BYTES = 1 << 30  # of a row
NONE, FALSE, TRUE, INT, FLOAT, COMPLEX, TEXT, BYTES, SCALAR, ARRAY, TENSOR, PICTURE, LIST, TUPLE, DICT = (
    range(15)
)

DTYPES = {
    dtype.str.encode(): dtype
    for kind in map(
        np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
    )
    for dtype in (kind, kind.newbyteorder())
}
TENSORS = frozenset(
    (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "complex64",
    )
)
# Pillow's modes whose pixels are all that there is to know of an image, unlike a palette's, and a pixel's bytes. Of
# "1" a byte has eight.
MODES = {
    "1": 0,
    "L": 1,
    "LA": 2,
    "RGB": 3,
    "RGBA": 4,
    "CMYK": 4,
    "YCbCr": 3,
    "LAB": 3,
    "HSV": 3,
    "I": 4,
    "F": 4,
}
MOST_PX = (1 << 31) - 1  # of a side, as Pillow has them
_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_C128 = struct.Struct("<dd")


class NotStorable(Exception):
    """A value of which no bytes can be kept: its place in the sample, and what it is."""


class NotStored(Exception):
    """Bytes that are no sample."""


def to_bytes(sample: Sample, form: type) -> UInt8Array:
    """What a cache keeps of a sample, (n,) uint8. Raises ``NotStorable``.

    form  one of ``FORMS``
    """
    out = _Writer()
    out.bytes.append(FORMS.index(form))
    out.value(sample, "the sample", 0)
    if len(out.bytes) > MOST_BYTES:
        raise NotStorable(f"the sample has {len(out.bytes):,} bytes, and a row at most {MOST_BYTES:,}")
    return np.frombuffer(out.bytes, np.uint8)


def from_bytes(data: UInt8Array) -> tuple[Sample, type]:
    """The sample, and its form. Arrays and bytes are read only; arrays are views of ``data``, and so are tensors.

    data  (n,) uint8, writable, of this sample alone. Tensors, which can't be read only, write into it

    Raises ``NotStored``.
    """
    source = _Reader(data)
    form = source.byte()
    sample = source.value(0)
    if form >= len(FORMS) or type(sample) is not dict or source.at != len(data):
        raise NotStored("no sample, or more than one")
    return sample, FORMS[form]


class _Writer:
    """Appends values."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def value(self, value: Any, place: str, depth: int) -> None:
        """Append a value. Raises ``NotStorable`` that names its ``place``."""
        kind = type(value)
        match value:
            case None:
                self.bytes.append(NONE)
            case bool():
                self.bytes.append(TRUE if value else FALSE)
            case int() if kind is int:
                self._sized(INT, value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True))
            case float() if kind is float:
                self.bytes.append(FLOAT)
                self.bytes += _F64.pack(value)
            case complex() if kind is complex:
                self.bytes.append(COMPLEX)
                self.bytes += _C128.pack(value.real, value.imag)
            case str() if kind is str:
                self._sized(TEXT, value.encode("utf-8", "surrogatepass"))
            case bytes() if kind is bytes:
                self._sized(BYTES, value)
            case np.generic() if value.dtype.str.encode() in DTYPES:
                self._named(SCALAR, value.dtype.str)
                self.bytes += value.tobytes()
            case np.ndarray() if kind in (np.ndarray, np.memmap) and value.dtype.str.encode() in DTYPES:
                self._named(ARRAY, value.dtype.str)
                self._elements(np.asarray(value))
            case list() | tuple() | dict() if kind in _KINDS and depth < MOST_DEPTH:
                self._several(value, place, depth)
            case _ if is_tensor(value):
                self._tensor(value, place)
            case _ if is_picture(value) and value.mode in MODES and min(value.size) > 0:
                self._named(PICTURE, value.mode)
                self.bytes += struct.pack("<II", *value.size)
                self.bytes += value.tobytes()
                self.value(_told(value.info), place, depth + 1)
            case _:
                raise NotStorable(f"{place} is {_what(value)}")

    def _several(self, values: Any, place: str, depth: int) -> None:
        self.bytes.append(_KINDS[type(values)])
        self.bytes += _U32.pack(len(values))
        if not isinstance(values, dict):
            for number, value in enumerate(values):
                self.value(value, f"{place}[{number}]", depth + 1)
            return
        for name, value in values.items():
            if type(name) is not str:
                raise NotStorable(f"{place} has a key {name!r:.60}, which is {_what(name)}")
            self._text(name)
            self.value(value, f"the field {name!r}" if depth == 0 else f"{place}[{name!r}]", depth + 1)

    def _tensor(self, value: Any, place: str) -> None:
        import torch  # it is there: the value is its

        dtype = str(value.dtype).removeprefix("torch.")
        plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
        if not plain or dtype not in TENSORS or value.requires_grad or value.is_conj() or value.is_neg():
            raise NotStorable(f"{place} is {_what(value)}")
        self._named(TENSOR, dtype)
        self._elements((value.contiguous().view(torch.int16) if dtype == "bfloat16" else value).numpy())

    def _elements(self, array: AnyArray) -> None:
        self.bytes.append(array.ndim)
        self.bytes += struct.pack(f"<{array.ndim}Q", *array.shape)
        self.bytes += bytes(-len(self.bytes) % array.itemsize)
        self.bytes += np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def _named(self, kind: int, name: str) -> None:
        self.bytes.append(kind)
        self.bytes.append(len(name))
        self.bytes += name.encode()

    def _sized(self, kind: int, data: bytes) -> None:
        self.bytes.append(kind)
        self.bytes += _U32.pack(len(data))
        self.bytes += data

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.bytes += _U32.pack(len(data))
        self.bytes += data


def _told(info: Mapping[Any, Any]) -> dict[str, Any]:
    """Of what a file says of its image, such as EXIF and transparency, all that can be kept."""

    def can_be(value: Any) -> bool:
        try:
            _Writer().value(value, "", 1)
        except NotStorable:
            return False
        return True

    return {name: value for name, value in info.items() if type(name) is str and can_be(value)}


_KINDS: Mapping[type, int] = {list: LIST, tuple: TUPLE, dict: DICT}


class _Reader:
    """Takes values from bytes that may be anybody's."""

    def __init__(self, data: UInt8Array) -> None:
        self._data = data
        self._bytes = data.data
        self.at = 0

    def value(self, depth: int) -> Any:
        """The next one. Raises ``NotStored``."""
        kind = self.byte()
        if kind in (LIST, TUPLE, DICT) and depth < MOST_DEPTH:
            return self._several(kind, depth)
        if kind == PICTURE:
            return self._picture(depth)
        take = _SIMPLE.get(kind)
        if take is None:
            raise NotStored(f"kind {kind}")
        return take(self)

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def take(self, size: int) -> memoryview:
        """So many bytes."""
        begin, self.at = self.at, self.at + size
        if self.at > len(self._bytes):
            raise NotStored("it ends too soon")
        return self._bytes[begin : self.at]

    def sized(self) -> bytes:
        """Bytes behind their number."""
        return bytes(self.take(_U32.unpack(self.take(4))[0]))

    def text(self) -> str:
        """Text behind its length."""
        try:
            return self.sized().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise NotStored("text that is none") from error

    def name(self) -> bytes:
        """Of a dtype or a mode."""
        return bytes(self.take(self.byte()))

    def dtype(self) -> np.dtype[Any]:
        """One of numbers."""
        found = DTYPES.get(self.name())
        if found is None:
            raise NotStored("a dtype that is none of numbers")
        return found

    def elements(self, dtype: np.dtype[Any]) -> AnyArray:
        """An array, as a view."""
        ndim = self.byte()
        if ndim > 64:
            raise NotStored("more axes than arrays have")
        shape = struct.unpack(f"<{ndim}Q", self.take(8 * ndim))
        self.take(-self.at % dtype.itemsize)
        begin, size = self.at, math.prod(shape) * dtype.itemsize
        if max(shape, default=0) > sys.maxsize:
            raise NotStored("an axis longer than arrays have")
        self.take(size)
        try:
            return self._data[begin : self.at].view(dtype).reshape(shape)
        except ValueError as error:  # of no elements, and axes that are too long together
            raise NotStored(str(error)) from error

    def _picture(self, depth: int) -> Any:
        picture = _taken_picture(self)
        picture.info = self.value(depth + 1)
        if type(picture.info) is not dict:
            raise NotStored("an image of which something else is told than names and values")
        return picture

    def _several(self, kind: int, depth: int) -> Any:
        number = _U32.unpack(self.take(4))[0]
        if number > len(self._bytes) - self.at:  # each has a byte at least
            raise NotStored("more values than bytes")
        if kind == DICT:
            return {self.text(): self.value(depth + 1) for _ in range(number)}
        values = [self.value(depth + 1) for _ in range(number)]
        return tuple(values) if kind == TUPLE else values


def _taken_array(source: _Reader) -> AnyArray:
    array = source.elements(source.dtype())
    array.flags.writeable = False
    return array


def _taken_scalar(source: _Reader) -> np.generic:
    dtype = source.dtype()
    scalar: np.generic = np.frombuffer(source.take(dtype.itemsize), dtype)[0]
    return scalar


def _taken_tensor(source: _Reader) -> Any:
    name = source.name().decode("ascii", "replace")
    if name not in TENSORS:
        raise NotStored("a tensor of no known dtype")
    import torch  # whoever stored it had it

    as_words = np.dtype("int16" if name == "bfloat16" else name)
    tensor = torch.from_numpy(source.elements(as_words))
    return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor


def _taken_picture(source: _Reader) -> Any:
    mode = source.name().decode("ascii", "replace")
    if mode not in MODES:
        raise NotStored("an image of no known mode")
    from PIL import Image  # likewise

    width, height = struct.unpack("<II", source.take(8))
    if not (0 < width <= MOST_PX and 0 < height <= MOST_PX):
        raise NotStored("an image of no size")
    size = height * (-(-width // 8) if mode == "1" else width * MODES[mode])
    return Image.frombytes(mode, (width, height), source.take(size))


def _taken_int(source: _Reader) -> int:
    return int.from_bytes(source.sized(), "little", signed=True)


_SIMPLE = {
    NONE: lambda source: None,
    FALSE: lambda source: False,
    TRUE: lambda source: True,
    INT: _taken_int,
    FLOAT: lambda source: _F64.unpack(source.take(8))[0],
    COMPLEX: lambda source: complex(*_C128.unpack(source.take(16))),
    TEXT: _Reader.text,
    BYTES: _Reader.sized,
    SCALAR: _taken_scalar,
    ARRAY: _taken_array,
    TENSOR: _taken_tensor,
}


def _what(value: Any) -> str:
    """A value's type for people, with an array's dtype."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    dtype = getattr(value, "dtype", None)
    mode = getattr(value, "mode", None)
    return f"a {name}" + (
        f" of {dtype}" if dtype is not None else f" of mode {mode!r}" if isinstance(mode, str) else ""
    )
