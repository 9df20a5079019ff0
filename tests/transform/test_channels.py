"""Pictures of one to four channels: each channel as that of an RGB picture, and decoded as Pillow converts them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

import standpipe as sp
from every_format import FILES
from jpegs import kinds, photo, saved
from reference import delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths

KINDS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
SIZES = ((1, 1), (1, 7), (9, 1), (33, 48))
FILL = (7, 100, 255, 31)
MOVES = [
    *(
        (sp.RandomResizedCrop((21, 18), interpolation=name), sp.RandomHorizontalFlip())
        for name in ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos", "random")
    ),
    (sp.Resize(28, max_size=60), sp.CenterCrop(26)),
    (sp.Resize((50, 17), interpolation="bicubic"),),
    (sp.RandomResize(20, 40), sp.CenterCrop((31, 12))),
    (sp.CenterCrop((40, 66)), sp.RandomVerticalFlip()),
    *((sp.PadImage((1, 9, 4, 2), 200, mode),) for mode in ("constant", "edge", "reflect", "symmetric")),
    (sp.RandomCrop((20, 31), 4, True, padding_mode="reflect"),),
    *((sp.RandomRotation(40, name, fill=9), sp.CenterCrop(16)) for name in ("nearest", "bilinear")),
    (sp.RandomAffine(30, (0.2, 0.1), (0.5, 2), (-9, 9, -5, 5), "bilinear", 3), sp.RandomHorizontalFlip()),
    (sp.Resize((30, 24)), sp.RandomPerspective(0.7, 1.0), sp.Resize((14, 15))),
    (sp.Resize((30, 24)), sp.GaussianBlur(5), sp.PillowGaussianBlur((0.3, 2.0))),
    (sp.Resize((30, 24)), sp.RandomErasing(1.0, value=77)),
    (sp.Resize((30, 24)), sp.ToDtype("float32", scale=True), sp.RandomErasing(1.0, value=0.25)),
    (sp.Resize((30, 24)), sp.Normalize((0.4,), (0.3,)), sp.ToDtype("float16")),
    (sp.Resize((30, 24)), sp.Normalize((0.4,), (0.3,)), sp.ToLayout("NHWC")),
    (sp.Resize((30, 24)), sp.ToLayout("NCHW")),
]


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def rows_of(images: UInt8Array, *transforms: Any, simd: str | None = None) -> Any:
    return np.stack(delivered(in_order(sp.Arrays(image=images), *transforms, seed=5), simd=simd))


@pytest.mark.parametrize("transforms", MOVES, ids=repr)
def test_each_channel_is_that_of_an_rgb_picture(transforms: tuple[Any, ...]) -> None:
    planar = any(isinstance(each, sp.Normalize | sp.ToDtype) for each in transforms)
    nhwc = any(isinstance(each, sp.ToLayout) and each.layout == "NHWC" for each in transforms)
    planar = (planar or sp.ToLayout("NCHW") in transforms) and not nhwc
    axis = 1 if planar else 3
    for size in SIZES:
        images = noise(1, 6, *size, 4)
        of_rgb = [rows_of(np.repeat(images[..., c : c + 1], 3, axis=3), *transforms) for c in range(4)]
        for channels in (1, 2, 4):
            rows = rows_of(images[..., :channels].copy(), *transforms)
            wanted = np.concatenate([np.take(each, [0], axis) for each in of_rgb[:channels]], axis)
            assert rows.dtype == wanted.dtype
            assert np.array_equal(rows, wanted), (size, channels)
        assert np.array_equal(rows_of(images[..., 0].copy(), *transforms), np.take(of_rgb[0], [0], axis))


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("channels", KINDS)
def test_every_instruction_set_gives_the_same_channels(channels: int, simd: str) -> None:
    images = noise(2, 12, 61, 47, channels)
    for transforms in ((sp.RandomResizedCrop(24), sp.Normalize((0.5,), (0.2,))), (sp.RandomResizedCrop(90),)):
        assert np.array_equal(
            rows_of(images, *transforms, simd=simd), rows_of(images, *transforms, simd="scalar")
        )


@pytest.mark.parametrize("channels", KINDS)
def test_resized_bands_are_pillows(channels: int) -> None:
    for size in SIZES:
        images = noise(3, 2, *size, channels)
        rows = rows_of(images, sp.Resize((13, 29), interpolation="bicubic"))
        for image, row in zip(images, rows, strict=True):
            bands = [Image.fromarray(image[..., c]).resize((29, 13), 3) for c in range(channels)]
            assert explain_difference(row, np.stack(bands, axis=2)) == ""


@pytest.mark.parametrize("channels", KINDS)
def test_colours_of_padding_and_erasing_have_a_level_for_each_channel(channels: int) -> None:
    images = noise(4, 2, 5, 6, channels)
    (row, _) = rows_of(images, sp.PadImage(1, FILL[:channels]))
    assert row[0, 0].tolist() == list(FILL[:channels])
    erase = sp.RandomErasing(1.0, (0.3, 0.3), value=FILL[:channels])
    changed = rows_of(images, erase)
    where = (changed != images).any(axis=3)
    assert where.sum() > 0
    assert (changed[where] == FILL[:channels]).all()


GREYS = [
    (sp.RandomInvert(1.0), ImageOps.invert),
    (sp.RandomPosterize(3, 1.0), lambda image: ImageOps.posterize(image, 3)),
    (sp.RandomSolarize(90, 1.0), lambda image: ImageOps.solarize(image, 90)),
    (sp.RandomAutocontrast(1.0), ImageOps.autocontrast),
    (sp.RandomEqualize(1.0), ImageOps.equalize),
    (sp.RandomAdjustSharpness(2.5, 1.0), lambda image: ImageEnhance.Sharpness(image).enhance(2.5)),
    (sp.ColorJitter(brightness=(0.4, 0.4)), lambda image: ImageEnhance.Brightness(image).enhance(0.4)),
    (sp.ColorJitter(contrast=(1.7, 1.7)), lambda image: ImageEnhance.Contrast(image).enhance(1.7)),
    (sp.ColorJitter(saturation=(3, 3), hue=(0.2, 0.2)), lambda image: image),
    (sp.RandomGrayscale(1.0), lambda image: image),
    (sp.Grayscale(1), lambda image: image),
    (sp.PillowGaussianBlur(1.5), lambda image: image.filter(ImageFilter.GaussianBlur(1.5))),
]


@pytest.mark.parametrize(("transform", "by_pillow"), GREYS, ids=lambda each: type(each).__name__)
def test_colours_of_grey_pictures_are_pillows(transform: Any, by_pillow: Any) -> None:
    for size in SIZES:
        images = np.stack([photo(*size, channels=1, seed=seed) for seed in range(3)])
        for image, row in zip(images, rows_of(images, transform), strict=True):
            assert np.array_equal(row[..., 0], np.asarray(by_pillow(Image.fromarray(image[..., 0])))), size


@pytest.mark.parametrize(
    "policy", [sp.RandAugment(), sp.TrivialAugmentWide(), sp.AutoAugment(), sp.ThreeAugment()], ids=repr
)
def test_policies_of_grey_pictures_are_those_of_three_equal_channels(policy: Any) -> None:
    images = np.stack([photo(24, 31, channels=1, seed=seed) for seed in range(60)])
    rows = rows_of(images, policy)
    wanted = rows_of(np.repeat(images, 3, axis=3), policy)[..., :1]
    assert (rows == wanted).mean() > 0.999


def test_grayscale_leaves_one_channel() -> None:
    images = noise(6, 3, 20, 30, 3)
    after = (
        sp.Grayscale(),
        sp.RandomRotation(30, "bilinear"),
        sp.RandomInvert(1.0),
        sp.Resize(15),
        sp.Normalize((0.5,), (0.5,)),
    )
    greys = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    assert np.array_equal(rows_of(images, sp.Grayscale())[..., 0], greys)
    assert np.array_equal(rows_of(images, *after), rows_of(greys, *after[1:]))
    assert np.array_equal(rows_of(images, sp.Grayscale(3)), np.repeat(greys[..., None], 3, axis=3))


@pytest.mark.parametrize(
    ("transforms", "channels", "says"),
    [
        ([sp.ColorJitter(0.4)], 4, r"ColorJitter\(.*takes images of 1 or 3 channels, but these are images of 4.*RGBA"),
        ([sp.RandAugment()], 2, r"RandAugment\(.*1 or 3 channels.*LA"),
        ([sp.Grayscale()], 4, r"Grayscale\(.*1 or 3 channels.*RGBA"),
        ([sp.Grayscale(3)], 1, "one channel, which are grey already"),
        ([sp.Grayscale(2)], 3, "1 or 3"),
        ([sp.RandomApply([sp.Grayscale(1)])], 3, "RandomApply can't contain Grayscale"),
        ([sp.RandomApply([sp.RandomInvert()])], 4, "RandomInvert.*1 or 3 channels"),
        ([sp.Normalize()], 1, r"Normalize.*of 1 channel \(L\): mean must have 1 number, such as mean=\(0.485,\)"),
        ([sp.Normalize((0.5, 0.5), (1, 1, 1))], 3, "std must be as many numbers as mean has"),
        ([sp.Grayscale(), sp.PadImage(1, (1, 2, 3))], 3, "fill must have 1 number"),
        ([sp.CenterCrop(4)], 5, r"\(6, 7, 5\) uint8: .* with 1 to 4 channels"),
    ],
)  # fmt: skip
def test_what_a_kind_cannot_do_is_refused(transforms: list[Any], channels: int, says: str) -> None:
    source = sp.Arrays(image=noise(7, 2, 6, 7, channels))
    with pytest.raises(sp.PlanError, match=says):
        in_order(source, *transforms).plan()


def by_pillow(data: bytes, channels: str) -> UInt8Array:
    image = Image.open(io.BytesIO(data))
    if channels == "luma":
        image.draft("L", image.size)
        channels = "L"
    made = np.asarray(image.convert(channels))
    return made[..., None] if made.ndim == 2 else made


@pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning")
@pytest.mark.parametrize("executor", ["thread", pytest.param("inline", marks=pytest.mark.long)])
@pytest.mark.parametrize("channels", ["L", "luma", "RGBA"])
def test_decoded_channels_are_pillows(
    channels: Any, executor: Literal["thread", "inline"], tmp_path: Path
) -> None:
    pixel = photo(1, 1)
    files = {**kinds(41, 53), **FILES, "one pixel": saved(pixel), "a column": saved(photo(40, 1))}
    files |= {"a row": saved(photo(1, 40)), "one grey pixel": saved(pixel[..., :1])}
    if channels != "RGBA":
        del files["TIFF, LAB"]  # Pillow refuses it
    source = listed(tmp_path, list(files.values()), suffix=".img")
    pipeline = in_order(source, sp.CenterCrop((60, 70))).decode(channels=channels)
    wrong = []
    for (name, data), row in zip(files.items(), delivered(pipeline, executor=executor), strict=True):
        (wanted,) = rows_of(by_pillow(data, channels)[None], sp.CenterCrop((60, 70)))
        if difference := explain_difference(row, wanted):
            wrong.append(f"{name}: {difference}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("channels", ["L", "luma", "RGBA"])
def test_crops_of_decoded_channels_are_those_of_the_whole_picture(channels: Any, tmp_path: Path) -> None:
    files = [*kinds(41, 53).values()]
    transforms = (sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip())
    rows = delivered(in_order(listed(tmp_path, files), *transforms, seed=5).decode(channels=channels))
    wanted = rows_of(np.stack([by_pillow(data, channels) for data in files]), *transforms)
    assert [index for index, row in enumerate(rows) if not np.array_equal(row, wanted[index])] == []


def test_luma_is_decoded_at_a_fraction_of_the_size_too(tmp_path: Path) -> None:
    data = saved(photo(256, 320))
    source = listed(tmp_path, [data])
    (row,) = delivered(in_order(source, sp.Resize((32, 40))).decode("fast", channels="luma"))
    image = Image.open(io.BytesIO(data))
    image.draft("L", (40, 32))
    assert np.array_equal(row[..., 0], np.asarray(image))


@pytest.mark.parametrize("executor", ["thread", "inline"])
@pytest.mark.parametrize(("first", "kind"), [("grey", 1), ("RGB", 3), ("RGBA", 4), ("grey and alpha", 2)])
def test_as_stored_takes_the_first_records_kind(
    first: str, kind: int, executor: Literal["thread", "inline"], tmp_path: Path
) -> None:
    names = (
        "grey",
        "RGB",
        "RGBA",
        "grey and alpha",
        "palette",
        "palette with alpha",
        "grey with a transparent value",
    )
    files = [FILES[f"PNG, {first}"], *(FILES[f"PNG, {name}"] for name in names)]
    jpegs = kinds(40, 53)
    files += [jpegs["grey"], jpegs["4:2:0"], jpegs["CMYK"]]
    counts = [kind, 1, 3, 4, 2, 3, 4, 2, 1, 3, 3]
    source = listed(tmp_path, files, suffix=".img")
    pipeline = sp.Pipeline(source).decode(channels="as_stored").map(sp.CenterCrop(30)).batch(1)
    pipeline = pipeline.on_error(sp.Replace(at_most=100))
    with pipeline.loader(executor=executor, num_workers=1) as loader:
        assert {batch["image"].shape for batch in loader} == {(1, 30, 30, kind)}
        bad = {each.index: str(each) for each in loader.bad_samples}
    assert set(bad) == {index for index, count in enumerate(counts) if count != kind}
    for index, text in bad.items():
        assert f"the image is {KINDS[counts[index]]}, but the first record is {KINDS[kind]}" in text


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"not one", "not an image: starts with 6e 6f"),
        # A WebP's canvas is allocated when Pillow opens the file.
        (b"RIFF\x1e\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0\xfe\x3f\0\xfe\x3f\0", "too large: 16383 × 16383 pixels"),
        (FILES["PNG, RGB"][:20], "truncated or damaged PNG"),
    ],
    ids=["text", "WebP", "PNG"],
)
def test_as_stored_says_why_the_first_record_has_no_kind(first: bytes, said: str, tmp_path: Path) -> None:
    source = listed(tmp_path, [first, FILES["PNG, RGB"]], suffix=".img")
    with pytest.raises(sp.PlanError, match=f"takes the channels of the first record, .*: {said}"):
        sp.Pipeline(source).decode(channels="as_stored").map(sp.CenterCrop(8)).batch(1).plan()


def test_datasets_of_pillow_images_are_converted() -> None:
    images = [Image.fromarray(photo(9, 11, seed=seed)) for seed in range(3)]
    for channels in ("L", "RGBA"):
        pipeline = (
            sp.Pipeline(sp.MapSource(images)).decode(channels=channels).map(sp.CenterCrop((9, 11))).batch(3)
        )  # type: ignore[arg-type]
        with pipeline.loader(executor="inline") as loader:
            got = loader.peek()["image"]
        wanted = np.stack([np.asarray(image.convert(channels)) for image in images])
        assert np.array_equal(got, wanted.reshape(got.shape))


def test_datasets_of_grey_arrays_get_an_axis_of_channels() -> None:
    images, transforms = noise(8, 4, 9, 11), (sp.RandomResizedCrop(5), sp.Normalize((0.5,), (0.5,)))
    pipeline = sp.Pipeline(sp.MapSource(list(images)), seed=5).map(*transforms).batch(4)
    with pipeline.loader(executor="inline") as loader:
        got = loader.peek()["image"]
    assert got.shape == (4, 1, 5, 5)
    assert np.array_equal(got, rows_of(images, *transforms))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("channels", ["L", "RGB"])
def test_caches_keep_any_number_of_channels(channels: Any, after: int, tmp_path: Path) -> None:
    source = listed(tmp_path, [saved(photo(40, 53, seed=seed)) for seed in range(4)])
    transforms = [
        sp.Resize((20, 22)),
        sp.Grayscale(),
        sp.RandomHorizontalFlip(),
        sp.Normalize((0.5,), (0.5,)),
    ]
    plain = sp.Pipeline(source).decode(channels=channels)
    cached = plain.map(*transforms[:after]).cache(sp.Cache(f"channels-{channels}-{after}", memory="8MiB"))
    (wanted,) = [batch["image"] for batch in plain.map(*transforms).batch(4).loader(num_workers=1)]
    with cached.map(*transforms[after:]).batch(4).loader(num_workers=1) as loader:
        for epoch in range(2):
            loader.load_state_dict({**loader.state_dict(), "epoch": 0})
            assert np.array_equal(next(iter(loader))["image"], wanted), epoch


def test_views_and_apply_take_any_number_of_channels(tmp_path: Path) -> None:
    images = noise(9, 3, 20, 24, 2)
    views = sp.Views(
        a=[sp.CenterCrop(12)], b=sp.Repeat(2, [sp.Resize((8, 9)), sp.Normalize((0.5, 0.1), (0.5, 1))])
    )
    with sp.Pipeline(sp.Arrays(image=images)).map(views).batch(3).loader() as loader:
        batch = loader.peek()
    assert (batch["a"].shape, batch["b"].shape) == ((3, 12, 12, 2), (3, 2, 2, 8, 9))
    grey = sp.Pipeline(sp.Arrays(image=images)).map(sp.CenterCrop(12)).batch(3).decode(channels="L")
    data = saved(photo(30, 31))
    assert np.array_equal(grey.apply([data])["image"], rows_of(by_pillow(data, "L")[None], sp.CenterCrop(12)))
    assert np.array_equal(grey.apply(list(images))["image"], batch["a"])


def test_recipes_keep_the_channels(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(listed(tmp_path, [saved(photo(9, 9))])).decode(channels="luma").batch(1)
    assert sp.Pipeline.from_dict(pipeline.to_dict(), source=pipeline.source).decoding.channels == "luma"
    assert "channels luma" in pipeline.map(sp.CenterCrop(4)).plan().explain()
    with pytest.raises(sp.PlanError, match="channels must be one of 'RGB', 'L', 'luma', 'RGBA', 'as_stored'"):
        pipeline.decode(channels="grey")  # type: ignore[arg-type]


def test_channels_of_arrays_are_not_chosen_by_decode() -> None:
    pipeline = sp.Pipeline(sp.Arrays(image=noise(7, 2, 6, 7, 3))).decode(channels="L").map(sp.CenterCrop(4))
    with pytest.raises(sp.PlanError, match=r"decode\(channels='L'\) is for encoded images"):
        pipeline.batch(2).plan()
