"""Split nested samples into flat fields, and build nested batches from these fields again.

A sample is a nest of dicts, tuples and lists with tensors, numbers and text inside. Workers write each field's rows
straight into the batch's memory. ``Nest`` then builds the batch that torch's ``default_collate`` would make.

A field's name has the path in the sample and the dtype: ``sample['image'] (float32)``, ``sample[1] (int64)``. The
same path with another dtype is another field, because torch's batches would have another dtype too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from standpipe.torch.samples import SAMPLE, as_numpy, as_torch, is_dense

NUMBERS = {  # Python and NumPy types of numbers, and the dtypes of the tensors that torch makes of them
    bool: "bool",
    int: "int64",
    float: "float64",
    np.bool_: "bool",
    np.int64: "int64",
    np.float64: "float64",
}


LARGE_BYTES = 16 << 10  # rows from this size on aren't stacked first, but copied straight into the batch


class NotPlain(Exception):
    """Samples can't be split into fields: values of another type, or that differ between samples.

    The whole batch must then go through ``default_collate``.
    """


def columns(samples: list[Any]) -> dict[str, Any]:
    """Split samples into fields: {name: values}, with one value for each sample.

    The values are one array (samples, …) for numbers and small arrays, else a list. Raises ``NotPlain``.
    """
    fields: dict[str, Any] = {}
    _divide(samples, SAMPLE, fields)
    return fields


def _divide(values: Sequence[Any], name: str, fields: dict[str, Any]) -> None:
    """Add the fields of ``values`` to ``fields``. ``values`` has the value at path ``name`` of each sample."""
    kinds = set(map(type, values))
    kind = kinds.pop()
    first = values[0]
    if kinds:
        raise NotPlain(f"{name} is {kind.__name__} in one sample and {kinds.pop().__name__} in another")
    if kind is dict and first and all(type(key) is str for key in first):
        if any(value.keys() != first.keys() for value in values):
            raise NotPlain(f"{name} has other keys in one sample than in another")
        for key in first:
            _divide([value[key] for value in values], f"{name}[{key!r}]", fields)
    elif kind in (tuple, list) and first:
        if len(set(map(len, values))) > 1:
            raise NotPlain(f"{name} is longer in one sample than in another")
        for number, parts in enumerate(zip(*values, strict=True)):
            _divide(parts, f"{name}[{number}]", fields)
    elif kind in NUMBERS:
        fields[f"{name} ({NUMBERS[kind]})"] = _numbers(values, name, NUMBERS[kind])
    elif issubclass(kind, torch.Tensor) and _stacks_to_tensors(kind, first):
        stacked, dtype = _tensors(values, name)
        fields[f"{name} ({str(dtype).removeprefix('torch.')})"] = stacked
    elif kind is np.ndarray and _is_torchs(first):
        if any(value.dtype != first.dtype for value in values):
            raise NotPlain(f"{name} has another dtype in one sample than in another")
        fields[f"{name} ({first.dtype.name})"] = (
            values if first.nbytes >= LARGE_BYTES else _array(values, name)
        )
    elif issubclass(kind, str | bytes):
        fields[name] = list(values)
    else:
        raise NotPlain(f"{name} is {kind.__name__}")


_stacked: dict[type, bool] = {torch.Tensor: True}


def _stacks_to_tensors(kind: type[torch.Tensor], value: torch.Tensor) -> bool:
    """Return True if ``torch.stack`` turns this subclass into a plain tensor, as for torchvision's images."""
    if kind not in _stacked:
        _stacked[kind] = type(torch.stack([value])) is torch.Tensor
    return _stacked[kind]


def _numbers(values: Sequence[Any], name: str, dtype: str) -> Any:
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise NotPlain(f"{name} has an integer beyond 64 bits") from None


def _tensors(tensors: Sequence[Any], name: str) -> tuple[Any, torch.dtype]:
    """Return (arrays, dtype): one stacked array, or a list of arrays if the first has ``LARGE_BYTES``.

    Raises ``NotPlain`` if the tensors can't be stacked as plain numbers.
    """
    first = tensors[0]
    if first.layout is not torch.strided:  # default_collate says what to do
        raise NotPlain(f"{name} is a sparse tensor")
    if first.nbytes >= LARGE_BYTES:
        if not all(map(is_dense, tensors)) or any(tensor.dtype != first.dtype for tensor in tensors):
            raise NotPlain(f"{name} holds tensors of several kinds")
        return list(map(as_numpy, tensors)), first.dtype
    try:
        stacked = torch.stack(list(tensors))
    except RuntimeError as error:
        raise NotPlain(f"{name}: {error}") from error
    if not is_dense(stacked):
        raise NotPlain(f"{name} is no plain tensor")
    return as_numpy(stacked), stacked.dtype


def _array(arrays: Sequence[Any], name: str) -> Any:
    try:
        return np.stack(arrays)
    except ValueError as error:
        raise NotPlain(f"{name}: {error}") from error


def _is_torchs(array: Any) -> bool:
    """Return True if torch has a dtype for the NumPy array's numbers."""
    return (
        array.dtype.kind in "biufc"
        and array.dtype.isnative
        and array.dtype.itemsize <= 16
        and (array.dtype.char not in "gG")
    )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field at the end of a path in a batch.

    dtype        dtype of its tensor; None: text
    in_sequence  True if the field is an item of a tuple or list; its texts become a tuple, else a list
    """

    name: str
    dtype: torch.dtype | None
    in_sequence: bool


_Tree = Any  # _Leaf, or a dict or list of trees


class Nest:
    """The nested structure of a batch.

    names  names of all fields, in the order in which they occur in a sample
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._tree: _Tree = None
        for name in names:
            way, _, kind = name.rpartition(" (") if name.endswith(")") else (name, "", "")
            dtype = getattr(torch, kind[:-1]) if kind else None
            self._tree = _with(self._tree, _steps(way), name, dtype)

    def batch(self, fields: dict[str, Any]) -> Any:
        """Build the batch that ``default_collate`` would make. Its tensors share the fields' memory."""
        return _built(self._tree, fields)


def _steps(way: str) -> list[str | int]:
    """Return the keys and positions in a path: ``["image", 0]`` for ``"sample['image'][0]"``."""
    steps: list[str | int] = []
    node = ast.parse(way, mode="eval").body
    while isinstance(node, ast.Subscript):
        assert isinstance(node.slice, ast.Constant)
        steps.insert(0, node.slice.value)  # type: ignore[arg-type]
        node = node.value
    return steps


def _with(tree: _Tree, steps: list[str | int], name: str, dtype: torch.dtype | None, last: Any = "") -> _Tree:
    """Return the tree with a leaf added at the path ``steps``.

    name, dtype  the leaf's field
    last         the last step before these; an integer means that the leaf is in a sequence
    """
    if not steps:
        return _Leaf(name, dtype, isinstance(last, int))
    step, *further = steps
    if isinstance(step, str):
        tree = {} if tree is None else tree
        tree[step] = _with(tree.get(step), further, name, dtype, step)
        return tree
    tree = [] if tree is None else tree
    if step == len(tree):
        tree.append(None)
    tree[step] = _with(tree[step], further, name, dtype, step)
    return tree


def _built(tree: _Tree, fields: dict[str, Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _built(part, fields) for key, part in tree.items()}
    if isinstance(tree, list):
        return [_built(part, fields) for part in tree]
    value = fields[tree.name]
    if isinstance(value, np.ndarray):
        return as_torch(value, tree.dtype)
    return tuple(value) if tree.in_sequence else value
