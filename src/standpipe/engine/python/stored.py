"""Turn samples into bytes and back, for a cache of what Python code makes.

::

    4 bytes      length of the text that follows
    text         JSON: [form, sample]
    blocks       elements of arrays, tensors and images, and bytes, in the order of the text, each from the next
                 multiple of its items' size on

In the text an object is a dict, and a list begins with its kind: ``["tuple", …]``, ``["array", "<f4", [3, 4]]``.
All numbers are little endian. Arrays are views of what was read. Nothing is unpickled, and every length is compared
with what there is: bytes from anywhere give a sample or ``NotStored``.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.engine.rows import Sample
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform.python.values import is_picture, is_tensor

FORMS = (dict, tuple, object)  # of a dataset's sample: a dict, a tuple, or its only value
MOST_DEPTH = 16  # of lists, tuples and dicts in one another
MOST_BYTES = _native.MOST_CACHED_BYTES  # of a row
MOST_AXES = 64  # of an array
DTYPES = {
    dtype.str: dtype
    for kind in map(
        np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
    )
    for dtype in (kind, kind.newbyteorder())
}
WORDS = ("int16", "int32", "int64", "float16", "float32", "float64", "complex64")
TENSORS = frozenset(("bool", "uint8", "int8", "bfloat16", *WORDS))
# Pillow's modes whose pixels are all that there is to know of an image, unlike a palette's, and a pixel's bytes. Of
# "1" a byte has eight.
MODES = {"1": 0, "L": 1, "LA": 2, "RGBA": 4, "CMYK": 4, "I": 4, "F": 4}
MODES |= dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3)
LENGTH = struct.Struct("<I")
PLAIN_INT = 1 << 63  # longer ones are written in base 16, which Python reads at any length


class NotStorable(Exception):
    """Raised for a value that a cache can't store; the text names its place in the sample, and its type."""


class NotStored(Exception):
    """Raised for bytes that don't describe a sample."""


def to_bytes(sample: Sample, form: type) -> UInt8Array:
    """Return a sample as bytes for a cache, (n,) uint8. Raises ``NotStorable`` for values that can't be stored.

    form  one of ``FORMS``
    """
    writer = _Writer()
    told = [FORMS.index(form), writer.node(sample, "the sample", 0)]
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    size = LENGTH.size + len(text) + sum(block.nbytes for block in writer.blocks)
    if size > MOST_BYTES:
        raise NotStorable(f"the sample has {size:,} bytes, and a row at most {MOST_BYTES:,}")
    out = bytearray(LENGTH.pack(len(text)) + text)
    for block in writer.blocks:
        out += bytes(-len(out) % block.itemsize)
        out += block.reshape(-1).view(np.uint8).data
    return np.frombuffer(out, np.uint8)


def from_bytes(data: UInt8Array) -> tuple[Sample, type]:
    """Return the sample, and its form. Arrays and tensors are views of ``data``; arrays are read only.

    data  (n,) uint8, writable, of this sample alone. Tensors, which can't be read only, write into it

    Raises ``NotStored``.
    """
    try:
        begin = LENGTH.size + LENGTH.unpack_from(data.data)[0]
        if begin > len(data):
            raise ValueError("it ends too soon")
        text = data[LENGTH.size : begin].tobytes().decode("utf-8", "surrogatepass")
        form, told = json.loads(text)
        reader = _Reader(data, begin)
        sample = reader.value(told, 0)
        if type(form) is not int or form not in range(len(FORMS)):
            raise ValueError("no form")
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, struct.error) as error:
        raise NotStored(str(error)) from error
    if type(sample) is not dict or reader.at != len(data):
        raise NotStored("no sample, or more than one")
    return sample, FORMS[form]


