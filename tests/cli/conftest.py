"""Fixtures of the data that tests of commands use."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture
def two_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a cat and a dog, below the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "dog"):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (32, 24)).save(folder / "0.jpg")
    return Path("photos")
