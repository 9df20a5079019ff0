"""RandomIoUCrop has torchvision's windows, pixels and boxes for the same random numbers, in every row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Draws, Sample
from fleets import Makers
from painted import annotation, painted, written
from preloaded import TORCH
from reference import in_order
from standpipe.spec import AnyArray

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

v2, tv_tensors = torchvision.transforms.v2, torchvision.tv_tensors
F = v2.functional
MEMORY, SEED, SIDE = "256MiB", 3, (90, 120)
FILL = (123, 117, 104)
SSD = [
    sp.RandomPhotometricDistort(),
    sp.RandomZoomOut(FILL),
    sp.RandomIoUCrop(),
    sp.RandomHorizontalFlip(),
    sp.Resize(SIDE),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def window(crop: sp.RandomIoUCrop, size: tuple[int, int], boxes: AnyArray, draws: Draws) -> Any:
    """torchvision's rule: left, top, width and height, and the boxes that stay. ``size``: (width, height)."""
    whole = (0, 0, *size), np.ones(len(boxes), bool)
    options = crop.sampler_options or [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    while len(boxes):
        least = options[draws.below(len(options))]
        if least >= 1:
            return whole
        for _ in range(crop.trials):
            width, height = (int(side * draws.uniform(crop.min_scale, crop.max_scale)) for side in size)
            if not crop.min_aspect_ratio <= width / height <= crop.max_aspect_ratio:
                continue
            left, top = int((size[0] - width) * draws.uniform()), int((size[1] - height) * draws.uniform())
            edges = np.array([left, top, left + width, top + height])
            stays = ((centres > edges[:2]) & (centres < edges[2:])).all(axis=1)
            if not stays.any():
                continue
            inner = np.maximum(
                np.minimum(boxes[:, 2:], edges[2:]) - np.maximum(boxes[:, :2], edges[:2]), 0
            ).prod(1)
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
            if (inner / (areas + width * height - inner))[stays].max() >= least:
                return (left, top, width, height), stays
    return whole


def by_torchvision(image: Image.Image, boxes: AnyArray, crop: sp.RandomIoUCrop, sample: Sample) -> Any:
    """Zoom out, crop, flip and resize by torchvision's functions, with standpipe's random numbers."""
    given = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=image.size[::-1], dtype=torch.float32)
    draws = sample.draws(sp.RandomZoomOut.draw_kind << 16)
    if draws.uniform() < 0.5:
        times = draws.uniform(1, 4)
        across, down = (int(side * times) - side for side in image.size)
        left, top = int(across * draws.uniform()), int(down * draws.uniform())
        sides = [left, top, across - left, down - top]
        image, given = F.pad(image, sides, list(FILL)), F.pad(given, sides)
    edges, stays = window(crop, image.size, given.numpy(), sample.draws(sp.RandomIoUCrop.draw_kind << 16))
    left, top, width, height = edges
    if edges != (0, 0, *image.size):
        image, given = F.crop(image, top, left, height, width), F.crop(given, top, left, height, width)
        given[torch.from_numpy(~stays)] = 0
    if sample.draws(sp.RandomHorizontalFlip.draw_kind << 16).uniform() < 0.5:
        image, given = F.hflip(image), F.hflip(given)
    return np.asarray(F.resize(image, list(SIDE))), F.resize(given, list(SIDE)).numpy()


def images_of(folder: Path, source: Any) -> list[tuple[Image.Image, AnyArray]]:
    opened = source.open()
    records = opened.locate(np.arange(opened.num_records))
    ends = records.ragged["boxes"].ends
    boxes = np.split(records.ragged["boxes"].values, ends[:-1])
    paths = sorted((folder / "images").glob("*.jpg"))
    return [(Image.open(path).convert("RGB"), each) for path, each in zip(paths, boxes, strict=True)]


CROPS = [
    sp.RandomIoUCrop(),
    sp.RandomIoUCrop(0.1, 0.6, 0.3, 3.0, [0.0, 0.05], 20),
    sp.RandomIoUCrop(sampler_options=[0.0]),
]


