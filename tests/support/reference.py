"""Functions that return standpipe's rows, and compare them with Pillow's."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Geometric, Sample
from model.pictures import transformed
from standpipe.contracts import Transform
from standpipe.spec import AnyArray
from standpipe.transform import decoder_version

# 500 photos of ImageNet, where they are at hand: STANDPIPE_SAMPLE, or beside the repository.
SAMPLE = Path(
    os.environ.get("STANDPIPE_SAMPLE", Path(__file__).parents[3] / "shared" / "data" / "imagenet-sample")
)
needs_sample = pytest.mark.skipif(not SAMPLE.is_dir(), reason="no sample; STANDPIPE_SAMPLE names its folder")

# libjpeg-turbo 3.0.1 changed what it smooths where a progressive JPEG lacks scans.
SMOOTHS_AS_PILLOW = tuple(int(part) for part in decoder_version().split(".")[:3]) >= (3, 0, 1)


def decoded(data: bytes) -> Image.Image:
    """The image as Pillow decodes it, in RGB."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def in_order(
    source: sp.ImageFolder | sp.FileList | sp.Arrays, *transforms: Transform, seed: int = 0
) -> sp.Pipeline:
    """A small source, record after record, in batches of up to 64."""
    return sp.Pipeline(source, seed=seed).map(*transforms).batch(64, last_batch="partial")


def listed(folder: Path, files: Sequence[bytes], *, times: int = 1, suffix: str = ".jpg") -> sp.FileList:
    """Encoded images as files of ``folder``, all of them ``times`` over."""
    names = [f"{number:05}{suffix}" for number in range(len(files))]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    (folder / "list.txt").write_text("".join(f"{name}\n" for name in names * times), encoding="ascii")
    return sp.FileList(folder / "list.txt", labels=False)


def delivered(
    pipeline: sp.Pipeline,
    *,
    epoch: int = 0,
    num_workers: int = 2,
    executor: Literal["thread", "inline"] = "thread",
    simd: str | None = None,
) -> list[AnyArray]:
    """The images of a whole epoch, one array per record."""
    plan = pipeline.plan(memory="128MiB", num_workers=num_workers, executor=executor)
    plan = replace(plan, samples=replace(plan.samples, simd=simd))
    with sp.Loader(plan) as loader:
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
        return [image for batch in loader for image in batch["image"].copy()]


def explain_difference(ours: AnyArray, expected: AnyArray) -> str:
    """Return a text of where two images differ; empty if they are equal."""
    if np.array_equal(ours, expected):
        return ""
    if ours.shape != expected.shape:
        return f"shape {ours.shape}, expected {expected.shape}"
    rows, columns = np.nonzero((ours != expected).any(axis=2))
    worst = np.abs(ours.astype(int) - expected.astype(int)).max()
    return (
        f"{len(rows)} of {ours.shape[0] * ours.shape[1]} pixels differ, by up to {worst}, "
        f"in rows {rows.min()} to {rows.max()} and columns {columns.min()} to {columns.max()}"
    )


def check_rows(
    rows: Sequence[AnyArray],
    images: Mapping[str, Image.Image],
    transforms: Sequence[Geometric],
    seed: int = 0,
) -> None:
    """Row n must be image n (they repeat) after ``transforms``, as Pillow does them, at position n."""
    names = list(images)
    wrong = []
    for position, row in enumerate(rows):
        name = names[position % len(names)]
        expected = transformed(images[name], transforms, Sample(seed, 0, position))
        if difference := explain_difference(row, expected):
            wrong.append(f"{name}, position {position}: {difference}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(rows)} rows", *wrong[:10]])
