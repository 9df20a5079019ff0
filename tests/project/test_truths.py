"""Tests that no list of names and no limit is in two modules, or in both Python and native code.

And that every file that a page, a comment or a docstring names exists, with the function that it names in the file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from standpipe.formats import SUFFIXES

ROOT = Path(__file__).parents[2]
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
FOLDERS = ("tests", "benchmarks", "examples", "scripts", "src", "native", "docs")
PARTS = sorted(
    path.name for folder in ("src/standpipe", "native") for path in (ROOT / folder).iterdir() if path.is_dir()
)
BASES = (
    ROOT,
    ROOT / "src",
    ROOT / "src" / "standpipe",
    ROOT / "native",
    ROOT / "tests",
)  # of paths that texts shorten
OF_OTHERS = ("build", "_build", "__pycache__", ".mypy_cache")  # folders that tools write
BESIDE_NAME = r"(?<![\w./<>~$}=-])"  # what isn't the end of a longer path
NAMED_FILE = re.compile(
    rf"{BESIDE_NAME}(?!torch/utils/)((?:{'|'.join(FOLDERS)})/[\w./-]*\w/?|(?:standpipe|{'|'.join(PARTS)})/[\w/-]+\.(?:py|h|cpp|md))(?![\w{{*<])"
)
NAMED_IN_FILE = re.compile(r"`(?:\w+\.)?(\w+)` (?:in|of) `([\w/]+\.py)`")


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


def texts(pattern: re.Pattern[str], *suffixes: str) -> Iterator[tuple[Path, str]]:
    """Every page or file with such a suffix that has a match; of Python and C++ its comments and docstrings alone."""
    for path in sorted(each for folder in FOLDERS for each in (ROOT / folder).rglob("*")) + sorted(
        ROOT.glob("*.md")
    ):
        if path.suffix not in suffixes or {*path.parts} & {*OF_OTHERS}:
            continue
        text = path.read_text(encoding="utf-8")
        if not pattern.search(text):
            continue
        if path.suffix == ".py":
            yield path, "\n".join(comments_and_docstrings(text))
        else:
            yield path, text if path.suffix == ".md" else "\n".join(re.findall("//.*", text))


def comments_and_docstrings(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def meant(name: str, page: Path) -> list[Path]:
    """The files or folders that a path in a text may mean."""
    return [base / name for base in (*BASES, page.parent) if (base / name).exists()]


def test_every_file_that_a_text_names_exists() -> None:
    every = texts(NAMED_FILE, ".md", ".py", ".h", ".cpp")
    named = {(path, name) for path, text in every for name in NAMED_FILE.findall(text)}
    assert len(named) > 300
    missing = [(str(path.relative_to(ROOT)), name) for path, name in sorted(named) if not meant(name, path)]
    assert missing == []


def test_every_function_that_a_page_names_in_a_file_is_there() -> None:
    named = [
        (path, *each) for path, text in texts(NAMED_IN_FILE, ".md") for each in NAMED_IN_FILE.findall(text)
    ]
    assert len(named) > 10
    for path, name, file in named:
        source = "".join(each.read_text(encoding="utf-8") for each in meant(file, path))
        assert re.search(rf"(^{name} =|(def|class) {name}\b)", source, re.MULTILINE), (
            f"{path}: {name} in {file}"
        )


def test_the_page_of_the_engine_names_every_thread() -> None:
    engine = ROOT / "src" / "standpipe" / "engine"
    page = (engine / "README.md").read_text(encoding="utf-8")
    named = re.compile(r'(?:guarded\(|name ?= ?)f?"(standpipe-[a-z]+)')
    threads = {
        each for path in engine.rglob("*.py") for each in named.findall(path.read_text(encoding="utf-8"))
    }
    assert len(threads) > 5
    assert {name for name in threads if f"`{name}" not in page} == set()
