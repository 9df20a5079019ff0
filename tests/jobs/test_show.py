"""``Pipeline.show`` draws the pixels that a loader delivers."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import picture

CROP = (sp.RandomResizedCrop(96), sp.RandomHorizontalFlip())


def sheet_of(pipeline: sp.Pipeline, n: int = 8, **options: object) -> np.ndarray:
    return np.asarray(pipeline.show(n, **options).image)  # type: ignore[arg-type]


def place_of(image: np.ndarray, sheet: np.ndarray) -> tuple[int, int] | None:
    """The left and top of an image in a sheet; None if it isn't there."""
    height, width, _ = image.shape
    for y, x in np.argwhere((sheet[:-height, :-width] == image[0, 0]).all(axis=2)):
        if np.array_equal(sheet[y : y + height, x : x + width], image):
            return int(x), int(y)
    return None


def images(count: int = 6) -> sp.Arrays:
    return sp.Arrays(image=np.stack([picture(seed, 110, 130) for seed in range(count)]))


def batch_of(pipeline: sp.Pipeline, rows: int, epoch: int = 0) -> dict[str, np.ndarray]:
    with pipeline.batch(rows).loader(memory="128MiB", num_workers=1) as loader:
        loader.set_epoch(epoch)
        return {name: np.array(values) for name, values in next(iter(loader)).items()}


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_sheet_has_the_first_samples_of_an_epoch_below_each_other(epoch: int) -> None:
    pipeline = sp.Pipeline(images()).shuffle(seed=3).map(*CROP)
    expected = batch_of(pipeline, 3, epoch)["image"]
    for shown in (
        pipeline,
        pipeline.map(sp.Normalize()),
        pipeline.map(sp.ToDtype("float16")),
        pipeline.batch(4),
    ):
        sheet = sheet_of(shown, 3, epoch=epoch)
        places = [place_of(each, sheet) for each in expected]
        assert None not in places
        assert places == sorted(places, key=lambda place: place[1])  # type: ignore[index]


def test_steps_show_the_same_random_numbers_in_each_picture() -> None:
    pipeline = sp.Pipeline(images(), seed=5).map(*CROP, sp.ColorJitter(0.4, 0.4, 0.4, 0.2), sp.Normalize())
    sheet = sheet_of(pipeline, 2, steps=True)
    lefts = []
    for number in range(4):
        expected = batch_of(sp.Pipeline(images(), seed=5).map(*pipeline.transforms[:number]), 2)["image"]
        places = [place_of(each, sheet) for each in expected]
        assert None not in places
        lefts.append(places[0][0])  # type: ignore[index]
    assert lefts == sorted(set(lefts))
    complete = sheet_of(pipeline, 2)
    assert place_of(expected[0], complete) is not None


