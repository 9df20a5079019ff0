"""Native transforms that move an image refuse fields that they would leave behind."""

from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from fleets import Makers
from photos import encoded, picture, write_list
from preloaded import SERVER
from samples import Samples

IMAGES = np.random.default_rng(4).integers(0, 256, (6, 12, 16, 3), np.uint8)
MOVING = [sp.CenterCrop(8), sp.Resize(8), sp.RandomResizedCrop(8), sp.RandomHorizontalFlip()]


def beside(name: str) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays({"image": IMAGES, name: np.zeros((6, 4))}))


@pytest.mark.parametrize("name", ["masks", "boxes", "bboxes", "keypoints"])
@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_a_plan_refuses_to_leave_a_field_behind(transform: Any, name: str) -> None:
    says = rf"{type(transform).__name__}\(.*but not the field '{name}'.*move both.*unmoved=\('{name}',\)"
    with pytest.raises(sp.PlanError, match=says):
        beside(name).map(transform).batch(2).plan()


@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_a_mask_has_one_byte_per_pixel(transform: Any) -> None:
    says = rf"{type(transform).__name__}\(.*can't take the field 'mask', which is \(4\) float64.*or rename it"
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
    return {"image": sample["image"][:8, :8], "positions": sample["boxes"][:8, 0]}


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
        source.loader(memory="512MiB", num_workers=1, executor=executor, mp_context=SERVER) as loader,
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


BOXES = np.array([[1.0, 2, 5, 6], [0, 0, 3, 3]])
Target = namedtuple("Target", "labels boxes")
LAYOUTS: dict[str, tuple[dict[str, Any] | tuple[Any, ...], str]] = {
    "bbox": ({"bbox": BOXES[0]}, "'bbox'"),
    "mmdetection": ({"gt_bboxes": BOXES}, "'gt_bboxes'"),
    "another case": ({"Boxes": BOXES.tolist()}, "'Boxes'"),
    "no boxes": ({"boxes": BOXES[:0]}, "'boxes'"),
    "an empty list": ({"boxes": []}, "'boxes'"),
    "torchvision": ({"target": {"labels": [1, 2], "boxes": BOXES}}, 'target["boxes"]'),
    "Hugging Face": ({"objects": {"id": [7], "bbox": [[1.0, 2.0, 4.0, 4.0]]}}, 'objects["bbox"]'),
    "COCO": (([{"id": 7, "bbox": [1, 2, 4, 4]}, {"id": 8, "bbox": [0, 0, 3, 3]}],), 'label[0]["bbox"]'),
    "Pascal VOC": (
        ({"annotation": {"object": [{"name": "cat", "bndbox": {"xmin": "1", "ymin": "2.5"}}]}},),
        'label["annotation"]["object"][0]["bndbox"]',
    ),
    "landmarks": ({"landmarks": np.zeros((5, 2))}, "'landmarks'"),
    "points": ({"points": [(1.0, 2.0), (3.0, 4.0)]}, "'points'"),
    "polygons": ({"polygons": [[1, 2, 5, 2, 5, 6], [1, 1, 2, 2, 1, 2]]}, "'polygons'"),
    "runs of a segmentation": ({"segmentation": {"size": [12, 16], "counts": b"01"}}, "'segmentation'"),
    "an encoded picture": ({"depth": b"\x89PNG"}, "'depth'"),
    "a Pillow image": ({"depth": Image.new("L", (16, 12))}, "'depth'"),
    "flow": ({"flow": np.zeros((2, 12, 16))}, "'flow'"),
    "a small heatmap": ({"heatmap": np.zeros((3, 4))}, "'heatmap'"),
    "a named tuple": ({"target": Target(np.array([1, 2]), BOXES)}, 'target["boxes"]'),
    "a mask inside": ({"target": {"mask": IMAGES[0, :, :, 0]}}, 'target["mask"]'),
}


def sampled(others: dict[str, Any] | tuple[Any, ...]) -> sp.Pipeline:
    """Samples with an image and these values, as a data set in Python gives them."""
    if isinstance(others, tuple):
        return sp.Pipeline(sp.MapSource(Samples(lambda index: (IMAGES[index], *others), 6)))
    return sp.Pipeline(sp.MapSource(Samples(lambda index: {"image": IMAGES[index], **others}, 6)))


