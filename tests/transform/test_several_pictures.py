"""Records with several pictures, of any names: all of them are moved together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from field_files import INSIDE, Lists, painted, written
from photos import picture
from preloaded import SERVER
from standpipe.spec import UInt8Array

SIZES = [(41, 60), (60, 41), (37, 37), (50, 50), (33, 80), (48, 44)]  # (height, width)


def places_of(image: UInt8Array) -> UInt8Array:
    """A mask with a number that is different at each place nearby."""
    return np.asarray((image[..., 1] % 16) * 15 + image[..., 0] % 15)


def pairs(folder: Path) -> Any:
    """A source of two images, one the negative of the other, and of two masks; there is no ``image``."""
    before = [painted(*size) for size in SIZES]
    after = [255 - each for each in before]
    masks = [places_of(each) for each in before]
    return written(
        folder,
        {"before": before, "after": after, "mask": masks, "road_mask": [each // 15 for each in masks]},
    )


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory="256MiB", mp_context=SERVER, **options) as loader:
        return [{name: np.array(field) for name, field in batch.items()} for batch in loader]


MOVING: dict[str, list[Any]] = {
    "RandomResizedCrop": [sp.RandomResizedCrop(24, interpolation="nearest")],
    "Resize": [sp.Resize((30, 20), interpolation="nearest")],
    "Resize, CenterCrop": [sp.Resize(30, interpolation="nearest"), sp.CenterCrop((40, 26))],
    "RandomResize": [sp.RandomResize(20, 50, "nearest"), sp.RandomCrop(24, pad_if_needed=True)],
    "flips": [sp.CenterCrop(30), sp.RandomHorizontalFlip(), sp.RandomVerticalFlip()],
    "RandomCrop": [sp.RandomCrop((30, 36), padding=(5, 2), pad_if_needed=True)],
    "PadImage": [sp.Resize((30, 20), interpolation="nearest"), sp.PadImage((3, 4, 5, 6))],
    "reflect": [sp.Resize((30, 20), interpolation="nearest"), sp.RandomCrop(34, 8, padding_mode="reflect")],
    "RandomRotation": [sp.CenterCrop(30), sp.RandomRotation(70, center=(9, 12))],
    "RandomAffine": [sp.CenterCrop(30), sp.RandomAffine(40, translate=(0.2, 0.1), scale=(0.7, 1.4))],
    "RandomPerspective": [sp.CenterCrop(30), sp.RandomPerspective(0.6, p=0.8, interpolation="nearest")],
    "groups": [
        sp.CenterCrop((33, 30)),
        sp.RandomApply([sp.RandomRotation(20), sp.RandomVerticalFlip()], p=0.7),
        sp.RandomOrder([sp.RandomRotation(9), sp.RandomApply([sp.RandomAffine(9)])]),
    ],
}


def test_pictures_that_nothing_moves_are_decoded(tmp_path: Path) -> None:
    """Without transforms, and with those of colours, where no function takes the fields as they are."""
    names = ("before", "after", "mask", "road_mask")
    for transforms in ([], [sp.ColorJitter(0.4)]):
        described = sp.Pipeline(pairs(tmp_path)).map(*transforms).batch(6, collate=dict.fromkeys(names, list))
        with described.loader(memory="256MiB", executor="thread") as loader:
            batch = loader.peek()
        assert all([each.shape[:2] for each in batch[name]] == SIZES for name in names)


def test_arrays_of_other_names_must_be_named() -> None:
    source = sp.MapSource([{"left": np.zeros((8, 8, 3), np.uint8), "right": np.zeros((8, 8, 3), np.uint8)}])
    loader = sp.Pipeline(source).map(sp.CenterCrop(4)).batch(1).loader(executor="thread")
    with (
        loader,
        pytest.raises(sp.TransformError, match=r"fields are left, right\. Say which are images: decode"),
    ):
        loader.peek()


def check_together(
    batch: dict[str, Any], names: tuple[str, ...] = ("before", "after", "mask", "road_mask")
) -> None:
    before, after, mask, road = (batch[name] for name in names)
    inside = before[..., 2] == INSIDE
    assert inside.any()
    assert (after[inside] == 255 - before[inside]).all()
    assert ((after[..., 2] == 255 - INSIDE) == inside).all()
    assert (mask[inside] == places_of(before)[inside]).all()
    assert (road[inside] == mask[inside] // 15).all()
    assert (mask[~inside] == 255).all()
    assert (road[~inside] == 255).all()


@pytest.mark.parametrize("transforms", MOVING.values(), ids=MOVING)
def test_pictures_with_painted_places_go_to_the_same_places(transforms: list[Any], tmp_path: Path) -> None:
    pipeline = sp.Pipeline(pairs(tmp_path), seed=4).map(*transforms).batch(6)
    found = [batches(pipeline, **options) for options in ({"num_workers": 2}, {"executor": "inline"})]
    for (batch,) in found:
        check_together(batch)
    assert all((found[0][0][name] == found[1][0][name]).all() for name in found[0][0])


def test_the_image_of_a_pair_is_as_it_is_alone(tmp_path: Path) -> None:
    """Photos, with random colours and erased places: each is as in a pipeline of its own with the same seed."""
    for name in ("image", "right"):
        for number in range(6):
            size = SIZES[number][::-1]
            Image.fromarray(picture(number + (name == "right"))).resize(size).save(
                tmp_path / f"{name}{number}.jpg"
            )
    paths = {name: [tmp_path / f"{name}{number}.jpg" for number in range(6)] for name in ("image", "right")}
    transforms = [
        sp.RandomResizedCrop(24),
        sp.ColorJitter(0.5, 0.5, 0.5, 0.2),
        sp.GaussianBlur(3),
        sp.Normalize(),
        sp.RandomErasing(0.8, value="random"),
    ]
    both = sp.Pipeline(Lists(paths), seed=9).map(*transforms).batch(6)
    alone = [sp.Pipeline(Lists({"image": each}), seed=9).map(*transforms).batch(6) for each in paths.values()]
    (left,), (right,) = (batches(each) for each in alone)
    runs: list[dict[str, Any]] = [{"num_workers": 2}, {"executor": "inline"}, {"executor": "process"}]
    for options in runs:
        (batch,) = batches(both, **options)
        assert (batch["image"] == left["image"]).all()
        assert (batch["right"] == right["image"]).all()


def arrays(count: int = 6, size: tuple[int, int] = (30, 44)) -> dict[str, UInt8Array]:
    before = np.stack([painted(*size)] * count)
    mask = places_of(before)
    return {"before": before, "after": 255 - before, "mask": mask, "road": mask // 15}


NAMED: dict[str, Any] = {"images": ("before", "after"), "masks": ("road",)}


@pytest.mark.parametrize("executor", [None, "inline", "process"])
def test_arrays_are_pictures_where_decode_names_them(executor: Any) -> None:
    source = sp.Arrays(**arrays())
    pipeline = sp.Pipeline(source, seed=2).decode(**NAMED)
    pipeline = pipeline.map(sp.RandomResizedCrop(16, interpolation="nearest")).batch(6)
    (batch,) = batches(pipeline, executor=executor)
    check_together(batch, ("before", "after", "mask", "road"))
    assert (batch["before"][0] != batch["before"][1]).any()


class Samples:
    """A dataset of dicts of arrays, in a form."""

    def __init__(self, form: Callable[[UInt8Array], Any]) -> None:
        self.arrays, self.form = arrays(), form

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: self.form(array[index]) for name, array in self.arrays.items()}


@pytest.mark.parametrize("form", [np.asarray, Image.fromarray], ids=["arrays", "Pillow"])
def test_a_datasets_pictures_are_moved_where_decode_names_them(form: Any) -> None:
    steps = [sp.RandomResizedCrop(16, interpolation="nearest"), sp.RandomVerticalFlip()]
    want = sp.Pipeline(sp.Arrays(**arrays()), seed=2).decode(**NAMED).map(*steps).batch(6)
    got = sp.Pipeline(sp.MapSource(Samples(form)), seed=2).decode(**NAMED).map(*steps).batch(6)
    for executor in ("inline", "process"):
        (batch,), (expected,) = batches(got, executor=executor), batches(want)
        check_together(batch, ("before", "after", "mask", "road"))
        assert all((batch[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("executor", [None, "inline", "process"])
def test_a_run_goes_on_with_the_same_pictures(executor: Any, tmp_path: Path) -> None:
    transforms = [sp.RandomResizedCrop(16), sp.RandomHorizontalFlip()]
    pipeline = sp.Pipeline(pairs(tmp_path)).shuffle(seed=1).map(*transforms).batch(2)
    whole = batches(pipeline, num_workers=2)
    with pipeline.loader(memory="256MiB", num_workers=1, executor=executor, mp_context=SERVER) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with pipeline.loader(memory="256MiB", num_workers=2, executor=executor, mp_context=SERVER) as loader:
        loader.load_state_dict(state)
        rest = [{name: np.array(field) for name, field in batch.items()} for batch in loader]
    assert len(rest) == 2
    for batch, expected in zip(rest, whole[1:], strict=True):
        assert all((batch[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("executor", [None, "inline"])
def test_a_picture_of_another_size_is_a_bad_sample(executor: Any, tmp_path: Path) -> None:
    images = [painted(40, 56) for _ in range(3)]
    rights = [painted(40, 56), painted(40, 56), painted(12, 56)]
    source = written(tmp_path, {"image": images, "right": rights})
    says = r"right: it has 56 × 12 pixels, but its image 56 × 40; all pictures of a record have one size"
    for crop in (sp.CenterCrop(8), sp.RandomCrop(20)):  # the second one doesn't fit the small picture
        pipeline = sp.Pipeline(source).map(crop).batch(3)
        with pytest.raises(sp.DecodeError, match=says) as raised:
            batches(pipeline, executor=executor)
        assert raised.value.index == 2
        assert str(raised.value.path).endswith("right2.png")
        with pipeline.on_error(sp.Replace(at_most=1)).loader(executor=executor, mp_context=SERVER) as loader:
            assert 2 not in next(iter(loader))["index"]


def test_functions_get_pictures_decoded_or_encoded(tmp_path: Path) -> None:
    """The first step decodes ``image`` and what ``decode`` names; a native step decodes all images."""
    source = written(tmp_path, {name: [painted(20, 24)] * 2 for name in ("image", "right", "third")})
    seen: dict[str, tuple[int, ...]] = {}

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        seen.update({name: np.shape(value) for name, value in sample.items()})
        return {"image": sample["image"], "third": 3}

    cropped, whole = (8, 8, 3), (20, 24, 3)
    plain = sp.Pipeline(source)
    batches(plain.map(look).batch(2), executor="inline")
    assert (seen["image"], len(seen["right"]), len(seen["third"])) == (whole, 1, 1)
    batches(plain.decode(images=("right",)).map(look).batch(2), executor="inline")
    assert (seen["image"], seen["right"], len(seen["third"])) == (whole, whole, 1)
    batches(plain.map(sp.CenterCrop(8), look).batch(2), executor="inline")
    assert (seen["image"], seen["right"], seen["third"]) == (cropped, cropped, cropped)
    unmoved = plain.map(sp.CenterCrop(8), unmoved=("third",)).map(look)
    batches(unmoved.batch(2), executor="inline")
    assert (seen["right"], len(seen["third"])) == (cropped, 1)


def labelled(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "number": 3}


def test_pictures_stay_pictures_behind_a_function(tmp_path: Path) -> None:
    source = pairs(tmp_path)
    first, last = sp.RandomResizedCrop(24, interpolation="nearest"), sp.RandomVerticalFlip()
    for transforms in ([first, labelled, last], [first, lambda before: before, last]):
        pipeline = sp.Pipeline(source, seed=3).map(transforms[0])
        field = None if transforms[1] is labelled else "before"
        pipeline = pipeline.map(transforms[1], field=field).map(transforms[2]).batch(6)
        (batch,) = batches(pipeline, executor="inline")
        check_together(batch)


def test_each_view_has_all_pictures(tmp_path: Path) -> None:
    crop = [sp.RandomResizedCrop(16, interpolation="nearest"), sp.RandomHorizontalFlip()]
    views = sp.Views(a=crop, before=[sp.CenterCrop(20)], some=sp.Repeat(2, crop))
    pipeline = sp.Pipeline(pairs(tmp_path), seed=3).map(views).batch(6)
    for options in ({"num_workers": 2}, {"executor": "inline"}):
        (batch,) = batches(pipeline, **options)
        check_together(batch, ("a", "a_after", "a_mask", "a_road_mask"))
        check_together(batch)
        check_together(batch, ("some", "some_after", "some_mask", "some_road_mask"))


def test_what_decode_names_is_checked_and_kept(tmp_path: Path) -> None:
    empty = sp.Pipeline(sp.Arrays(**arrays()))
    for wrong in ({"images": "before"}, {"images": (3,)}, {"images": ("a",), "masks": ("a",)}):
        with pytest.raises(sp.PlanError, match=r"decode\(.*give names of fields in a tuple"):
            empty.decode(**wrong)
    crop = sp.RandomResizedCrop(16)
    for named, says in (
        ({"images": ("befor",)}, r"decode\(images=…\): there is no field 'befor'. The fields are before, "),
        ({"images": ("before",), "masks": ("after",)}, r"'after', which is .*: give it class numbers"),
        ({"masks": ("before",)}, "needs the field 'image'"),
    ):
        with pytest.raises(sp.PlanError, match=says):
            empty.decode(**named).map(crop).batch(2).plan()
    pipeline = empty.decode(**NAMED).map(crop).batch(2)
    assert sp.Pipeline.from_dict(pipeline.to_dict(), source=pipeline.source) == pipeline
    assert "images before, images after, masks road" in " ".join(pipeline.plan().explain().split())
    assert "images" not in empty.map(crop).to_dict()["decode"]
    smaller = {**arrays(), "after": np.zeros((6, 30, 43, 3), np.uint8)}
    with pytest.raises(sp.PlanError, match=r"'after' has \(30, 43\) pixels .*, but 'before' \(30, 44\)"):
        sp.Pipeline(sp.Arrays(**smaller)).decode(**NAMED).map(crop).batch(2).plan()
    with pytest.raises(sp.PlanError, match=r"AugMix.* moves the image's pixels but not the field 'mask'"):
        pipeline.map(sp.AugMix()).plan()


def test_explain_names_each_picture(tmp_path: Path) -> None:
    text = sp.Pipeline(pairs(tmp_path)).map(sp.RandomResizedCrop(16)).batch(2).plan().explain()
    text = " ".join(text.split())
    assert "before: RandomResizedCrop + move the mask, nearest pixels + move the road_mask" in text
    assert "after: RandomResizedCrop" in text


def test_a_cache_behind_transforms_keeps_one_picture(tmp_path: Path) -> None:
    cache = sp.Cache("pairs", memory="32MiB", directory=tmp_path)
    source = written(tmp_path, {"image": [painted(20, 24)] * 4, "right": [painted(20, 24)] * 4})
    kept = sp.Pipeline(source).map(sp.CenterCrop(8)).cache(cache).batch(2)
    for pipeline in (kept, kept.map(labelled)):
        with pytest.raises(
            sp.PlanError, match=r"keeps one image of a record, .*: put it right after the source"
        ):
            pipeline.plan()
    files = sp.Pipeline(source).cache(cache).map(sp.CenterCrop(8)).batch(4)
    with files.loader(memory="256MiB") as loader:
        for _ in range(2):
            (batch,) = [{name: np.array(field) for name, field in each.items()} for each in loader]
            assert (batch["image"] == batch["right"]).all()


@pytest.mark.parametrize("kind", [sp.MixUp, sp.CutMix])
def test_all_images_of_a_record_are_mixed_in_the_same_way(kind: Any) -> None:
    images = np.random.default_rng(1).integers(0, 256, (6, 9, 9, 3), np.uint8)
    source = sp.Arrays(before=images, after=images.copy(), label=np.arange(6) % 3)
    pipeline = sp.Pipeline(source).decode(images=("before", "after")).map(sp.CenterCrop(8)).batch(6)
    mixed = pipeline.map_batch(kind(1.0, num_classes=3, image=("before", "after")))
    for executor in ("inline", "process"):
        (batch,) = batches(mixed, executor=executor)
        assert (batch["before"] == batch["after"]).all()
        assert batch["label"].shape == (6, 3)
    assert (batch["before"] != batches(pipeline)[0]["before"]).any()
    for image, says in (
        ("before", r"give it to image=\('before', 'after'\)"),
        (("before", "left"), "the field 'left'"),
    ):
        with pytest.raises(sp.PlanError, match=says):
            pipeline.map_batch(kind(1.0, num_classes=3, image=image)).plan()
    views = pipeline.map(sp.Views(a=[sp.CenterCrop(7)]))
    with pytest.raises(sp.PlanError, match=r"image=\('a', 'a_after'\)"):
        views.map_batch(kind(1.0, num_classes=3, image="a")).plan()
    (batch,) = batches(views.map_batch(kind(1.0, num_classes=3, image=("a", "a_after"))))
    assert (batch["a"] == batch["a_after"]).all()


def test_cut_mix_needs_images_of_one_size() -> None:
    images = np.zeros((6, 8, 8, 3), np.uint8)
    source = sp.Arrays(image=images, lr=images[:, :4, :4].copy(), label=np.zeros(6, np.int64))
    pipeline = sp.Pipeline(source).decode(images=("lr",), scale={"lr": 0.5}).map(sp.CenterCrop(8)).batch(6)
    with pytest.raises(
        sp.StandpipeError, match="CutMix needs images of one size, but those of image, lr differ"
    ):
        batches(pipeline.map_batch(sp.CutMix(1.0, num_classes=2, image=("image", "lr"))))