def test_images_may_differ_in_size_between_steps(tmp_path: Path) -> None:
    for number, height in enumerate((100, 120)):
        Image.fromarray(picture(number, height, 110)).save(tmp_path / f"{number}.png")
    (tmp_path / "list.txt").write_text("0.png\n1.png\n")
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt")).map(sp.CenterCrop(96))
    sheet = sheet_of(pipeline, steps=True)
    for number, height in enumerate((100, 120)):
        image = picture(number, height, 110)
        assert place_of(image, sheet) is not None
        assert place_of(image[(height - 96) // 2 :][:96, 7:103], sheet) is not None


def test_a_step_of_random_sizes_and_the_crop_after_it_are_drawn() -> None:
    transforms = (sp.RandomResize(100, 140), sp.RandomHorizontalFlip(), sp.RandomCrop(96))
    pipeline = sp.Pipeline(images(), seed=5).map(*transforms)
    sheet = sheet_of(pipeline, 2, steps=True)
    for each in batch_of(pipeline, 2)["image"]:
        assert place_of(each, sheet) is not None
    assert place_of(batch_of(sp.Pipeline(images(), seed=5), 2)["image"][0], sheet) is not None
    resized = sp.Pipeline(images(), seed=5).map(transforms[0]).batch(2, collate={"image": list})
    with resized.loader(memory="128MiB", executor="inline") as loader:
        for each in loader.peek()["image"]:
            assert place_of(np.asarray(each), sheet) is not None


def test_views_stand_side_by_side() -> None:
    views = sp.Views(a=[*CROP, sp.Normalize()], small=sp.Repeat(3, [sp.RandomResizedCrop(48)]))
    pipeline = sp.Pipeline(images()).map(views)
    sheet, plain = (
        sheet_of(pipeline, 2),
        sp.Pipeline(images()).map(sp.Views(a=[*CROP], small=views.views["small"])),
    )
    batch = batch_of(plain, 2)
    found = [place_of(batch["a"][1], sheet), *(place_of(view, sheet) for view in batch["small"][1])]
    assert None not in found
    assert len({place[1] for place in found if place}) == 1
    assert len({place[0] for place in found if place}) == 4


def test_steps_of_views_have_a_row_for_each_view() -> None:
    crop = sp.RandomResizedCrop(96)
    views = sp.Views(
        a=[crop, sp.ColorJitter(0.4), sp.Normalize()],
        small=sp.Repeat(3, [sp.RandomResizedCrop((100, 90)), sp.RandomHorizontalFlip()]),
    )
    pipeline = sp.Pipeline(images(2)).map(sp.Resize((105, 125)), views)
    sheet = sheet_of(pipeline, 1, steps=True)

    def of(*transforms: object) -> dict[str, np.ndarray]:
        batch = batch_of(sp.Pipeline(images(2)).map(*transforms), 1)  # type: ignore[arg-type]
        return {name: values[0] for name, values in batch.items()}

    first = of(
        sp.Resize((105, 125)), sp.Views(a=[crop], small=sp.Repeat(3, [views.views["small"].transforms[0]]))
    )
    jitter = sp.Views(a=[crop, sp.ColorJitter(0.4)], small=views.views["small"])
    second = of(sp.Resize((105, 125)), jitter)
    rows = [
        [picture(0, 110, 130), of(sp.Resize((105, 125)))["image"], first["a"], second["a"], second["a"]],
        *([small, flipped] for small, flipped in zip(first["small"], second["small"], strict=True)),
    ]
    tops = []
    for row in rows:
        places = [place_of(picture, sheet) for picture in row]
        assert None not in places
        assert len({place[1] for place in places if place}) == 1
        tops.append(places[0][1])  # type: ignore[index]
    assert tops == sorted(set(tops))


def test_a_step_of_a_view_without_a_common_size_is_empty(tmp_path: Path) -> None:
    for number, height in enumerate((100, 120)):
        Image.fromarray(picture(number, height, 110)).save(tmp_path / f"{number}.png")
    (tmp_path / "list.txt").write_text("0.png\n1.png\n")
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt"))
    lefts = []
    for view in ([sp.CenterCrop(96)], [sp.Resize(100), sp.CenterCrop(96)]):
        sheet = sheet_of(pipeline.map(sp.Views(a=view)), 2, steps=True)
        place = place_of(picture(0, 100, 110)[2:98, 7:103], sheet)
        assert place is not None
        lefts.append(place[0])
    assert lefts[0] < lefts[1]


def test_several_epochs_have_a_column_each() -> None:
    pipeline = sp.Pipeline(images()).map(*CROP)
    sheet = sheet_of(pipeline, 2, epoch=range(3))
    places = [place_of(batch_of(pipeline, 2, epoch)["image"][1], sheet) for epoch in range(3)]
    assert None not in places
    assert len({place[1] for place in places if place}) == 1
    assert [place[0] for place in places if place] == sorted({place[0] for place in places if place})


def masked_source(folder: Path) -> tuple[sp.FileList, np.ndarray, np.ndarray]:
    """A list of one image and its mask, the image, and it with its mask over it, as a sheet shows it."""
    image, mask = picture(1, 100, 120), np.zeros((100, 120), np.uint8)
    mask[10:30, 50:80] = 1
    mask[0:5] = 255
    Image.fromarray(image).save(folder / "image.png")
    Image.fromarray(mask).save(folder / "mask.png")
    (folder / "images.txt").write_text("image.png\n")
    (folder / "masks.txt").write_text("mask.png\n")
    painted = image.copy()
    painted[mask == 1] = image[mask == 1] // 2 + np.array([127, 0, 0], np.uint8)
    painted[mask == 255] = image[mask == 255] // 2 + 127
    return sp.FileList(folder / "images.txt", mask=folder / "masks.txt"), image, painted


@pytest.mark.parametrize("steps", [False, True])
def test_masks_are_over_their_images(tmp_path: Path, steps: bool) -> None:
    source, image, painted = masked_source(tmp_path)
    sheet = sheet_of(sp.Pipeline(source).map(sp.RandomHorizontalFlip(p=1)), 1, steps=steps)
    places = [place_of(each, sheet) for each in (painted if steps else image[:, ::-1], painted[:, ::-1])]
    assert None not in places
    assert places[0][0] < places[1][0]  # type: ignore[index]


def test_masks_of_views_are_over_their_views(tmp_path: Path) -> None:
    source, image, painted = masked_source(tmp_path)
    flip = [sp.CenterCrop((100, 120)), sp.RandomHorizontalFlip(p=1)]
    views = sp.Views(a=flip, small=sp.Repeat(2, [sp.CenterCrop(96), sp.RandomVerticalFlip(p=1)]))
    sheet = sheet_of(sp.Pipeline(source).map(views), 1)
    flipped, small = (slice(None), slice(None, None, -1)), (slice(97, 1, -1), slice(12, 108))
    for part in (flipped, small):
        plain, masked = (place_of(each[part], sheet) for each in (image, painted))
        assert plain is not None
        assert masked is not None
        assert plain[0] < masked[0]
        assert plain[1] == masked[1]


def test_steps_of_views_are_under_their_masks(tmp_path: Path) -> None:
    source, _, painted = masked_source(tmp_path)
    small = sp.Repeat(2, [sp.CenterCrop(96), sp.RandomVerticalFlip(p=1)])
    whole = [sp.CenterCrop((100, 120)), sp.RandomHorizontalFlip(p=1), sp.ColorJitter()]
    views = sp.Views(a=whole, small=small)
    sheet = sheet_of(sp.Pipeline(source).map(views), 1, steps=True)
    whole_px, mirrored, turned = (
        place_of(each, sheet) for each in (painted, painted[:, ::-1], painted[97:1:-1, 12:108])
    )
    assert whole_px is not None
    assert mirrored is not None
    assert turned is not None
    assert whole_px[0] < mirrored[0]
    assert whole_px[1] == mirrored[1] < turned[1]


def test_small_images_are_enlarged_and_large_ones_reduced() -> None:
    image = picture(0, 16, 24)
    sheet = sheet_of(sp.Pipeline(sp.Arrays(image=image[None])))
    assert place_of(image.repeat(4, axis=0).repeat(4, axis=1), sheet) is not None
    assert sp.Pipeline(sp.Arrays(image=picture(0, 900, 2000)[None])).show().image.width < 400


def test_floats_of_a_function_are_stretched_over_their_range() -> None:
    values = np.linspace(-3, 5, 96 * 96, dtype=np.float32).reshape(96, 96)
    pipeline = sp.Pipeline(sp.MapSource([{"image": values}]))
    grey = np.rint((values + 3) * 255 / 8).astype(np.uint8)
    assert place_of(np.stack([grey] * 3, axis=2), sheet_of(pipeline)) is not None


def test_mixed_images_are_drawn_as_mixed() -> None:
    source = sp.Arrays(image=np.stack([picture(seed, 100, 100) for seed in range(2)]), label=np.arange(2))
    pipeline = sp.Pipeline(source).map(sp.Normalize()).map_batch(sp.MixUp(1.0, num_classes=2))
    plain = sheet_of(sp.Pipeline(source).map(sp.Normalize()), 2)
    assert not np.array_equal(sheet_of(pipeline, 2), plain)


def test_a_sheet_is_a_png_in_notebooks_and_in_files(tmp_path: Path) -> None:
    sheet = sp.Pipeline(images()).show(2)
    sheet.save(tmp_path / "sheet.png")
    for file in (io.BytesIO(sheet._repr_png_()), tmp_path / "sheet.png"):
        with Image.open(file) as image:
            assert image.format == "PNG"
            assert np.array_equal(np.asarray(image), np.asarray(sheet.image))
    assert repr(sheet) == f"Sheet({sheet.image.width} × {sheet.image.height})"
    with pytest.raises(sp.PlanError, match=r"end it in .png or .jpg"):
        sheet.save(tmp_path / "sheet.txt")


def test_fewer_samples_than_asked_for() -> None:
    shuffled = sp.Pipeline(images(3)).shuffle(seed=1)
    assert shuffled.show(8).image.size == sp.Pipeline(images(3)).show(3).image.size


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            lambda: sp.Pipeline(sp.Arrays(x=np.arange(3))),
            {},
            r"draws the field 'image', but the samples have the fields",
        ),
        (
            lambda: sp.Pipeline(sp.Arrays(image=np.zeros((3, 5), np.uint8))),
            {},
            r"'image' has uint8 of shape \(5,\)",
        ),
        (lambda: sp.Pipeline(images()), {"n": 0}, r"n must be an integer of at least 1"),
        (lambda: sp.Pipeline(images()), {"n": 1001}, r"at most 1000 samples"),
        (lambda: sp.Pipeline(images()), {"epoch": -1}, r"epoch must be an integer of at least 0"),
        (lambda: sp.Pipeline(images()), {"epoch": []}, r"draws no epoch: give at least one"),
        (
            lambda: sp.Pipeline(images()),
            {"epoch": (0, 1), "steps": True},
            r"draws one epoch, got epoch=\(0, 1\)",
        ),
        (
            lambda: sp.Pipeline(images()).shuffle(seed=1),
            {"epoch": range(3)},
            r"this pipeline has others in each: leave shuffle\(\) out",
        ),
        (lambda: sp.Pipeline.from_dict(sp.Pipeline(images()).to_dict()), {}, r"has no source"),
    ],
)
def test_errors_say_what_to_do(make: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(sp.PlanError, match=message):
        make().show(**options)  # type: ignore[operator]


def test_all_pictures_of_a_record_are_drawn() -> None:
    images = np.random.default_rng(2).integers(0, 256, (3, 260, 270, 3), np.uint8)
    mask = (images[..., 0] > 100).astype(np.uint8)
    depth = images[..., 1].astype(np.uint16) * 100
    source = sp.Arrays(left=images, right=255 - images, road=mask, far=depth)
    named: dict[str, tuple[str, ...]] = {
        "images": ("left", "right"),
        "depths": ("far",),
        "pairs": ("left", "right"),
    }
    named["masks"] = ("road",)
    pipeline = sp.Pipeline(source).decode(**named).map(sp.RandomCrop(250), sp.RandomHorizontalFlip())
    alone = pipeline.map(lambda sample: {"image": sample["left"]}).show(2).image
    both = pipeline.show(2).image
    assert both.width > 2 * alone.width
    assert pipeline.map(sp.Normalize()).show(2).image.size == both.size
    assert pipeline.show(2, steps=True).image.width < both.width
    views = sp.Views(a=[sp.CenterCrop(250)], b=sp.Repeat(2, [sp.RandomCrop(250)]))
    assert sp.Pipeline(source).decode(**named).map(views).show(2).image.width > 2 * both.width
