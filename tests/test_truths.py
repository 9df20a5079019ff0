"""Nothing is said twice: no list of names and no limit is in two modules, or in Python and in native code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from standpipe.formats import SUFFIXES

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for pattern in ("src/**/*.py", "native/**/*.h", "native/**/*.cpp")
    for path in sorted(ROOT.glob(pattern))
    if "fuzz" not in path.parts
]
FEWEST = 3  # names that are a list
BY_CHANCE = {
    "BLOCK",
    "BLOCK_BYTES",
    "LANES",
    "MOST_NAMED",
    "SHOWN",
}  # the same name and number for different things


def lists_of_names(path: Path) -> Iterator[frozenset[str]]:
    """Displays and ``Literal`` types of strings, and initialisers of them in C++."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                values = [item.value if isinstance(item, ast.Constant) else None for item in node.elts]
                if all(isinstance(value, str | bytes) for value in values):
                    yield frozenset(str(value) for value in values)
    else:
        for found in re.findall(r'\{((?:\s*"[^"]*"\s*,?)+)\}', text):
            yield frozenset(re.findall(r'"([^"]*)"', found))


def limits(path: Path) -> Iterator[tuple[str, str]]:
    """Names and values of constants. Of Python, names and limits: other numbers are often equal by chance."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.parse(text).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() | bytes())):
                    yield name, ast.unparse(node.value)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple(elts=[_, *_])):
                    yield name, ast.unparse(node.value)
                case ast.Assign(targets=[ast.Name(id=name)]) if re.search("MOST|LEAST|LONGEST|FORMAT", name):
                    yield name, number(ast.unparse(node.value))
    else:
        for name, value in re.findall(r"constexpr [^=;]*\bk(\w+) = ([^;,]+)[;,]", text):
            yield re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper(), number(value.replace("'", ""))


def number(text: str) -> str:
    """The value of an expression of numbers, which may be written in several ways; else its text."""
    return str(eval(text)) if re.fullmatch(r"[\d_ ()<*+-]+", text) else text


def twice(facts: Callable[[Path], Iterable[object]]) -> list[str]:
    found = defaultdict(set)
    for path in FILES:
        for fact in facts(path):
            found[fact].add(str(path.relative_to(ROOT)))
    return [f"{fact} in {', '.join(sorted(paths))}" for fact, paths in found.items() if len(paths) > 1]


def test_lists_of_names_are_in_one_place() -> None:
    assert not twice(lambda path: (names for names in lists_of_names(path) if len(names) >= FEWEST))


def test_limits_are_in_one_place() -> None:
    assert not twice(lambda path: (limit for limit in limits(path) if limit[0].strip("_") not in BY_CHANCE))


def test_suffixes_of_images_are_in_one_place() -> None:
    others = [path for path in FILES if path.name != "formats.py"]
    assert not [
        path for path in others for names in lists_of_names(path) if len(names & {*SUFFIXES}) >= FEWEST
    ]
