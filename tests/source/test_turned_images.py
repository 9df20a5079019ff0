"""Images that EXIF turns, with annotations of the turned image: sources that read sizes from headers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import picture
from standpipe.contracts import check_source
from tars import shard

HEIGHT, WIDTH = 72, 96  # as stored: EXIF turns the image by 90 degrees
BOX = [0.0, 24.0, 36.0, 96.0]  # only in the turned image
KINDS = ("JPEG", "PNG", "WEBP", "TIFF")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def photo(kind: str) -> bytes:
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(1, HEIGHT, WIDTH)).save(out, kind, exif=exif)
    return out.getvalue()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def yolo(folder: Path, image: bytes, suffix: str) -> Any:
    put(folder / f"images/a.{suffix}", image)
    put(folder / "labels/a.txt", "0 0.25 0.625 0.5 0.75")
    return sp.YoloLabels(folder)


def voc(folder: Path, image: bytes, suffix: str) -> Any:
    put(folder / f"JPEGImages/a.{suffix}", image)
    box = "<xmin>1</xmin><ymin>25</ymin><xmax>36</xmax><ymax>96</ymax>"
    text = f"<annotation><object><name>a</name><bndbox>{box}</bndbox></object></annotation>"
    put(folder / "Annotations/a.xml", text)
    return sp.PascalVoc(folder)


def lines(folder: Path, image: bytes, suffix: str) -> Any:
    put(folder / f"a.{suffix}", image)
    put(folder / "boxes.jsonl", json.dumps({"boxes": [BOX], "labels": [0]}))
    return sp.FileList(put(folder / "images.txt", f"a.{suffix}\n"), instances=folder / "boxes.jsonl")


def tar(folder: Path, image: bytes, suffix: str) -> Any:
    target = json.dumps({"boxes": [BOX], "labels": [0]}).encode()
    folder.mkdir(exist_ok=True)
    return sp.TarShards(
        shard(folder / "0.tar", [(f"a.{suffix}", image), ("a.json", target)]), instances="json"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [yolo, voc, lines, tar])
def test_sizes_are_those_of_the_turned_image(
    tmp_path: Path, make: Callable[[Path, bytes, str], Any], kind: str
) -> None:
    source = make(tmp_path / "data", photo(kind), {"JPEG": "jpg", "TIFF": "tif"}.get(kind, kind.lower()))
    check_source(source)
    assert source.open().locate(np.arange(1)).sizes.tolist() == [[WIDTH, HEIGHT]]
    pipeline = sp.Pipeline(source).map(sp.Resize((WIDTH // 2, HEIGHT // 2))).batch(1)
    with pipeline.decode(orientation="apply").loader(executor="thread") as loader:
        batch = loader.peek()
        assert batch["boxes"].tolist() == [[side / 2 for side in BOX]]
        assert batch["orig_size"].tolist() == [[WIDTH, HEIGHT]]
    assert sp.check_files(source).ok
    if kind != "TIFF":  # which Pillow turns by itself
        with (
            pytest.raises(sp.DecodeError, match=r"say 72 × 96; decode\(orientation='apply'\) turns"),
            pipeline.loader(executor="thread") as loader,
        ):
            loader.peek()
