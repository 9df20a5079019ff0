"""The engine works with any source and any order: it never asks one for its class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import standpipe

ENGINE = Path(standpipe.__file__).parent / "engine"
PARTS = ("standpipe.contracts", "standpipe.source", "standpipe.order", "standpipe.pipeline.mix")


def test_engine_asks_no_source_and_no_order_for_its_class() -> None:
    found = [
        f"{path.relative_to(ENGINE)}:{line} asks for {name}"
        for path in sorted(ENGINE.rglob("*.py"))
        for line, name in class_questions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_class_questions_are_found_in_calls_and_patterns() -> None:
    code = """
from standpipe.contracts import StreamSource
from standpipe.order import BudgetOrder, Cursor, Given
isinstance(plan.source, StreamSource)
isinstance(order, BudgetOrder | Cursor)
match order:
    case Given():
        pass
"""
    names = [name for _, name in class_questions(ast.parse(code))]
    assert names == ["StreamSource", "BudgetOrder", "Cursor", "Given"]


def class_questions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the class for each ``isinstance`` or ``case`` with a class of a source or an order."""
    taken = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PARTS)
        for name in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance"), args=[_, kinds]):
                asked: ast.AST = kinds
            case ast.MatchClass(cls=kind):
                asked = kind
            case _:
                continue
        for part in ast.walk(asked):
            if isinstance(part, ast.Name) and part.id in taken:
                yield node.lineno, part.id
