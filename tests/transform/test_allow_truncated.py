"""``decode(allow_truncated=True)``: files that end too soon, as Pillow's own switch has them, and counted."""

import io
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

import standpipe as sp
from draws import Geometric
from jpegs import kinds, photo, saved
from preloaded import SERVER
from reference import SMOOTHS_AS_PILLOW, check_rows, in_order, listed

TRAIN = (sp.RandomResizedCrop((24, 31), scale=(0.05, 1.0)), sp.RandomHorizontalFlip())
EVAL = (sp.Resize(28), sp.CenterCrop(26))
SHARES = (0.0, 0.04, 0.3, 0.77, 0.95)  # of what follows the header
RGB = photo(40, 53)
OTHERS = {
    "PNG": saved(RGB, "PNG"),
    "BMP": saved(RGB, "BMP"),
    "PPM": saved(RGB, "PPM"),
    "GIF": saved(RGB, "GIF", mode="P"),
    "TIFF": saved(RGB, "TIFF"),  # its directory comes first
}


def by_pillow(data: bytes) -> Image.Image:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        return Image.open(io.BytesIO(data)).convert("RGB")


def pixels_begin(data: bytes) -> int:
    """Where a JPEG's first scan begins."""
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def cuts(data: bytes) -> list[bytes]:
    """A JPEG cut at several places, before its last marker, and inside that."""
    begin = pixels_begin(data)
    end = data.index(b"\xff\xd9", begin)
    inside = [data[: begin + int((end - begin) * share)] for share in SHARES]
    return [*inside, data[:end], data[: end + 1]]


def damaged(data: bytes) -> bytes:
    """A JPEG with an end in the middle, and another one at the end."""
    at = (pixels_begin(data) + len(data)) // 2
    return data[:at] + b"\xff\xd9" + data[at + 2 :]


def is_smoothed(name: str) -> bool:
    """Whether the picture is smoothed, otherwise than by Pillow's where the libjpeg-turbo is an older one."""
    return "progressive" in name and "4:4:4" not in name


JPEGS = {name: cuts(data) for name, data in kinds(40, 53).items()}


def is_refused(data: bytes) -> bool:
    """Whether Pillow calls it truncated; not all that lack their last marker."""
    try:
        Image.open(io.BytesIO(data)).load()
    except OSError:
        return True
    return False


def epoch(pipeline: sp.Pipeline, **settings: Any) -> tuple[list[np.ndarray], sp.Stats]:
    """Its images, and the counters of workers that have made as many, and none of a next epoch."""
    settings = {"memory": "256MiB", "num_workers": 1, "mp_context": SERVER, **settings}
    with pipeline.loader(**settings) as loader:
        rows = [image for batch in loader for image in batch["image"].copy()]
    with replace(pipeline, batch_rows=1, batch_sampler=True, last_batch=None).loader(**settings) as loader:
        assert sum(1 for _ in loader.from_batches([record] for record in range(len(rows)))) == len(rows)
    stats = loader.stats()
    assert stats.rows == len(rows)
    return rows, stats


@pytest.mark.parametrize("transforms", [TRAIN, EVAL], ids=["train", "eval"])
def test_a_cut_jpeg_is_as_pillow_has_it(tmp_path: Path, transforms: Sequence[Geometric]) -> None:
    files = [
        (f"{name} {n}", cut)
        for name in JPEGS
        if SMOOTHS_AS_PILLOW or not is_smoothed(name)
        for n, cut in enumerate(JPEGS[name])
    ]
    source = listed(tmp_path, [data for _, data in files])
    rows, stats = epoch(in_order(source, *transforms).decode(allow_truncated=True))
    check_rows(rows, {name: by_pillow(data) for name, data in files}, transforms)
    assert stats.truncated == sum(is_refused(data) for _, data in files)
    assert stats.damaged == 0


def test_a_crop_of_a_cut_progressive_jpeg_is_a_crop_of_the_whole(tmp_path: Path) -> None:
    files = [cut for name in JPEGS if is_smoothed(name) for cut in JPEGS[name]]
    source = listed(tmp_path, files)
    whole, _ = epoch(in_order(source, sp.Resize((40, 53))).decode(allow_truncated=True))
    rows, _ = epoch(in_order(source, *TRAIN).decode(allow_truncated=True))
    check_rows(rows, {str(number): Image.fromarray(image) for number, image in enumerate(whole)}, TRAIN)


