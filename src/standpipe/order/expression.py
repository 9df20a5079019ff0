"""Conditions on columns, for ``filter``: parsed with Python's grammar, but never run as Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standpipe.errors import PlanError
from standpipe.order.columns import Columns
from standpipe.spec import AnyArray

LONGEST = 10_000  # characters
INT64 = range(-(1 << 63), 1 << 63)
ARITHMETIC: Mapping[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
GRAMMAR = "comparisons, in [...], and, or, not, + - * // %, numbers, class names and columns"


class Kind(Enum):
    """The type of a subexpression of a condition."""

    NUMBER = "a number"
    CONDITION = "a condition"
    CLASS = "a class name"


class _Part(NamedTuple):
    """The values of a condition's columns for some records, by name, and the class names."""

    values: Mapping[str, AnyArray]
    classes: tuple[str, ...] | None


class Condition:
    """A parsed condition on columns, such as ``label < 10 and length <= 512``.

    Integers have 64 bits, other numbers are float64. A string is a class name, which can be compared with
    ``label`` only. The constructor and all methods raise ``PlanError`` with the place of a fault in the text.
    """

    __slots__ = ("_root", "_text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise PlanError(f"filter: write a condition on columns, such as 'label < 10', got {text!r}")
        if len(text) > LONGEST:
            raise PlanError(
                f"filter: the condition has {len(text):,} characters, more than {LONGEST:,}. It begins {text[:20]!r}"
            )
        self._text = text.strip()
        try:
            self._root = ast.parse(self._text, mode="eval").body
        except SyntaxError as error:
            raise self._error_at(error.offset or 1, f"can't be read: {error.msg}") from error
        except (ValueError, MemoryError, RecursionError) as error:
            raise PlanError(
                f"filter({text[:60]!r}) can't be read: {error or type(error).__name__}"
            ) from error

    def check(self, columns: Columns) -> None:
        """Raise ``PlanError`` unless the text is a condition, and all its columns exist."""
        try:
            kind = self._kind(self._root, columns)
        except RecursionError as error:
            raise PlanError(f"filter({self._text[:60]!r}…): the condition is nested too deeply") from error
        if kind is not Kind.CONDITION:
            raise self._error(self._root, f"is {kind.value}; compare it with something")

    def holds(self, columns: Columns, start: int, stop: int) -> NDArray[np.bool_]:
        """Return where the condition is true for the records [start, stop), (stop − start,) bool.

        Call ``check`` once before.
        """
        try:
            names = {node.id for node in ast.walk(self._root) if isinstance(node, ast.Name)}
            values = {name: _widened(columns.read(name, start, stop)) for name in names}
            with np.errstate(all="ignore"):
                held = self._value(self._root, _Part(values, columns.classes))
        except OverflowError as error:
            raise PlanError(f"filter({self._text!r}): a number in it doesn't fit 64 bits") from error
        return np.broadcast_to(np.asarray(held), (stop - start,))

    def _kind(self, node: ast.expr, columns: Columns) -> Kind:
        """Return the type of a subexpression.

        Raises ``PlanError`` if it has operators or columns that aren't allowed.
        """
        match node:
            case ast.Constant(value=bool()):
                return Kind.CONDITION
            case ast.Constant(value=int() | float() as value):
                if isinstance(value, int) and value not in INT64:
                    raise self._error(node, "doesn't fit 64 bits")
                return Kind.NUMBER
            case ast.Constant(value=str()):
                return Kind.CLASS
            case ast.Name():
                return self._kind_of_column(node, columns)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._all((operand,), Kind.CONDITION, columns)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                return self._all((operand,), Kind.NUMBER, columns)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return self._all((left, right), Kind.NUMBER, columns)
            case ast.BoolOp(values=values):
                return self._all(values, Kind.CONDITION, columns)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for a, comparison, b in zip([left, *comparators], ops, comparators, strict=False):
                    self._check_comparison(a, comparison, b, columns)
                return Kind.CONDITION
        raise self._error(node, f"isn't allowed in a filter. A filter may have {GRAMMAR}")

    def _all(self, nodes: tuple[ast.expr, ...] | list[ast.expr], kind: Kind, columns: Columns) -> Kind:
        for node in nodes:
            found = self._kind(node, columns)
            if found is not kind:
                raise self._error(node, f"is {found.value} where {kind.value} is needed")
        return kind

    def _kind_of_column(self, node: ast.Name, columns: Columns) -> Kind:
        if node.id not in columns.names:
            known = ", ".join(columns.names) or "none"
            raise self._error(node, f"isn't a column of the source. Its columns are {known}")
        kind = columns.read(node.id, 0, 0).dtype.kind
        if kind == "c":
            raise self._error(node, "is a column of complex numbers, which can't be compared")
        return Kind.CONDITION if kind == "b" else Kind.NUMBER

    def _check_comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr, columns: Columns) -> None:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise self._error(right, "must be a list of values, as in [1, 2, 3]")
            for value in right.elts:
                literal = value.operand if isinstance(value, ast.UnaryOp) else value
                if not isinstance(literal, ast.Constant):
                    raise self._error(value, "must be a value")
                self._check_pair(left, ast.Eq(), value, columns)
            return
        if type(op) not in COMPARISONS:
            raise self._error(left, "is compared with 'is'; write ==")
        self._check_pair(left, op, right, columns)

    def _check_pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr, columns: Columns) -> None:
        kinds = (self._kind(left, columns), self._kind(right, columns))
        ordered = not isinstance(op, ast.Eq | ast.NotEq)
        if Kind.CLASS in kinds:
            name, other = (right, left) if kinds[1] is Kind.CLASS else (left, right)
            if ordered or not isinstance(other, ast.Name) or other.id != "label":
                raise self._error(name, "is a class name. Compare it only with label, by ==, != or in")
            self._class_number(name, columns.classes)
        elif kinds[0] is not kinds[1] or (ordered and kinds[0] is Kind.CONDITION):
            raise self._error(
                right, f"is {kinds[1].value}, which this comparison can't compare with {kinds[0].value}"
            )

    def _class_number(self, node: ast.expr, classes: tuple[str, ...] | None) -> int:
        assert isinstance(node, ast.Constant)
        if classes is None:
            raise self._error(
                node, "is a class name, but the source's labels are plain numbers. Write the number"
            )
        if node.value not in classes:
            from difflib import get_close_matches  # only for this message

            close = get_close_matches(str(node.value), classes, n=3) or classes[:3]
            raise self._error(
                node, f"isn't one of the {len(classes):,} classes, such as {', '.join(map(repr, close))}"
            )
        return classes.index(str(node.value))

    def _value(self, node: ast.expr, part: _Part) -> Any:
        """Return a subexpression's values, one per record, or a single value for all records."""
        match node:
            case ast.Constant(value=str()):
                return self._class_number(node, part.classes)
            case ast.Constant():
                return node.value
            case ast.Name():
                return part.values[node.id]
            case ast.UnaryOp():
                value = self._value(node.operand, part)
                if isinstance(node.op, ast.Not):
                    return np.logical_not(value)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp():
                left, right = self._value(node.left, part), self._value(node.right, part)
                if isinstance(node.op, ast.FloorDiv | ast.Mod) and np.any(np.asarray(right) == 0):
                    raise self._error(node.right, "is 0 for a record, and nothing can be divided by 0")
                return ARITHMETIC[type(node.op)](left, right)
            case ast.BoolOp():
                joined = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return reduce(joined, [self._value(value, part) for value in node.values])
            case ast.Compare():
                pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
                return reduce(np.logical_and, [self._compared(a, op, b, part) for a, op, b in pairs])
            case _:
                raise AssertionError(ast.dump(node))

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, part: _Part) -> Any:
        value = self._value(left, part)
        if isinstance(right, ast.List | ast.Tuple | ast.Set):
            return np.isin(
                value, [self._value(each, part) for each in right.elts], invert=isinstance(op, ast.NotIn)
            )
        return COMPARISONS[type(op)](value, self._value(right, part))

    def _error(self, node: ast.AST, reason: str) -> PlanError:
        part = ast.get_source_segment(self._text, node) or self._text
        is_quoted = part[0] in "'\""
        before = self._text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace")
        return self._error_at(len(before) + 1, f"{part if is_quoted else repr(part)} {reason}")

    def _error_at(self, character: int, reason: str) -> PlanError:
        return PlanError(f"filter({self._text!r}), character {character}: {reason}")


def _widened(values: AnyArray) -> AnyArray:
    """Return numbers as int64 or float64, so that arithmetic doesn't depend on a column's dtype."""
    match values.dtype.kind:
        case "b":
            return values
        case "u" if values.dtype.itemsize == 8 and len(values) and values.max() > np.uint64(INT64[-1]):
            raise OverflowError
        case "i" | "u":
            return values.astype(np.int64)
        case _:
            return values.astype(np.float64)