@pytest.mark.parametrize("crop", CROPS, ids=repr)
def test_pixels_and_boxes_are_torchvisions(crop: sp.RandomIoUCrop, tmp_path: Path) -> None:
    source = painted(tmp_path, 60)
    steps = [sp.RandomZoomOut(FILL), crop, sp.RandomHorizontalFlip(), sp.Resize(SIDE)]
    pipeline = sp.Pipeline(source).select(np.repeat(np.arange(1, 60), 5)).shuffle(seed=SEED).map(*steps)
    images, cropped = images_of(tmp_path, source), 0
    with pipeline.batch(30, last_batch="partial").loader(memory=MEMORY, num_workers=2) as loader:
        position = 0
        for batch in loader:
            for row, pixels in enumerate(batch["image"]):
                image, boxes = images[int(batch["index"][row])]
                if len(boxes) or crop.sampler_options is None:
                    wanted, places = by_torchvision(image, boxes, crop, Sample(SEED, 0, position))
                    assert np.array_equal(pixels, wanted), position
                    found = batch["boxes"][batch["batch_index"] == row]
                    assert np.abs(found - places).max(initial=0) < 1e-4, position
                    cropped += len(boxes) and not places.any(axis=1).all()
                position += 1
    assert position == 295
    assert cropped > 20


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory=MEMORY, mp_context=TORCH, **options) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def test_epochs_have_one_digest(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted(tmp_path, 45)).shuffle(seed=3).map(*SSD, sp.SanitizeBoundingBoxes())
    pipeline = pipeline.batch(5, last_batch="pad")
    whole = sp.digest_epoch(pipeline, epoch=1, num_workers=1, memory=MEMORY).sha256
    ways: list[dict[str, Any]] = [
        {"num_workers": 2},
        {"executor": "thread", "num_workers": 2},
        {"executor": "process", "num_workers": 2, "mp_context": TORCH},
        {"stop_at": [4], "num_workers": 2},
        {"ranks": 2, "num_workers": 1},
    ]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole, way


def test_makers_outside_draw_the_same_windows(tmp_path: Path) -> None:
    source = painted(tmp_path, 30)
    (tmp_path / "images" / "0009.jpg").write_bytes(b"no image")
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(*SSD).batch(6).on_error(sp.Replace(at_most=1))
    plans = [pipeline.plan(num_workers=1, memory=MEMORY) for _ in range(2)]
    expected = batches(pipeline)
    for batch, other in zip(batches(pipeline, fleet=Makers(plans)), expected, strict=True):
        for name, values in other.items():
            assert np.array_equal(batch[name], values), name


def test_a_cache_before_it_changes_nothing(tmp_path: Path) -> None:
    pipeline, first, rest = sp.Pipeline(painted(tmp_path, 20)).shuffle(seed=3), sp.Resize((80, 70)), SSD[1:]
    plain = sp.digest_epoch(pipeline.map(first, *rest).batch(4), memory=MEMORY).sha256
    cache = sp.Cache("boxes", memory="16MiB", directory=tmp_path)
    cached = pipeline.map(first).cache(cache).map(*rest).batch(4)
    for _ in range(2):
        assert sp.digest_epoch(cached, memory=MEMORY).sha256 == plain
    with pytest.raises(sp.PlanError, match="random"):
        pipeline.map(*rest).cache(cache).batch(4).plan()


def test_rows_that_replace_bad_samples_have_their_own_window(tmp_path: Path) -> None:
    """A replacement is drawn by its attempt, from the boxes of its own record."""
    source = painted(tmp_path, 21)
    (tmp_path / "images" / "0009.jpg").write_bytes(b"no image")
    pipeline = sp.Pipeline(source).shuffle(seed=2).map(*SSD).batch(7).on_error(sp.Replace(at_most=1))
    images = [*images_of_all_but(tmp_path, source, 9)]
    crop = SSD[2]
    assert isinstance(crop, sp.RandomIoUCrop)
    seen = 0
    plain = replace(pipeline, transforms=tuple(each for each in SSD if each is not SSD[0]))
    with plain.loader(memory=MEMORY, num_workers=2) as loader:
        rows = [(batch["index"], np.array(batch["image"])) for batch in loader]
        bad = list(loader.bad_samples)
    (replaced,) = bad
    for number, (indices, pixels) in enumerate(rows):
        for row, index in enumerate(indices):
            position = 7 * number + row
            attempt = int(position == replaced.position)
            image, boxes = images[int(index)]
            wanted, _ = by_torchvision(image, boxes, crop, Sample(2, 0, position, attempt))
            assert np.array_equal(pixels[row], wanted), position
            seen += attempt
    assert seen == 1


