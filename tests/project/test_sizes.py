"""Files, functions and signatures that a reader can hold in their head."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES, MOST_IN_FUNCTION, MOST_PARAMETERS = 400, 60, 8
SIGNATURES = {  # of many options, each documented
    "src/standpipe/pipeline/description.py: batch",
    "src/standpipe/recipes.py: yolo",
    "src/standpipe/api.py: plan",
    "src/standpipe/source/files/filelist.py: __init__",
    "src/standpipe/torch/dataloader.py: __init__",
    "src/standpipe/torch/folders.py: image_folder_loaders",
    "src/standpipe/torch/kernels.py: _finish",  # Triton passes a kernel's arguments one by one
    "src/standpipe/torch/loader.py: loader",
    "src/standpipe/jobs/file_check/files.py: check_files",
    "src/standpipe/pipeline/samples.py: decode",
}


def files(*suffixes: str) -> Iterator[tuple[str, str]]:
    for folder in ("src", "native"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, text in files(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}: {node.name}", node


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(node: Documented) -> int:
    first = node.body[0] if node.body else None
    return 0 if first is None or not ast.get_docstring(node) else (first.end_lineno or 0) - first.lineno + 1


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    return (function.end_lineno or 0) - function.lineno + 1 - docstring_lines(function)


def lines_of_file(name: str, text: str) -> int:
    """Lines of a file, in Python without docstrings: long documentation is no long code."""
    lines = text.count("\n")
    if not name.endswith(".py"):
        return lines
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, Documented))
    return lines - sum(map(docstring_lines, nodes))


def test_no_file_is_long() -> None:
    long = {name: lines_of_file(name, text) for name, text in files(".py", ".cpp", ".h")}
    assert [name for name, lines in long.items() if lines > MOST_LINES] == []


def test_no_function_is_long() -> None:
    assert [name for name, function in functions() if lines_of(function) > MOST_IN_FUNCTION] == []


def test_few_signatures_have_many_parameters() -> None:
    many = set()
    for name, function in functions():
        given = function.args
        own = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        if len([each for each in own if each not in ("self", "cls")]) > MOST_PARAMETERS:
            many.add(name)
    assert many == SIGNATURES