class _Writer:
    """Converts values to nodes of the JSON text, and collects their blocks of elements."""

    def __init__(self) -> None:
        self.blocks: list[AnyArray] = []

    def node(self, value: Any, place: str, depth: int) -> Any:
        """Return the JSON node of a value. Raises ``NotStorable`` with ``place``, the value's name for messages."""
        kind = type(value)
        match value:
            case None | bool() | str() if kind in (type(None), bool, str):
                return value
            case int() if kind is int:
                return value if -PLAIN_INT <= value < PLAIN_INT else ["int", f"{value:x}"]
            case float() if kind is float and math.isfinite(value):
                return value
            case float() | complex() if kind in (float, complex):
                return ["number", *self._block(np.array(value))]
            case bytes() if kind is bytes:
                return ["bytes", *self._block(np.frombuffer(value, np.uint8))]
            case np.generic() if value.dtype.str in DTYPES:
                return ["scalar", *self._block(np.asarray(value))]
            case np.ndarray() if kind in (np.ndarray, np.memmap) and value.dtype.str in DTYPES:
                return ["array", *self._block(np.asarray(value))]
            case list() | tuple() if kind in (list, tuple) and depth < MOST_DEPTH:
                nodes = (self.node(each, f"{place}[{i}]", depth + 1) for i, each in enumerate(value))
                return [kind.__name__, *nodes]
            case dict() if kind is dict and depth < MOST_DEPTH:
                return self._of_dict(value, place, depth)
            case _ if is_tensor(value):
                return self._of_tensor(value, place)
            case _ if is_picture(value) and value.mode in MODES and min(value.size) > 0:
                pixels = self._block(np.frombuffer(value.tobytes(), np.uint8))
                info = {name: each for name, each in value.info.items() if _is_storable({name: each})}
                return ["picture", *pixels, value.mode, value.size, self.node(info, place, depth + 1)]
            case _:
                raise NotStorable(f"{place} is {_what(value)}")

    def _of_dict(self, values: dict[Any, Any], place: str, depth: int) -> dict[str, Any]:
        nodes = {}
        for name, value in values.items():
            if type(name) is not str:
                raise NotStorable(f"{place} has a key {name!r:.60}, which is {_what(name)}")
            inner = f"the field {name!r}" if depth == 0 else f"{place}[{name!r}]"
            nodes[name] = self.node(value, inner, depth + 1)
        return nodes

    def _of_tensor(self, value: Any, place: str) -> list[Any]:
        import torch  # it is there: the value is its

        dtype = str(value.dtype).removeprefix("torch.")
        plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
        if not plain or dtype not in TENSORS or value.requires_grad or value.is_conj() or value.is_neg():
            raise NotStorable(f"{place} is {_what(value)}")
        words = value.contiguous().view(torch.int16) if dtype == "bfloat16" else value
        return ["tensor", *self._block(words.numpy()), dtype]

    def _block(self, array: AnyArray) -> tuple[str, tuple[int, ...]]:
        """Add an array's elements as a block, and return the array's dtype and shape."""
        self.blocks.append(np.ascontiguousarray(array))
        return array.dtype.str, array.shape


def _is_storable(value: Any) -> bool:
    """Return True if a value can be stored. Other entries of a Pillow image's ``info`` are left out."""
    try:
        _Writer().node(value, "", 0)
    except NotStorable:
        return False
    return True


class _Reader:
    """Makes values from JSON nodes and blocks, which may be damaged. Raises ``ValueError`` or ``TypeError``.

    at  first byte after the last block in the data
    """

    def __init__(self, data: UInt8Array, at: int) -> None:
        self._data, self.at = data, at

    def value(self, node: Any, depth: int) -> Any:
        """Return the value that a JSON node describes; ``depth`` counts the levels of nesting."""
        if not isinstance(node, list | dict):
            return node
        if isinstance(node, dict) or node[:1] in (["list"], ["tuple"]):
            if depth >= MOST_DEPTH:
                raise ValueError("it is nested too deep")
            if isinstance(node, dict):
                return {name: self.value(each, depth + 1) for name, each in node.items()}
            values = [self.value(each, depth + 1) for each in node[1:]]
            return tuple(values) if node[0] == "tuple" else values
        if node[:1] == ["int"]:
            return int(node[1], 16)
        kind, dtype, shape, *more = node
        array = self._block(dtype, shape)
        match kind, more:
            case "array", []:
                array.flags.writeable = False
                return array
            case "scalar", [] if array.ndim == 0:
                return array[()]
            case "number", [] if array.ndim == 0:
                return array.item()
            case "bytes", []:
                return array.tobytes()
            case "tensor", [name]:
                return _tensor(array, name)
            case "picture", [mode, size, info]:
                return _picture(array, mode, size, self.value(info, depth + 1))
            case _:
                raise ValueError(f"kind {kind}")

    def _block(self, name: str, shape: list[int]) -> AnyArray:
        """Return the next block as an array over the data, with the dtype ``name`` and the given shape."""
        dtype = DTYPES.get(name)
        whole = isinstance(shape, list) and len(shape) <= MOST_AXES
        if dtype is None or not whole or not all(type(each) is int and each >= 0 for each in shape):
            raise ValueError("a block that is none of numbers")
        begin = self.at + -self.at % dtype.itemsize
        self.at = begin + math.prod(shape) * dtype.itemsize
        if self.at > len(self._data):
            raise ValueError("it ends too soon")
        return self._data[begin : self.at].view(dtype).reshape(shape)


def _tensor(array: AnyArray, name: str) -> Any:
    if name not in TENSORS or array.dtype != ("int16" if name == "bfloat16" else name):
        raise ValueError("a tensor of no known dtype")
    import torch  # it is installed: a tensor was stored

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor


def _picture(array: AnyArray, mode: str, size: list[int], info: Any) -> Any:
    width, height = size
    if mode not in MODES or type(info) is not dict or min(width, height) < 1:
        raise ValueError("an image of no known mode or size")
    if array.size != height * (-(-width // 8) if mode == "1" else width * MODES[mode]):
        raise ValueError("an image of another size")  # before Pillow takes memory for it
    from PIL import Image  # late: few caches hold images

    picture = Image.frombytes(mode, (width, height), array.tobytes())
    picture.info = info
    return picture


def _what(value: Any) -> str:
    """Return a value's type as text for messages, with an array's dtype or an image's mode."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    dtype = getattr(value, "dtype", None)
    mode = getattr(value, "mode", None)
    return f"a {name}" + (
        f" of {dtype}" if dtype is not None else f" of mode {mode!r}" if isinstance(mode, str) else ""
    )