def images_of_all_but(folder: Path, source: Any, bad: int) -> list[tuple[Image.Image, AnyArray]]:
    file = folder / "images" / f"{bad:04d}.jpg"
    data = file.read_bytes()
    Image.new("RGB", (50, 50)).save(file)
    images = images_of(folder, source)
    file.write_bytes(data)
    return images


def test_masks_and_views_have_the_window_of_their_image(tmp_path: Path) -> None:
    source = painted(tmp_path, 20)
    views = sp.Views(a=[sp.RandomIoUCrop(), sp.Resize((40, 40))], b=[sp.RandomIoUCrop(), sp.Resize((50, 30))])
    (batch,) = batches(sp.Pipeline(source).map(views).batch(20))
    alone = {}
    for name, size in (("a", (40, 40)), ("b", (50, 30))):
        one = sp.Views(**{name: [sp.RandomIoUCrop(), sp.Resize(size)]})  # type: ignore[arg-type]
        (alone[name],) = batches(sp.Pipeline(source).map(one).batch(20))
        assert np.array_equal(batch[name], alone[name][name])
        assert np.array_equal(batch[f"{name}_boxes"], alone[name][f"{name}_boxes"])


def test_images_without_boxes_stay_whole(tmp_path: Path) -> None:
    """torchvision tries for ever if no option leaves the image as it is."""
    source = painted(tmp_path, 3, most=0)
    for options in (None, [0.5], [0.9, 0.7]):
        crop = sp.RandomIoUCrop(sampler_options=options)
        cropped, whole = (
            batches(sp.Pipeline(source).map(*steps, sp.Resize(SIDE)).batch(3)) for steps in ([crop], [])
        )
        assert np.array_equal(cropped[0]["image"], whole[0]["image"])


def test_overlaps_that_no_window_has_leave_the_image_whole(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 48), (200, 10, 10)).save(tmp_path / "images" / "a.jpg")
    entry = {"id": 1, "file_name": "a.jpg", "width": 64, "height": 48}
    source = written(tmp_path, [entry], [annotation(1, 1, (0, 0, 2, 2))])
    crop = sp.RandomIoUCrop(sampler_options=[0.9], trials=1)
    (batch,) = batches(sp.Pipeline(source).map(crop, sp.Resize((48, 64))).batch(1))
    assert batch["boxes"].tolist() == [[0, 0, 2, 2]]


@pytest.mark.parametrize(
    ("crop", "match"),
    [
        (sp.RandomIoUCrop(0.0), "min_scale must be above 0, and max_scale=1.0 not below it and at most 1"),
        (sp.RandomIoUCrop(0.5, 0.4), "min_scale must be above 0"),
        (sp.RandomIoUCrop(0.5, 1.2), "at most 1"),
        (sp.RandomIoUCrop(min_aspect_ratio=3), "min_aspect_ratio must be above 0"),
        (sp.RandomIoUCrop(sampler_options=[]), "sampler_options must be a list of at least one number"),
        (sp.RandomIoUCrop(trials=0), "trials must be an integer from 1"),
    ],
    ids=repr,
)
def test_parameters_are_checked(crop: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match=match):
        sp.Pipeline(painted(tmp_path, 2)).map(crop, sp.Resize(SIDE)).batch(1).plan()


def test_sources_without_boxes_are_refused() -> None:
    images = sp.Arrays(image=np.zeros((2, 9, 9, 3), np.uint8))
    for crop in (sp.RandomIoUCrop(), sp.RandomApply([sp.RandomIoUCrop()])):
        with pytest.raises(
            sp.PlanError, match=r"^RandomIoUCrop.* is for instances, and this source has none"
        ):
            in_order(images, crop, sp.Resize((8, 8))).plan()


