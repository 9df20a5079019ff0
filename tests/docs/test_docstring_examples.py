"""Every public name has an example in its docstring, and every example runs.

The examples of one docstring run in order, in a namespace with ``sp`` (standpipe) and ``np`` (NumPy), in a folder with:

- ``photos/``: 24 JPEGs in ``photos/cat`` and ``photos/dog``
- ``list.txt``: a file list of these photos with their labels, ``cat`` or ``dog``

``tests/for_ray`` runs the examples of ``standpipe.ray``, which need a cluster.
Examples of ``standpipe.jax`` run in a process of their own: a process that has used JAX mustn't fork any more.
"""

from __future__ import annotations

import doctest
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
import standpipe.jax
import standpipe.observe
import standpipe.reports
import standpipe.torch
from standpipe import contracts

MODULES = (sp, contracts, standpipe.jax, standpipe.observe, standpipe.reports, standpipe.torch)
WITH_METHODS = ("Pipeline", "Loader")  # classes whose public methods have examples of their own
FOR_SOURCES = (  # the part of standpipe.contracts that the reference documents
    *("Source", "OpenSource", "Records", "Files", "Paths", "Rows", "Encoded", "ReadsRecords", "check_source"),
    *("Fleet", "OpenFleet", "Receiver"),
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LIMIT_S = 120


def documented(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the name and object of each public class and function of a module, and of main classes' methods."""
    for name in module.__all__ if module is not contracts else FOR_SOURCES:
        each = getattr(module, name)
        if not (inspect.isclass(each) or inspect.isfunction(each)):
            continue
        yield f"{module.__name__}.{name}", each
        if name in WITH_METHODS and module is sp:
            for method, function in inspect.getmembers(each):
                if not method.startswith("_") and (callable(function) or isinstance(function, property)):
                    yield f"{module.__name__}.{name}.{method}", function


OBJECTS = {name: each for module in MODULES for name, each in documented(module)}


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(OBJECTS[name]) or "")


def run_examples(name: str) -> None:
    """Run the examples of one docstring; raise ``AssertionError`` with what differs."""
    test = doctest.DocTest(examples(name), {"sp": sp, "np": np}, name, None, None, None)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(7)
    lines = []
    for number in range(24):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((96 + number % 7, 72 + number % 5)).save(path)
        lines.append(f"{path.relative_to(tmp_path)}\t{path.parent.name}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    os.utime(
        tmp_path / "list.txt", (1_600_000_000, 1_600_000_000)
    )  # an index of a file of just now isn't used again
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", OBJECTS)
def test_there_is_an_example(name: str) -> None:
    assert examples(name)


WITH_EXAMPLES = [name for name in OBJECTS if examples(name)]
OF_JAX = [name for name in WITH_EXAMPLES if name.startswith("standpipe.jax")]


@pytest.mark.parametrize("name", [name for name in WITH_EXAMPLES if name not in OF_JAX])
@pytest.mark.usefixtures("folder")
def test_the_examples_run(name: str) -> None:
    run_examples(name)


def test_the_examples_of_jax_run(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, *OF_JAX],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run_examples(name)
