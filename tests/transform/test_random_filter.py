"""``RandomResizedCrop(interpolation="random")``: bilinear or bicubic for each sample, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from distributions import check_counts, pictures
from draws import Sample, crop_filter
from jpegs import kinds, photo, saved
from reference import check_rows, decoded, delivered, in_order, listed
from standpipe.spec import AnyArray
from standpipe.transform import simd_paths

FILTERS: tuple[Literal["bilinear", "bicubic"], ...] = ("bilinear", "bicubic")
RANDOM = sp.RandomResizedCrop((21, 26), scale=(0.02, 1.0), interpolation="random")


def drawn(count: int, seed: int = 0, epoch: int = 0, place: int = 0) -> list[str]:
    return [crop_filter(RANDOM, Sample(seed, epoch, position), place) for position in range(count)]


def fixed(name: Literal["bilinear", "bicubic", "nearest"]) -> sp.RandomResizedCrop:
    return sp.RandomResizedCrop(RANDOM.size, RANDOM.scale, interpolation=name)


def chosen(made: dict[str, Any], names: list[str]) -> list[AnyArray]:
    """Row n of the rows that the n-th filter made."""
    return [made[name][row] for row, name in enumerate(names)]


def as_drawn(pipeline: Any, **options: Any) -> None:
    """Rows are those of the fixed filter that was drawn. ``pipeline`` makes one, of a crop."""
    made = {name: delivered(pipeline(fixed(name)), **options) for name in FILTERS}
    rows = delivered(pipeline(RANDOM), **options)
    names = drawn(len(rows))
    assert set(names) == set(FILTERS)
    assert np.array_equal(rows, chosen(made, names))
    assert not np.array_equal(made["bilinear"], made["bicubic"])


@pytest.mark.parametrize("simd", simd_paths())
def test_files_of_all_kinds_have_pillows_pixels(simd: str, tmp_path: Path) -> None:
    files = {**kinds(61, 83), "PNG": saved(photo(61, 83), "PNG")}
    transforms = (RANDOM, sp.RandomHorizontalFlip(), sp.RandomResizedCrop(17, interpolation="random"))
    rows = delivered(in_order(listed(tmp_path, list(files.values()), times=6), *transforms), simd=simd)
    check_rows(rows, {name: decoded(data) for name, data in files.items()}, transforms)
    both = list(zip(drawn(len(rows)), drawn(len(rows), place=1), strict=True))
    assert len(set(both)) == 4  # the second crop's filter is its own


def test_each_filter_comes_for_half_of_the_samples_as_in_timm() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("torchvision_cpu")  # before timm, which imports torchvision
    timm = pytest.importorskip("timm.data.transforms")
    picture = photo(9, 12)
    theirs = timm.RandomResizedCropAndInterpolation((5, 7), (1.0, 1.0), (4 / 3, 4 / 3), "random")
    law = [
        (
            1 / len(theirs.interpolation),
            Image.fromarray(picture).resize((7, 5), getattr(Image.Resampling, f.name)),
        )
        for f in theirs.interpolation
    ]
    crop = sp.RandomResizedCrop((5, 7), (1.0, 1.0), (4 / 3, 4 / 3), "random")
    check_counts(pictures(picture, crop), [(p, image.tobytes()) for p, image in law])


@pytest.mark.parametrize("executor", ["thread", "inline", "process"])
@pytest.mark.parametrize("decode", ["exact", "fast"])
def test_boxes_stay_as_they_are_however_rows_are_made(
    decode: Literal["exact", "fast"], executor: Any, tmp_path: Path
) -> None:
    source = listed(tmp_path, [saved(photo(150, 170)), saved(photo(90, 120), "PNG")], times=10)
    as_drawn(lambda crop: in_order(source, crop).decode(decode), executor=executor)


def test_python_code_before_the_crop(tmp_path: Path) -> None:
    source = listed(tmp_path, [saved(photo(50, 70))], times=12)
    as_drawn(
        lambda crop: sp.Pipeline(source).map(np.flipud, field="image").map(crop).batch(12), executor="thread"
    )


def test_masks_keep_the_nearest_pixel() -> None:
    images = np.random.default_rng(2).integers(0, 256, (20, 30, 40, 3), np.uint8)
    source = sp.Arrays(image=images, mask=images[..., 0].copy())

    def batch(crop: sp.RandomResizedCrop) -> dict[str, Any]:
        with sp.Pipeline(source).map(crop).batch(20).loader(num_workers=1) as loader:
            return {name: np.array(values) for name, values in next(iter(loader)).items()}

    made, nearest = batch(RANDOM), batch(fixed("nearest"))
    assert np.array_equal(made["mask"], nearest["mask"])
    assert np.array_equal(made["mask"], nearest["image"][..., 0])
    by_name = {name: batch(fixed(name))["image"] for name in FILTERS}
    assert np.array_equal(made["image"], chosen(by_name, drawn(20)))


def test_views_draw_filters_of_their_own() -> None:
    images = np.random.default_rng(2).integers(0, 256, (40, 30, 40, 3), np.uint8)

    def views(crop: sp.RandomResizedCrop) -> dict[str, Any]:
        pipeline = sp.Pipeline(sp.Arrays(image=images)).map(sp.Views(a=[crop], b=[crop])).batch(40)
        with pipeline.loader(num_workers=1) as loader:
            return {name: np.array(values) for name, values in next(iter(loader)).items()}

    made, two = views(RANDOM), [views(fixed(name)) for name in FILTERS]
    cubic = {}
    for view in ("a", "b"):
        equal = [[np.array_equal(*rows) for rows in zip(made[view], each[view], strict=True)] for each in two]
        # Both, where the box has the size of the result.
        assert all(one or other for one, other in zip(*equal, strict=True))
        cubic[view] = [not each for each in equal[0]]
    assert cubic["a"] != cubic["b"]
    assert all(any(each) and not all(each) for each in cubic.values())


def test_timms_whole_recipe_resumes_where_it_stopped() -> None:
    recipe = (
        sp.RandomResizedCrop(20, interpolation="random"),
        sp.RandomHorizontalFlip(),
        sp.TimmRandAugment(),
        sp.Normalize(),
        sp.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), mode="pixel"),
    )
    images = np.random.default_rng(2).integers(0, 256, (24, 30, 40, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=images)).shuffle(seed=7).map(*recipe).batch(6)
    restored = sp.Pipeline.from_dict(json.loads(json.dumps(pipeline.to_dict())), source=pipeline.source)
    assert restored.transforms == pipeline.transforms
    with pipeline.loader(num_workers=2) as loader:
        whole = [np.array(batch["image"]) for _ in range(2) for batch in loader]
    with pipeline.loader(num_workers=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with restored.loader(executor="inline") as loader:
        loader.load_state_dict(state)
        rest = [np.array(batch["image"]) for _ in range(2) for batch in loader]
    assert np.array_equal(rest, whole[1:])


def test_a_row_takes_the_memory_of_its_own_filter(tmp_path: Path) -> None:
    """Bicubic needs twice the rows of the image: 6 MB here."""
    crop = sp.RandomResizedCrop(8, (1.0, 1.0), (0.25, 0.25), "random")
    source = listed(tmp_path, [saved(np.full((4000, 1000, 3), 80, np.uint8))], times=8)
    pipeline = in_order(source, crop).on_error(sp.Replace(at_most=100))
    with pipeline.loader(num_workers=1, large_image_memory="5MiB") as loader:
        for _ in loader:
            pass
        bad = {sample.position: sample.reason for sample in loader.bad_samples if sample.attempt == 0}
    names = drawn(8)
    assert set(names) == set(FILTERS)
    assert sorted(bad) == [position for position, name in enumerate(names) if name == "bicubic"]
    assert all("more than large_image_memory" in reason for reason in bad.values())


def test_other_resizes_and_serving_refuse_it() -> None:
    images = sp.Pipeline(sp.Arrays(image=np.zeros((1, 9, 9, 3), np.uint8)))
    for transform in (sp.Resize(8, interpolation="random"), sp.RandomResize(8, 9, interpolation="random")):  # type: ignore[arg-type]
        with pytest.raises(sp.PlanError, match=r"interpolation must be one of 'nearest'.*'lanczos'$"):
            images.map(transform, sp.CenterCrop(8)).batch(1).plan()
    with pytest.raises(sp.PlanError, match=r"'lanczos', 'random'$"):
        images.map(sp.RandomResizedCrop(8, interpolation="any")).batch(1).plan()  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match=r"RandomResizedCrop.*random"):
        images.map(RANDOM).apply([np.zeros((9, 9, 3), np.uint8)])
