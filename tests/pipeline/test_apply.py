"""``Pipeline.apply`` gives given images the bytes that a loader gives them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import standpipe as sp
from jpegs import kinds
from photos import encoded, foreign_kinds, picture, write_list

EVALUATION = (sp.Resize(40), sp.CenterCrop(32), sp.Normalize())


def files() -> dict[str, bytes]:
    """JPEGs of all kinds that decode, and the other formats."""
    return {
        "grey.jpg": encoded(picture(1)[:, :, 0]),
        "rgb.jpg": encoded(picture(2), quality=80),
        "progressive.jpg": encoded(picture(3), progressive=True),
        "tiny.png": encoded(picture(4, 1, 1), "PNG"),
        **{f"{number}.img": data for number, data in enumerate(foreign_kinds(picture(5)))},
        "cmyk.jpg": kinds(24, 40)["CMYK"],
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_apply_gives_the_bytes_of_a_loader(tmp_path: Path, dtype: str) -> None:
    contents = files()
    transforms = EVALUATION[:2] if dtype == "uint8" else (*EVALUATION, sp.ToDtype(dtype))  # type: ignore[arg-type]
    pipeline = sp.Pipeline(write_list(tmp_path, contents)).map(*transforms).batch(len(contents))
    with pipeline.loader(num_workers=1) as loader:
        expected = np.array(next(iter(loader))["image"])
    served = sp.Pipeline.from_dict(pipeline.to_dict())
    for given in (
        list(contents.values()),
        [tmp_path / name for name in contents],
        [str(tmp_path / name) for name in contents],
        [bytearray(data) for data in contents.values()],
    ):
        image = served.apply(given)["image"]
        assert image.dtype == expected.dtype
        assert image.tobytes() == expected.tobytes()


def test_apply_takes_arrays_of_one_size_without_a_resize() -> None:
    images = np.stack([picture(seed) for seed in range(3)])
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(sp.Normalize()).batch(3)
    with pipeline.loader() as loader:
        expected = next(iter(loader))["image"].tobytes()
    assert pipeline.apply(list(images))["image"].tobytes() == expected
    mixed = pipeline.map(sp.ToLayout("NHWC"))
    with pytest.raises(sp.PlanError, match="size isn't fixed"):
        mixed.apply([images[0], images[1, :5]])


def test_apply_of_one_image_says_to_write_a_list(tmp_path: Path) -> None:
    path = tmp_path / "0.jpg"
    path.write_bytes(encoded(picture(1)))
    evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(*EVALUATION)
    wrong: Any = evaluation
    with Image.open(path) as pillow, path.open("rb") as file:
        for one in (
            str(path),
            path,
            path.read_bytes(),
            bytearray(path.read_bytes()),
            pillow,
            file,
            picture(1),
        ):
            with pytest.raises(
                sp.PlanError, match=r"takes a list of images\. For one image, write apply\(\[image\]\)"
            ):
                wrong.apply(one)
    with pytest.raises(sp.PlanError, match=r"apply\(\) takes a list of images, got None"):
        wrong.apply(None)
    assert evaluation.apply(np.stack([picture(1)]))["image"].shape == (1, 3, 32, 32)  # type: ignore[arg-type]


def test_apply_gives_the_fields_of_views(tmp_path: Path) -> None:
    views = sp.Views(
        small=[sp.CenterCrop(8)],
        large=[sp.Resize(40), sp.CenterCrop(32), sp.Normalize()],
        twice=sp.Repeat(2, [sp.CenterCrop((6, 4)), sp.ToLayout("NCHW")]),
    )
    contents = files()
    pipeline = sp.Pipeline(write_list(tmp_path, contents)).map(views).batch(len(contents))
    with pipeline.loader(num_workers=1) as loader:
        batch = next(iter(loader))
        expected = {name: np.array(batch[name]) for name in ("small", "large", "twice")}
    made = sp.Pipeline.from_dict(pipeline.to_dict()).apply(list(contents.values()))
    assert list(made) == list(expected)
    for name, rows in expected.items():
        assert (made[name].shape, made[name].dtype) == (rows.shape, rows.dtype)
        assert made[name].tobytes() == rows.tobytes()


def test_apply_turns_images_as_their_orientation_says() -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(picture(7)).save(file, "JPEG", exif=exif)
    turned = np.asarray(ImageOps.exif_transpose(Image.open(file)))
    pipeline = sp.Pipeline.from_dict({"version": 1, "decode": {"orientation": "apply"}}).map(
        sp.CenterCrop(32)
    )
    (made,) = pipeline.apply([file.getvalue()])["image"]
    assert made.tobytes() == pipeline.apply([turned])["image"].tobytes()
    assert made.tobytes() != pipeline.decode().apply([file.getvalue()])["image"].tobytes()


def test_schedules_are_refused() -> None:
    size = sp.Schedule({0: 8, 3: 16})
    pipeline = sp.Pipeline.from_dict({"version": 1}).map(sp.CenterCrop(size))
    with pytest.raises(sp.PlanError, match=r"CenterCrop.* change by them. Give it one value instead"):
        pipeline.apply([picture(1)])


def test_random_transforms_are_refused_by_name() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(2))).map(sp.CenterCrop(8), sp.RandomHorizontalFlip())
    with pytest.raises(
        sp.PlanError, match=r"RandomHorizontalFlip\(p=0.5\) is random. Use the pipeline of your eval"
    ):
        pipeline.apply([picture(1)])
    with pytest.raises(sp.PlanError, match=r"RandomHorizontalFlip\(p=0.5\), MixUp\(.*\) are random"):
        pipeline.batch(2).map_batch(sp.MixUp(0.2, 3)).apply([picture(1)])
    with pytest.raises(sp.PlanError, match=r"Views\(.* is random"):
        sp.Pipeline.from_dict({"version": 1}).map(sp.Views(a=[sp.RandomResizedCrop(8)])).apply([picture(1)])
    with pytest.raises(sp.PlanError, match="is a Python function"):
        sp.Pipeline(sp.Arrays(x=np.arange(2))).map(lambda sample: sample).apply([picture(1)])


def test_bad_images_are_named(tmp_path: Path) -> None:
    pipeline = sp.Pipeline.from_dict({"version": 1}).map(*EVALUATION)
    good, whole = encoded(picture(1)), encoded(picture(2))
    (tmp_path / "cut.jpg").write_bytes(whole[:-40])
    with pytest.raises(sp.DecodeError, match=r"record 1, .*cut.jpg") as raised:
        pipeline.apply([good, tmp_path / "cut.jpg"])
    assert (raised.value.index, raised.value.place) == (1, "transform")
    for data in (b"", b"not an image", whole[:20]):
        with pytest.raises(sp.DecodeError, match="record 0"):
            pipeline.apply([data])
    with pytest.raises(sp.ReadError, match=r"missing\.jpg"):
        pipeline.apply([tmp_path / "missing.jpg"])
    assert pipeline.decode(allow_truncated=True).apply([tmp_path / "cut.jpg"])["image"].shape == (
        1,
        3,
        32,
        32,
    )


def test_the_error_is_that_of_a_loader(tmp_path: Path) -> None:
    source = write_list(tmp_path, {"a.jpg": encoded(picture(2))[:-40]})
    pipeline = sp.Pipeline(source).map(*EVALUATION).batch(1)
    with pipeline.loader(num_workers=1) as loader, pytest.raises(sp.DecodeError) as expected:
        next(iter(loader))
    with pytest.raises(sp.DecodeError) as raised:
        pipeline.apply([tmp_path / "a.jpg"])
    assert raised.value.reason == expected.value.reason


def test_other_inputs_are_refused() -> None:
    pipeline = sp.Pipeline.from_dict({"version": 1}).map(*EVALUATION)
    with pytest.raises(sp.PlanError, match=r"takes a list of images"):
        pipeline.apply("photo.jpg")
    with pytest.raises(sp.PlanError, match="got no images"):
        pipeline.apply([])
    with pytest.raises(sp.PlanError, match=r"input 0 is float32 of shape \(4, 4, 3\)"):
        pipeline.apply([np.zeros((4, 4, 3), np.float32)])  # type: ignore[list-item]
    with pytest.raises(sp.PlanError, match="input 0 is int"):
        pipeline.apply([3])  # type: ignore[list-item]


def test_apply_takes_pillow_images_and_files() -> None:
    pixels = picture(1)
    evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(*EVALUATION)
    expected = evaluation.apply([pixels])["image"].tobytes()
    image = Image.fromarray(pixels)
    for given in (image, image.convert("RGBA"), io.BytesIO(encoded(pixels, "PNG"))):
        assert evaluation.apply([given])["image"].tobytes() == expected


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_apply_refuses_pillow_images_that_conversion_would_clip(mode: str) -> None:
    evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(*EVALUATION)
    with pytest.raises(sp.DecodeError, match=f"the image has mode {mode}"):
        evaluation.apply([Image.new(mode, (20, 20), 700)])


def test_apply_takes_files_whose_size_only_their_pixels_say() -> None:
    pixels = picture(1)
    evaluation = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(20), sp.Normalize())
    expected = evaluation.apply([pixels])["image"]
    assert expected.shape == (1, 3, 20, 28)
    assert evaluation.apply([encoded(pixels, "PNG")])["image"].tobytes() == expected.tobytes()
    with pytest.raises(sp.DecodeError, match="not an image") as caught:
        evaluation.apply([encoded(pixels, "PNG"), b"text"])
    assert caught.value.index == 1
    with pytest.raises(sp.PlanError, match="size isn't fixed"):
        evaluation.apply([encoded(pixels), encoded(picture(1, 40, 30))])


def test_a_mapping_has_the_images_of_each_field() -> None:
    low = [np.random.default_rng(seed).integers(0, 256, (12, 15, 3), np.uint8) for seed in range(3)]
    high = [each.repeat(4, 0).repeat(4, 1) for each in low]
    source = sp.Arrays(hr=np.stack(high), lr=np.stack(low))
    pipeline = sp.Pipeline(source).decode(images=("hr", "lr"), scale={"lr": 0.25}).map(sp.CenterCrop(24))
    with pipeline.batch(3).loader() as loader:
        wanted = {name: np.array(rows) for name, rows in loader.peek().items()}
    batch = pipeline.apply({"lr": low, "hr": high})
    assert batch.keys() == {"hr", "lr"}
    assert all((batch[name] == wanted[name]).all() for name in batch)
    views = (
        sp.Pipeline(source)
        .decode(images=("hr", "lr"))
        .map(sp.Views(a=[sp.CenterCrop(8)], b=[sp.CenterCrop(6)]))
    )
    assert views.apply({"hr": high, "lr": low}).keys() == {"a", "b", "a_lr", "b_lr"}
    with pytest.raises(sp.PlanError, match="all images of a record, but 'lr' isn't given"):
        pipeline.apply({"hr": high})
    with pytest.raises(sp.PlanError, match="'depth' is a depth: leave it out"):
        pipeline.apply({"hr": high, "depth": high})
