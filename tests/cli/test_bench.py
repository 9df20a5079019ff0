"""``penstock bench`` says what limits, and it is that."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock.cli import main


def photos(folder: Path, suffix: str, side: int, count: int = 6) -> str:
    (folder / "a").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    for number in range(count):
        Image.fromarray(pixels).save(folder / f"a/{number}{suffix}")
    return str(folder)


@pytest.mark.parametrize(
    ("suffix", "side", "batch", "limit"),
    [
        (".jpg", 600, "8", "decoding: all workers busy"),
        (".png", 300, "8", "Pillow: it decodes the 100% of rows"),
        (".jpg", 16, "1", "handing over: batches are too small"),
    ],
)
def test_what_limits(
    tmp_path: Path, suffix: str, side: int, batch: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--batch",
        batch,
        "--workers",
        "2",
        "--memory",
        "256MiB",
        "--output",
        "uint8",
        "--seconds",
        "0.5",
    ]
    assert main(["bench", photos(tmp_path, suffix, side), *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limit"].startswith(limit)
