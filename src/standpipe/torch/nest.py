"""Samples that are tensors, numbers and text in dicts, tuples and lists: as flat fields, of which batches are made.

So each tensor's row is written where the batch has it, and what torch's ``default_collate`` would make of the samples
is put together from whole fields. A field's name is the way to it, and what it holds: ``sample['image'] (float32)``,
``sample[1] (int64)``; one whose dtype changes is another field, since torch's batches change then too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from standpipe.torch.samples import SAMPLE, as_numpy, as_tensor, is_dense

NUMBERS = {  # of which torch makes tensors of these dtypes
    bool: "bool",
    int: "int64",
    float: "float64",
    np.bool_: "bool",
    np.int64: "int64",
    np.float64: "float64",
}


class NotPlain(Exception):
    """A sample holds something else: ``default_collate`` has to be asked what becomes of it."""


def flat(sample: Any) -> dict[str, Any]:
    """The fields of a sample. Raises ``NotPlain``."""
    fields: dict[str, Any] = {}
    _flatten(sample, SAMPLE, fields)
    return fields


def _flatten(value: Any, name: str, fields: dict[str, Any]) -> None:
    kind = type(value)
    if kind is dict and value and all(type(key) is str for key in value):
        for key, part in value.items():
            _flatten(part, f"{name}[{key!r}]", fields)
    elif kind in (tuple, list) and value:
        for number, part in enumerate(value):
            _flatten(part, f"{name}[{number}]", fields)
    elif isinstance(value, torch.Tensor) and is_dense(value):
        fields[f"{name} ({str(value.dtype).removeprefix('torch.')})"] = as_numpy(value)
    elif kind in NUMBERS:
        fields[f"{name} ({NUMBERS[kind]})"] = value
    elif kind is np.ndarray and _is_torchs(value):
        fields[f"{name} ({value.dtype.name})"] = value
    elif isinstance(value, str | bytes):
        fields[name] = value
    else:
        raise NotPlain(f"{name} is {kind.__name__}")


def _is_torchs(array: Any) -> bool:
    """Whether torch has tensors of its dtype."""
    return (
        array.dtype.kind in "biufc"
        and array.dtype.isnative
        and array.dtype.itemsize <= 16
        and (array.dtype.char not in "gG")
    )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One field. ``in_sequence``: of text torch makes a tuple then, else a list."""

    name: str
    dtype: torch.dtype | None
    in_sequence: bool


_Tree = Any  # _Leaf, or a dict or list of trees


class Nest:
    """What batches look like, from the names of their fields in the order of a sample."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tree: _Tree = None
        for name in names:
            way, _, kind = name.rpartition(" (") if name.endswith(")") else (name, "", "")
            dtype = getattr(torch, kind[:-1]) if kind else None
            self._tree = _with(self._tree, _steps(way), name, dtype)

    def batch(self, fields: dict[str, Any]) -> Any:
        """What ``default_collate`` makes of the same samples; tensors share the fields' memory."""
        return _built(self._tree, fields)


def _steps(way: str) -> list[str | int]:
    """``["image", 0]`` of ``sample['image'][0]``."""
    steps: list[str | int] = []
    node = ast.parse(way, mode="eval").body
    while isinstance(node, ast.Subscript):
        assert isinstance(node.slice, ast.Constant)
        steps.insert(0, node.slice.value)  # type: ignore[arg-type]
        node = node.value
    return steps


def _with(tree: _Tree, steps: list[str | int], name: str, dtype: torch.dtype | None, last: Any = "") -> _Tree:
    """The tree with one more leaf."""
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
        return as_tensor(value, tree.dtype)
    return tuple(value) if tree.in_sequence else value
