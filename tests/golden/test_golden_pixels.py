"""Pixels never change while the pixel contract keeps its number.

``pixels.json`` holds encoded images, and for each pipeline below a hash of the rows that they give. Inputs are
bytes in the file and not made anew, so nothing but standpipe and its JPEG decoder can change a hash. After
raising ``PIXEL_CONTRACT``, ``python tests/golden/test_golden_pixels.py`` works the hashes out again.
"""

import base64
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import standpipe as sp
from reference import delivered, in_order, listed
from standpipe.spec import PIXEL_CONTRACT

FILE = Path(__file__).parent / "pixels.json"
GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))

TRAIN = (sp.RandomResizedCrop(48), sp.RandomHorizontalFlip())
PIPELINES = {
    "train": TRAIN,
    "train, float32": (*TRAIN, sp.Normalize()),
    "train, float16 pixels": (*TRAIN, sp.Normalize(), sp.ToDtype("float16"), sp.ToLayout("NHWC")),
    "eval": (sp.Resize(40), sp.CenterCrop(36)),
    "padded": (sp.CenterCrop((101, 66)), sp.RandomHorizontalFlip()),
    "turned": (sp.CenterCrop(36), sp.RandomRotation((-45, 45), "bilinear"), sp.RandomRotation((45, 45))),
    "several stages": (sp.Resize(50), *TRAIN, sp.CenterCrop((51, 33)), sp.RandomHorizontalFlip(0.25)),
    "zoomed out": (
        sp.RandomPhotometricDistort(),
        sp.RandomZoomOut((123, 117, 104)),
        sp.RandomHorizontalFlip(),
        sp.Resize((31, 45)),
    ),
    "jittered": (sp.ScaleJitter((50, 40)), sp.FixedSizeCrop((48, 40), 9), sp.RandomHorizontalFlip()),
    "one of several lengths": (sp.RandomShortestSize((20, 33, 47), 60), sp.FixedSizeCrop(50)),
    "of random size": (
        sp.RandomHorizontalFlip(),
        sp.RandomApply([sp.RandomShortestSize((40, 50, 60)), sp.RandomSizeCrop(38, 60)]),
        sp.RandomShortestSize((48, 64, 80), 99),
        sp.FixedSizeCrop(80),
    ),
    **{
        f"{name} crop": (sp.RandomResizedCrop((21, 33), interpolation=name),)
        for name in ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos", "random")
    },
}


def pixels_hash(name: str, folder: Path, executor: Literal["thread", "inline"] = "thread") -> str:
    """Of ten rows of each image, at positions in order, seed 2024, epoch 3."""
    images = [base64.b64decode(text) for text in GOLDEN["images"].values()]
    pipeline = in_order(listed(folder, images, times=10), *PIPELINES[name], seed=2024)
    rows = delivered(pipeline, epoch=3, executor=executor)
    return hashlib.blake2b(np.stack(rows).tobytes(), digest_size=16).hexdigest()


def test_every_hash_belongs_to_this_contract() -> None:
    assert GOLDEN["pixel_contract"] == PIXEL_CONTRACT
    assert GOLDEN["hashes"].keys() == PIPELINES.keys()


@pytest.mark.parametrize("name", PIPELINES)
def test_pixels_never_change(name: str, tmp_path: Path) -> None:
    assert pixels_hash(name, tmp_path) == GOLDEN["hashes"][name]


if __name__ == "__main__":
    GOLDEN["pixel_contract"] = PIXEL_CONTRACT
    for each in PIPELINES:
        with tempfile.TemporaryDirectory() as place:
            GOLDEN["hashes"][each] = pixels_hash(each, Path(place))
    FILE.write_text(json.dumps(GOLDEN, indent=1) + "\n", encoding="utf-8")