class Targets:
    """The records of a source as a dataset, with encoded images or pixels."""

    def __init__(self, source: Any, encoded: bool, normalized: bool = False) -> None:
        opened = source.open()
        records = opened.locate(np.arange(opened.num_records))
        self.files = [bytes(path).decode() for path in records.files["image"].paths]
        self.boxes = np.split(records.ragged["boxes"].values, records.ragged["boxes"].ends[:-1])
        self.encoded = encoded
        assert records.sizes is not None
        if normalized:
            self.boxes = [
                boxes / np.array([width, height, width, height], np.float32)
                for boxes, (height, width) in zip(self.boxes, records.sizes, strict=True)
            ]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        file = self.files[index]
        return {"image": file if self.encoded else np.array(Image.open(file)), "boxes": self.boxes[index]}


@pytest.mark.parametrize("encoded", [False, True], ids=["pixels", "files"])
@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_workers_of_datasets_draw_the_same_windows(executor: Any, encoded: bool, tmp_path: Path) -> None:
    source = painted(tmp_path, 30)
    steps = [*SSD, sp.SanitizeBoundingBoxes()]
    expected = batches(
        sp.Pipeline(source).shuffle(seed=3).map(*steps).batch(6, instances=sp.Ragged(max_values=60))
    )
    dataset = sp.MapSource(
        Targets(source, encoded), encoded="image" if encoded else None, instances=("boxes",)
    )
    found = batches(
        sp.Pipeline(dataset).shuffle(seed=3).map(*steps).batch(6, instances=sp.Ragged(max_values=60)),
        executor=executor,
    )
    for batch, other in zip(found, expected, strict=True):
        for name in ("image", "boxes", "batch_index", "to_original"):
            assert np.array_equal(batch[name], other[name]), name


@pytest.mark.parametrize("encoded", [False, True], ids=["pixels", "files"])
def test_windows_are_drawn_from_boxes_in_pixels(encoded: bool, tmp_path: Path) -> None:
    source = painted(tmp_path, 30)
    expected, found = (
        batches(
            sp.Pipeline(
                sp.MapSource(
                    Targets(source, encoded, normalized),
                    encoded="image" if encoded else None,
                    instances=("boxes",),
                    normalized=normalized,
                )
            )
            .map(*SSD)
            .batch(6, instances=sp.Ragged(max_values=60))
        )
        for normalized in (False, True)
    )
    for batch, other in zip(found, expected, strict=True):
        assert np.array_equal(batch["image"], other["image"])
        assert np.allclose(batch["boxes"], other["boxes"], atol=1e-3)


def test_a_cache_of_a_dataset_is_refused(tmp_path: Path) -> None:
    dataset = sp.MapSource(Targets(painted(tmp_path, 3), False), instances=("boxes",))
    cache = sp.Cache("boxes", memory="16MiB", directory=tmp_path)
    pipeline = sp.Pipeline(dataset).map(sp.Resize((80, 70))).cache(cache).map(*SSD)
    with pytest.raises(sp.PlanError, match="can't follow a cache of a dataset's samples"):
        pipeline.batch(2, instances=sp.Ragged(max_values=60)).plan()


@pytest.mark.parametrize("way", ["inline", "lists"])
def test_samples_that_are_made_one_by_one_have_the_same_windows_behind_a_cache(
    way: str, tmp_path: Path
) -> None:
    source = painted(tmp_path, 30)
    (tmp_path / "images" / "0009.jpg").write_bytes(b"no image")
    cache = sp.Cache("boxes", memory="16MiB", directory=tmp_path)
    pipeline = sp.Pipeline(source).shuffle(seed=3).on_error(sp.Replace(at_most=1)).map(sp.Resize((80, 70)))
    expected = batches(pipeline.map(*SSD[1:]).batch(6))
    collate: Any = {"image": list} if way == "lists" else {}
    cached = pipeline.cache(cache).map(*SSD[1:]).batch(6, collate=collate)
    options: dict[str, Any] = {"executor": "inline"} if way == "inline" else {"num_workers": 2}
    for _ in range(2):
        for batch, other in zip(batches(cached, **options), expected, strict=True):
            for name, values in other.items():
                assert np.array_equal(batch[name], values), name
