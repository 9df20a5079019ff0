"""Native transforms that move an image refuse fields that they would leave behind."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture, write_list

IMAGES = np.random.default_rng(4).integers(0, 256, (6, 12, 16, 3), np.uint8)
MOVING = [sp.CenterCrop(8), sp.Resize(8), sp.RandomResizedCrop(8), sp.RandomHorizontalFlip()]


def beside(name: str) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays({"image": IMAGES, name: np.zeros((6, 4))}))


@pytest.mark.parametrize("name", ["masks", "boxes", "bboxes", "keypoints"])
@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_a_plan_refuses_to_leave_a_field_behind(transform: Any, name: str) -> None:
    says = rf"{type(transform).__name__}\(.*but not the field '{name}'.*moves both.*or rename '{name}'"
    with pytest.raises(sp.PlanError, match=says):
        beside(name).map(transform).batch(2).plan()


@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_a_mask_has_one_byte_per_pixel(transform: Any) -> None:
    says = rf"{type(transform).__name__}\(.*can't move the field 'mask', which is \(4\) float64.*or rename it"
    with pytest.raises(sp.PlanError, match=says):
        beside("mask").map(transform).batch(2).plan()


def test_what_moves_nothing_is_welcome_beside_any_field() -> None:
    beside("mask").map(sp.RandomAdjustSharpness(2.0), sp.Normalize()).batch(2).plan()
    beside("marks").map(sp.CenterCrop(8)).batch(2).plan()


class Segments:
    """A data set whose fields nobody knows before it has given a sample."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": IMAGES[index], "boxes": IMAGES[index, :, :, 0]}


def both_cropped(sample: dict[str, Any]) -> dict[str, Any]:
    return {"image": sample["image"][:8, :8], "positions": sample["boxes"][:8, :8]}


def with_mask(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "boxes": sample["image"][:, :, 0] > 100}


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_the_first_sample_shows_the_field_where_nothing_else_does(
    executor: Literal["thread", "process"],
) -> None:
    """No sample is replaced over it: all of them have the field."""
    source = (
        sp.Pipeline(sp.MapSource(Segments())).map(sp.CenterCrop(8)).on_error(sp.Replace(at_most=1.0)).batch(2)
    )
    with (
        source.loader(memory="512MiB", num_workers=1, executor=executor) as loader,
        pytest.raises(sp.PlanError, match=r"CenterCrop\(size=8\) moves .* not the field 'boxes'"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    "transforms",
    [
        (both_cropped, sp.RandomHorizontalFlip()),
        (lambda sample: {"image": sample["image"]}, sp.CenterCrop(8), with_mask),
    ],
    ids=["renamed before", "made afterwards"],
)
def test_fields_that_are_there_at_another_time_are_no_matter(transforms: tuple[Any, ...]) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Segments())).map(*transforms).batch(2)
    with pipeline.loader(memory="128MiB", num_workers=1, executor="thread") as loader:
        assert len(list(loader)) == 3


def test_a_cache_of_files_is_filled_whatever_stands_beside_them(tmp_path: Path) -> None:
    files = write_list(tmp_path, [encoded(picture(seed)) for seed in range(6)])
    sp.build_index(files, columns={"boxes": np.zeros((6, 4), np.int64)})
    (tmp_path / "rows").mkdir()
    cache = sp.Cache("test", memory="32MiB", directory=tmp_path / "rows", strict=True)
    assert sp.fill_cache(sp.Pipeline(files).cache(cache).map(both_cropped).batch(2)).stored == 6
