"""Every recipe of docs/howto is one complete program of at most 60 lines, and prints what its page shows.

A recipe runs as a script of its own, in a folder with ``photos/``: 300 small JPEGs in ``photos/cat`` and
``photos/dog``. One whose first line is ``# torchrun …`` runs in two processes. In what a page shows, … is anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
MOST_LINES = 60
LIMIT_S = 120
PHOTOS = 300
RECIPE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
UNCOMPILED = ("-m", "uncompiled")  # without a compiler that no recipe uses
WITH_TORCHVISION = """
import runpy, sys, torchvision_cpu, uncompiled
with uncompiled.without_the_compiler():
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("howto")
    rng = np.random.default_rng(7)
    for number in range(PHOTOS):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        path = folder / ("cat", "dog")[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse.resize((96 + number % 7, 72 + number % 5)).save(path)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_recipe_prints_what_its_page_shows(page: Path, photos: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```python") == 1
    ((program, shown),) = RECIPE.findall(text)
    assert program.count("\n") <= MOST_LINES
    (tmp_path / "recipe.py").write_text(program, encoding="utf-8")
    copied = tmp_path / "photos"
    for photo in photos.glob("*/*.jpg"):  # copies: a recipe may damage some
        (copied / photo.parent.name).mkdir(parents=True, exist_ok=True)
        (copied / photo.parent.name / photo.name).write_bytes(photo.read_bytes())
    if program.startswith("# torchrun"):
        command: tuple[str, ...] = (*TORCHRUN, "recipe.py")
    elif "import timm" in program:
        command = ("-c", WITH_TORCHVISION, "recipe.py")
    elif "import torch" in program:
        command = (*UNCOMPILED, "recipe.py")
    else:
        command = ("recipe.py",)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "JAX_PLATFORMS": "cpu",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pattern = ".*".join(map(re.escape, shown.split("…")))
    assert re.fullmatch(pattern, done.stdout), f"the page shows\n{shown}\nand it printed\n{done.stdout}"
