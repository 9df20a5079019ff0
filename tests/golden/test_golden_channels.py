"""Pixels of images of one and four channels never change while the pixel contract keeps its number.

``channels.json`` holds a hash of the rows that each pipeline below gives for the encoded images of ``pixels.json``.
After raising ``PIXEL_CONTRACT``, ``python tests/golden/test_golden_channels.py`` works the hashes out again.
"""

import base64
import hashlib
import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from reference import delivered, in_order, listed
from standpipe.spec import PIXEL_CONTRACT

FOLDER = Path(__file__).parent
FILE = FOLDER / "channels.json"
IMAGES = json.loads((FOLDER / "pixels.json").read_text(encoding="utf-8"))["images"]

TRAIN = (sp.RandomResizedCrop(48), sp.RandomHorizontalFlip())
PIPELINES = {
    "train, float32": (*TRAIN, sp.Normalize((0.45,), (0.22,))),
    "enlarged": (sp.RandomResizedCrop((101, 66), interpolation="lanczos"),),
    "eval": (sp.Resize(40), sp.CenterCrop(36)),
    "turned": (sp.CenterCrop(36), sp.RandomRotation((-45, 45), "bilinear"), sp.PadImage(3, 9, "reflect")),
    "blurred": (sp.CenterCrop(36), sp.GaussianBlur(5), sp.RandomErasing(1.0, value=77)),
}
CASES = list(product(("L", "luma", "RGBA"), PIPELINES))


def pixels_hash(channels: Any, name: str, folder: Path) -> str:
    """Of ten rows of each image, at positions in order, seed 2024, epoch 3."""
    images = [base64.b64decode(text) for text in IMAGES.values()]
    pipeline = in_order(listed(folder, images, times=10), *PIPELINES[name], seed=2024)
    rows = delivered(pipeline.decode(channels=channels), epoch=3)
    return hashlib.blake2b(np.stack(rows).tobytes(), digest_size=16).hexdigest()


@pytest.mark.parametrize(("channels", "name"), CASES)
def test_pixels_never_change(channels: str, name: str, tmp_path: Path) -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert golden["pixel_contract"] == PIXEL_CONTRACT
    assert pixels_hash(channels, name, tmp_path) == golden["hashes"][channels][name]


if __name__ == "__main__":
    made: dict[str, Any] = {"pixel_contract": PIXEL_CONTRACT, "hashes": {}}
    for each, pipeline in CASES:
        with tempfile.TemporaryDirectory() as place:
            made["hashes"].setdefault(each, {})[pipeline] = pixels_hash(each, pipeline, Path(place))
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
