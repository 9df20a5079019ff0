"""Every ```python block of README.md and docs/ runs.

The blocks of one page run in order, in one namespace, in a folder that holds ``photos/``: 300 small JPEGs in
``photos/cat`` and ``photos/dog``. Two names exist beforehand: ``step``, which stands for a training step and
takes anything, and ``__name__``, which is ``"__main__"``. Code that can't run so is a ```text block.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The page's blocks, each under as many empty lines as stand above it: errors name the page's line."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    for number in range(300):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((96 + number % 7, 72 + number % 5)).save(path)
    return tmp_path


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if blocks(page)]
)
def test_the_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    namespace = {"__name__": "__main__", "step": lambda *_batch: None}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)
