"""One budget of bytes: what a loader takes stays within it, whatever the samples are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.spec import UInt8Array
from photos import encoded, picture, write_list
from programs import peak_memory

MIB = 1 << 20


def smooth(height_px: int, width_px: int) -> UInt8Array:
    """A picture that compresses well, (height_px, width_px, 3)."""
    few = picture(height_px, max(height_px // 64, 1), max(width_px // 64, 1))
    return np.asarray(Image.fromarray(few).resize((width_px, height_px)))


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of images of which some need up to 40 MiB at once, among small ones."""
    folder = tmp_path_factory.mktemp("awkward")
    files = {f"{number}.jpg": encoded(picture(number)) for number in range(8)}
    files["progressive.jpg"] = encoded(smooth(2400, 2500), progressive=True, subsampling="4:4:4")
    files["progressive 4:2:0.jpg"] = encoded(smooth(3000, 4000), progressive=True)
    files["large.png"] = encoded(smooth(1800, 2000), "PNG", compress_level=1)
    files["wide.png"] = encoded(smooth(90, 40_000), "PNG", compress_level=1)
    files["high.jpg"] = encoded(smooth(40_000, 30))
    files["point.jpg"] = encoded(smooth(1, 1))
    files["large.webp"] = encoded(smooth(1200, 1600), "WEBP", method=0)
    files["large.tif"] = encoded(smooth(1500, 1700), "TIFF")
    write_list(folder, files)
    return folder / "list.txt"


RUN = """
import json
def darker(image):
    return image >> 1
pipeline = ps.Pipeline(ps.FileList({path!r})).shuffle(seed=1).map(ps.RandomResizedCrop(96))
if {executor!r} != "native":
    pipeline = pipeline.map(darker, field="image")
    settings = {{"executor": {executor!r}}}
else:
    settings = {{}}
with pipeline.batch(8).loader(memory="{memory}", workers=3, depth=3, side_memory="46MiB", **settings) as loader:
    rows = sum(len(batch["index"]) for epoch in range(6) for batch in loader)
    print(json.dumps([rows, loader.plan.forecast.process, loader.plan.memory_bytes]))
"""


@pytest.mark.parametrize(("executor", "memory"), [("native", "80MiB"), ("thread", "80MiB")])
def test_large_frames_stay_within_the_budget(awkward: Path, executor: str, memory: str) -> None:
    """What was freed goes back to the system: the C library alone would keep 64 MiB for every thread."""
    printed, peak = peak_memory(RUN.format(path=str(awkward), executor=executor, memory=memory))
    rows, before, budget = json.loads(printed)
    assert rows == 6 * 16
    assert peak <= 1.05 * (before + budget)


def test_threads_share_memory_for_whole_frames(tmp_path: Path) -> None:
    """An image may have all of it, whatever the number of threads; the others wait."""
    files = [encoded(smooth(1000, 1000 + side), "PNG", compress_level=1) for side in range(8)]
    pipeline = ps.Pipeline(write_list(tmp_path, files)).map(ps.Resize((8, 8))).map(lambda x: x, field="image")
    with pipeline.batch(8).loader(workers=4, side_memory="12MiB", memory="256MiB") as loader:
        (batch,) = loader
        assert batch["image"].any(axis=(1, 2, 3)).all()
        with pytest.raises(ps.DecodeError, match=r"more than side_memory=8388608"):
            next(iter(pipeline.batch(8).loader(workers=1, side_memory="8MiB", memory="256MiB")))