def batches(pipeline: sp.Pipeline, executor: Literal["inline", "thread", "process"] = "inline") -> list[Any]:
    with pipeline.batch(2).loader(
        memory="512MiB", num_workers=1, executor=executor, mp_context=SERVER
    ) as loader:
        return [dict(batch) for batch in loader]


@pytest.mark.parametrize(("others", "path"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_first_sample_shows_a_value_that_would_no_longer_fit(others: Any, path: str) -> None:
    pipeline = sampled(others)
    field = "label" if isinstance(others, tuple) else next(iter(others))
    with pytest.raises(sp.PlanError) as raised:
        batches(pipeline.map(sp.CenterCrop(8)))
    assert f"CenterCrop(size=8) moves the image's pixels but not the field {path}, which" in str(raised.value)
    assert f"unmoved=('{field}',)" in str(raised.value)
    assert batches(pipeline.map(sp.CenterCrop(8), unmoved=(field,)))[2][field] is not None
    assert batches(pipeline.map(sp.RandomInvert(), sp.Normalize()))[2][field] is not None


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("version", ["transforms", "v2"])
def test_torchvisions_transforms_get_the_image_alone(version: str, declared: bool) -> None:
    """``map()`` passes them no boxes, so they leave them behind, in groups too; those of colours don't."""
    torchvision = pytest.importorskip("torchvision_cpu").torchvision
    made = torchvision.transforms if version == "transforms" else torchvision.transforms.v2
    source = (
        sp.Pipeline(sp.Arrays(image=IMAGES, boxes=np.zeros((6, 2, 4))))
        if declared
        else sampled({"boxes": BOXES})
    )
    flip, colour = made.RandomHorizontalFlip(), made.ColorJitter(0.1)
    for moving in (flip, made.Compose([colour, made.RandomApply([flip])])):
        with pytest.raises(sp.PlanError, match=r"moves the image's pixels but not .*'boxes'"):
            batches(source.map(moving))
        batches(source.map(moving, unmoved=("boxes",)))
    batches(source.map(colour))


def test_text_and_single_numbers_have_no_places_whatever_their_names() -> None:
    others = {
        "segmentation": "cat",
        "points": 7,
        "depth": np.float32(0.5),
        "polygons": ["a", "b"],
        "flow": np.zeros(1),
        "box": "12",
        "scores": np.zeros(12),
        "target": {"label": 3, "keypoint": 2.0, "text": "a box"},
    }
    assert len(batches(sampled(others).map(sp.RandomResizedCrop(8), sp.RandomHorizontalFlip()))) == 3


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_function_that_collates_gets_no_field_that_does_not_fit(executor: Any) -> None:
    pipeline = sampled({"target": {"boxes": BOXES}}).map(sp.CenterCrop(8))
    pipeline = pipeline.batch(2, collate_fn=collated)
    with (
        pipeline.loader(memory="512MiB", num_workers=1, executor=executor, mp_context=SERVER) as loader,
        pytest.raises(sp.PlanError, match=r'CenterCrop\(size=8\) moves .* the field target\["boxes"\]'),
    ):
        next(iter(loader))


def collated(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"image": np.stack([sample["image"] for sample in samples])}


@pytest.mark.parametrize(
    "transform",
    [
        sp.Views(a=[sp.RandomResizedCrop(8)], b=[sp.CenterCrop(4), sp.Normalize()]),
        sp.CenterCrop(sp.Schedule({0: 8, 1: 6})),
        sp.RandomApply([sp.RandomRotation(20)]),
        sp.AugMix(),
    ],
    ids=["Views", "Schedule", "RandomApply", "AugMix"],
)
def test_transforms_of_all_kinds_are_looked_at(transform: Any) -> None:
    with pytest.raises(sp.PlanError, match=r'moves .* the field target\["boxes"\]'):
        batches(sampled({"target": {"boxes": BOXES}}).map(transform))


def test_a_field_that_a_function_drops_later_is_no_matter() -> None:
    pipeline = sampled({"target": {"boxes": BOXES}, "label": 1}).map(sp.CenterCrop(8), image_and_label)
    assert batches(pipeline)[0].keys() == {"image", "label", "index", "valid"}
    assert pipeline.show(2, steps=True).image.size


def image_and_label(sample: dict[str, Any]) -> dict[str, Any]:
    return {"image": sample["image"], "label": sample["label"]}


@pytest.mark.parametrize("collate_fn", [None, collated])
def test_the_trainer_judges_what_the_makers_of_a_fleet_found(collate_fn: Any) -> None:
    fits = sampled({"target": {"boxes": BOXES}}).map(sp.CenterCrop(8), unmoved=("target",))
    fits = fits.batch(2, collate_fn=collate_fn)
    options = {"memory": "128MiB", "num_workers": 1}
    fleet = Makers([fits.plan(executor="thread", **options)])
    with fits.loader(fleet=fleet, **options) as loader:
        assert len(list(loader)) == 3
    with (
        replace(fits, unmoved=()).loader(fleet=fleet, **options) as loader,
        pytest.raises(sp.PlanError, match=r'but not the field target\["boxes"\]'),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    "others",
    [{"right": IMAGES[0]}, {"pair": [{"other": IMAGES[0, :, :, 0].astype(float)}]}, {"frames": IMAGES[:2]}],
)
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_value_of_the_images_size_is_warned_of_once(others: dict[str, Any], executor: Any) -> None:
    pipeline = sampled(others).map(sp.RandomHorizontalFlip(), sp.Resize(6), sp.CenterCrop(4))
    field = next(iter(others))
    says = rf"RandomHorizontalFlip.* the field '?{field}.*unmoved=\('{field}',\)"
    with pipeline.batch(2).loader(
        memory="512MiB", num_workers=1, executor=executor, mp_context=SERVER
    ) as loader:
        with pytest.warns(UserWarning, match=says) as found:
            assert len(list(loader)) == 3
        assert len(found) == 1
        assert len(list(loader)) == 3
    batches(pipeline.map(unmoved=(field,)))


def test_arrays_of_the_images_size_are_warned_of_without_a_sample() -> None:
    source = sp.Pipeline(sp.Arrays(image=IMAGES, right=IMAGES, left=IMAGES[..., 0].copy()))
    pipeline = source.map(sp.RandomHorizontalFlip())
    with pytest.warns(UserWarning, match="the field 'right' and the field 'left', as high and wide"):
        assert len(batches(pipeline, "thread")) == 3
    assert len(batches(pipeline.map(unmoved=("left", "right")), "thread")) == 3
    assert len(batches(source.map(sp.Normalize()), "thread")) == 3
    with pytest.warns(UserWarning, match="the field 'left', as"):
        pipeline.map(unmoved=("right",)).show(2)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_unmoved_names_fields_of_samples(executor: Any) -> None:
    with pytest.raises(sp.PlanError, match=r"map\(unmoved=…\): there is no field 'dpth'"):
        batches(sampled({"depth": BOXES}).map(sp.CenterCrop(8), unmoved=("dpth",)), executor)
    with pytest.raises(sp.PlanError, match=r"map\(unmoved=…\): there is no field 'dpth'"):
        beside("depth").map(sp.CenterCrop(8), unmoved=["depth", "dpth"]).batch(2).plan()
    for wrong in ("depth", (1,), None):
        with pytest.raises(sp.PlanError, match=r"unmoved=.*: give names of fields in a tuple"):
            beside("depth").map(sp.CenterCrop(8), unmoved=wrong)  # type: ignore[arg-type]


def test_unmoved_changes_no_digest_and_is_part_of_the_recipe() -> None:
    plain = sp.Pipeline(sp.Arrays(image=IMAGES, score=np.zeros((6, 2)))).map(sp.CenterCrop(8)).batch(2)
    said = plain.map(unmoved=("score",)).map(unmoved=("score",))
    assert said.plan().digest == plain.plan().digest
    assert said.to_dict()["unmoved"] == ["score"]
    assert sp.Pipeline.from_dict(said.to_dict(), source=said.source) == said
    assert sp.Pipeline.from_dict({**plain.to_dict(), "unmoved": []}).unmoved == ()


def test_a_cache_of_files_is_filled_whatever_stands_beside_them(tmp_path: Path) -> None:
    files = write_list(tmp_path, [encoded(picture(seed)) for seed in range(6)])
    sp.build_index(files, columns={"boxes": np.zeros((6, 4), np.int64)})
    (tmp_path / "rows").mkdir()
    cache = sp.Cache("test", memory="32MiB", directory=tmp_path / "rows", strict=True)
    assert sp.fill_cache(sp.Pipeline(files).cache(cache).map(both_cropped).batch(2)).stored == 6
