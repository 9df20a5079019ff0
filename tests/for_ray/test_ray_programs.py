"""The examples, on a cluster."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import write_photos

ray = pytest.importorskip("ray")

import standpipe.ray  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two classes of 25 photos."""
    root = tmp_path_factory.mktemp("classes")
    for name in ("cat", "dog"):
        (root / name).mkdir()
        write_photos(root / name, 25)
    return root


def output(*command: object, folder: Path | None = None, **variables: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_example_goes_on_without_its_actors(nodes: Any, folder: Path) -> None:
    printed = output(
        EXAMPLES / "ray_remote_workers.py", folder, "--address", nodes.address, "--cpus", 0.5, "--batch", 8
    )
    assert re.search(
        r"travel per batch: images as bytes.*\n3 batches of actors, loss .*\n3 batches without Ray, loss",
        printed,
    )


@pytest.mark.long
def test_ranks_of_ray_train_share_actors(nodes: Any, folder: Path) -> None:
    pytest.importorskip("ray.train.torch", reason="needs ray[train] and torch", exc_type=ImportError)
    arguments = ("--address", nodes.address, "--cpus", 0.5, "--batch", 5)
    printed = output(EXAMPLES / "ray_train_ddp.py", folder, *arguments)
    assert "epoch 0: 50 images, 50 different ones, loss" in printed


def test_the_guide_runs(nodes: Any, folder: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guide" / "ray.md").read_text(encoding="utf-8")
    page = tmp_path / "page.py"
    page.write_text(
        "step = lambda *_: None\n" + "".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    )
    (tmp_path / "photos").symlink_to(folder)
    output(page, folder=tmp_path, RAY_ADDRESS=nodes.address)


class Among(doctest.OutputChecker):
    """Finds an example's output among warnings that Ray's threads print at the same time, on a busy machine."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return want in got


@pytest.mark.parametrize("name", standpipe.ray.__all__)
def test_examples_of_docstrings_run(name: str, nodes: Any) -> None:
    text = inspect.getdoc(getattr(standpipe.ray, name)) or ""
    names = {"sp": sp, "np": np, "standpipe": standpipe}
    test = doctest.DocTest(doctest.DocTestParser().get_examples(text), names, name, None, None, None)
    assert test.examples
    said: list[str] = []
    assert doctest.DocTestRunner(Among(), verbose=False).run(test, out=said.append).failed == 0, "".join(said)