@pytest.mark.parametrize("kind", OTHERS)
def test_another_cut_format_is_as_pillow_has_it(tmp_path: Path, kind: str) -> None:
    data = OTHERS[kind]
    files = {f"{left} left": data[:left] for left in (len(data) * 2 // 3, len(data) * 9 // 10)} | {
        "whole": data
    }
    source = listed(tmp_path, list(files.values()))
    rows, stats = epoch(in_order(source, *EVAL).decode(allow_truncated=True))
    check_rows(rows, {name: by_pillow(content) for name, content in files.items()}, EVAL)
    assert stats.truncated == 2


@pytest.mark.parametrize("executor", [None, "inline"])
def test_a_cut_jpeg_that_is_turned_is_as_pillow_has_it(tmp_path: Path, executor: Any) -> None:
    """Pillow decodes it, which without its switch leaves out the rows of the last blocks."""
    exif = Image.Exif()
    exif[0x0112] = 6
    files = [
        cut
        for subsampling in ("4:4:4", "4:2:0")
        for cut in cuts(saved(RGB, subsampling=subsampling, exif=exif.tobytes()))
    ]
    upright = in_order(listed(tmp_path, files), *EVAL).decode(allow_truncated=True, orientation="apply")
    rows, stats = epoch(upright, executor=executor)
    turned = {str(n): by_pillow(data).transpose(Image.Transpose.ROTATE_270) for n, data in enumerate(files)}
    check_rows(rows, turned, EVAL)
    assert stats.truncated == sum(map(is_refused, files))


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_python_code_gets_the_same_and_it_is_counted(tmp_path: Path, executor: str) -> None:
    whole, png = kinds(40, 53)["4:2:0"], OTHERS["PNG"]
    files = [whole, whole[: len(whole) // 2], png[: len(png) // 2], png]
    pipeline = in_order(listed(tmp_path, files), *EVAL).decode(allow_truncated=True)
    native, _ = epoch(pipeline)
    rows, stats = epoch(pipeline.map(lambda image: image, field="image"), executor=executor)
    assert all(np.array_equal(one, other) for one, other in zip(native, rows, strict=True))
    assert stats.truncated == 2
    assert stats.damaged == 0


@pytest.mark.parametrize("executor", [None, "thread", "process", "inline"])
def test_damage_that_pillow_decodes_over_is_counted_too(tmp_path: Path, executor: str | None) -> None:
    whole = kinds(40, 53)["4:2:0"]
    pipeline = in_order(listed(tmp_path, [whole, damaged(whole)], times=3), *EVAL)
    if executor is not None:
        pipeline = pipeline.map(lambda image: image, field="image")
    _, stats = epoch(pipeline, executor=executor or "thread")
    assert stats.damaged == 3
    assert stats.truncated == 0


def draws_for_some(image: np.ndarray) -> np.ndarray:
    """Draws where the last row is black, as that of a PNG file is which ends too soon."""
    if not image[-1].any():
        random.random()
    return image


def drawing_batch(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    random.random()
    return batch


def drawing_samples(samples: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    random.random()
    return {"image": np.stack([sample["image"] for sample in samples])}


DRAWING = {
    "none": lambda pipeline: pipeline.map(lambda image: image, field="image"),
    "samples": lambda pipeline: pipeline.map(draws_for_some, field="image"),
    "batch": lambda pipeline: pipeline.map_batch(drawing_batch),
    "samples of a batch": lambda pipeline: pipeline.batch(
        64, collate_fn=drawing_samples, last_batch="partial"
    ),
}


@pytest.mark.parametrize("draws", DRAWING)
def test_what_draws_is_made_again_and_counted_once(tmp_path: Path, draws: str) -> None:
    """So is the first record, which is measured before."""
    png, whole = OTHERS["PNG"], kinds(40, 53)["4:2:0"]
    files = [png[: len(png) // 2], damaged(whole), whole[: len(whole) // 2], whole, png]
    pipeline = in_order(listed(tmp_path, files), *EVAL).decode(allow_truncated=True)
    _, stats = epoch(DRAWING[draws](pipeline), executor="process")
    assert stats.truncated == 2
    assert stats.damaged == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty file"),
        (kinds(40, 53)["4:2:0"][:100], "truncated: .* in the header"),
        (OTHERS["PNG"][:20], "truncated or damaged PNG"),
        (OTHERS["PNG"][:60] + bytes(900), "truncated or damaged PNG: "),
        (saved(RGB, "WEBP")[:-1], "truncated or damaged WebP"),
    ],
)
def test_what_pillow_gives_nothing_for_stays_bad(tmp_path: Path, content: bytes, says: str) -> None:
    pipeline = in_order(listed(tmp_path, [content]), *EVAL).decode(allow_truncated=True)
    with pytest.raises(sp.DecodeError, match=says):
        epoch(pipeline)


def test_without_it_they_are_bad(tmp_path: Path) -> None:
    files = [cut[2] for cut in JPEGS.values()] + [data[: len(data) * 9 // 10] for data in OTHERS.values()]
    with in_order(listed(tmp_path, files), *EVAL).batch(1).loader(memory="64MiB", num_workers=1) as loader:
        for number in range(len(files)):
            loader.load_state_dict({**loader.state_dict(), "epoch": 0, "consumed": number})
            with pytest.raises(sp.DecodeError, match="truncated"):
                next(iter(loader))


def test_it_is_part_of_the_recipe(tmp_path: Path) -> None:
    strict = in_order(listed(tmp_path, [kinds(40, 53)["grey"]]), *EVAL)
    lenient = strict.decode(allow_truncated=True)
    assert strict.plan().digest == strict.decode().plan().digest != lenient.plan().digest
    assert "decode exact, truncated files too" in lenient.plan().explain()
    state = strict.loader(memory="64MiB").state_dict()
    with pytest.raises(sp.StateError, match="decode was 'exact' and is 'exact, truncated files too'"):
        lenient.loader(memory="64MiB").load_state_dict(state)
    with pytest.raises(sp.PlanError, match=r"allow_truncated must be True or False, got 'yes'"):
        strict.decode(allow_truncated="yes")  # type: ignore[arg-type]
