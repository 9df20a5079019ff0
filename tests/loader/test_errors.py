"""A sample that can't be delivered raises: what is wrong, with which file, the same whoever finds it."""

from __future__ import annotations

import io
import os
import pickle
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from forked import output
from jpegs import with_size, without_tables
from photos import encoded, picture, write_list
from standpipe.spec import UInt8Array

HEIGHT, WIDTH = 40, 56
GOOD = encoded(picture(0), quality=90)
SCAN = GOOD.index(b"\xff\xda") + 14  # where the first scan's entropy-coded bytes begin
PROGRESSIVE = encoded(picture(1), quality=90, progressive=True)


def whole_images(source: sp.FileList) -> sp.Pipeline:
    """Every image as it is, scaled to one size where it has another."""
    return sp.Pipeline(source).map(sp.Resize((HEIGHT, WIDTH)))


def loaded(pipeline: sp.Pipeline, **settings: object) -> list[UInt8Array]:
    """The images of one epoch."""
    with pipeline.loader(**{"memory": "64MiB", "num_workers": 2, **settings}) as loader:
        return [image.copy() for batch in loader for image in batch["image"]]


def error_of(pipeline: sp.Pipeline, **settings: object) -> sp.SampleError:
    with pytest.raises(sp.SampleError) as caught:
        loaded(pipeline, **settings)
    return caught.value


BAD: Mapping[str, tuple[bytes, str]] = {
    "one byte": (GOOD[:1], "not an image"),
    "cut in the header": (GOOD[:30], "truncated: JPEG ends after 30 bytes"),
    "cut before the scan": (GOOD[:SCAN], "truncated"),
    "cut in the scan": (GOOD[: len(GOOD) // 2], "truncated: JPEG ends after .* in row"),
    "cut in the last rows": (GOOD[: len(GOOD) * 9 // 10], "truncated"),
    "progressive, cut": (PROGRESSIVE[: len(PROGRESSIVE) // 2], r"truncated: .* in scan \d"),
    "text": ("Grüße\n".encode(), "not an image"),
    "zeros": (bytes(1000), "not an image"),
    "no quantisation tables": (without_tables(GOOD, 0xDB), "damaged JPEG"),
    "no scan": (GOOD[: SCAN - 14] + b"\xff\xd9", "JPEG"),
    "only markers": (b"\xff\xd8\xff\xd9", "JPEG"),
    "PNG, cut": (encoded(picture(2), "PNG")[:900], "truncated or damaged PNG: "),
    "PNG, damaged": (encoded(picture(2), "PNG")[:60] + bytes(900), "truncated or damaged PNG: "),
    "PNG signature": (
        encoded(picture(2), "PNG")[:8],
        r"truncated or damaged PNG: cannot identify image file \(tr",
    ),
    "WebP, cut by a byte": (encoded(picture(2), "WEBP")[:-1], "truncated or damaged WebP: could not create"),
    "BMP, cut": (encoded(picture(2), "BMP")[:900], "truncated or damaged BMP: image file is truncated"),
    "GIF, cut": (
        encoded(picture(2), "GIF")[:20],
        r"truncated or damaged GIF: cannot identify image file \(tr",
    ),
    "TIFF, cut by a byte": (encoded(picture(2), "TIFF")[:-1], "truncated or damaged TIFF: "),
    "TIFF, packed, cut by a byte": (
        encoded(picture(2), "TIFF", compression="tiff_lzw")[:-1],
        "truncated or damaged TIFF: ",
    ),
    "PPM, cut": (encoded(picture(2), "PPM")[:900], "truncated or damaged PPM: image file is truncated"),
    "PPM, cut in the header": (b"P6 4", "truncated or damaged PPM: ValueError: Reached EOF"),
    "RIFF, no WebP": (b"RIFF\x24\0\0\0WAVEfmt ", "not an image: starts with 52 49 46 46"),
}


# Pillow says so of a TIFF whose directory is cut, and then fails.
@pytest.mark.filterwarnings("ignore:(?s).*(Corrupt EXIF data|Truncated File Read):UserWarning")
@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD.keys())
def test_bad_files_raise_with_their_name(tmp_path: Path, content: bytes, says: str) -> None:
    source = write_list(tmp_path, {"good.jpg": GOOD, "bad.jpg": content, "also good.jpg": GOOD})
    pipeline = whole_images(source).batch(3)
    error = error_of(pipeline, num_workers=1)
    path = str(tmp_path / "bad.jpg")
    assert type(error) is sp.DecodeError
    assert (error.path, error.index, error.place, error.offset) == (path, 1, "transform", 0)
    assert error.reason
    assert str(error) == f"{error.reason} (transform, record 1, {path})"
    with pytest.raises(sp.DecodeError, match=says):
        raise error
    assert str(error_of(pipeline, num_workers=4)) == str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_budget_errors_go_between_processes() -> None:
    error = sp.BudgetError("too much", asked_bytes=3, budget_bytes=2, smallest_bytes=5)
    error.add_note("and more")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert (copy.asked_bytes, copy.budget_bytes, copy.smallest_bytes) == (3, 2, 5)


def prepare(path: Path, kind: str) -> None:
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link to nothing":
            path.symlink_to("nowhere")
        case "link to itself":
            path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("missing", "can't be opened: No such file"),
        ("folder", "is a directory"),
        ("pipe", "is not a regular file"),
        ("link to nothing", "No such file"),
        ("link to itself", "symbolic links"),
    ],
)
def test_what_is_no_readable_file_is_a_read_error(tmp_path: Path, kind: str, says: str) -> None:
    source = write_list(tmp_path, {"good.jpg": GOOD, "bad.jpg": None})
    prepare(tmp_path / "bad.jpg", kind)
    error = error_of(whole_images(source).batch(2))
    assert type(error) is sp.ReadError
    assert says in error.reason
    assert (error.path, error.index, error.place) == (str(tmp_path / "bad.jpg"), 1, "read")
    assert str(error) == f"{error.reason} (read, record 1, {error.path})"


def test_a_file_without_permission(tmp_path: Path) -> None:
    write_list(tmp_path, {"bad.jpg": GOOD})
    (tmp_path / "bad.jpg").chmod(0)
    text = output(f"""
loader = sp.Pipeline(sp.FileList({str(tmp_path / "list.txt")!r})).map(sp.CenterCrop(8)).batch(1).loader()
if os.geteuid() == 0:
    import logging  # that user may not find modules
    os.seteuid(65534)  # permissions don't bind root
try:
    next(iter(loader))
except sp.ReadError as error:
    print(error.reason)
""")
    assert text == "can't be opened: Permission denied\n"


def test_caps(tmp_path: Path) -> None:
    small, large = encoded(picture(1)), encoded(picture(0, 700, 700), progressive=True)
    jpeg, png = with_size(small, 41, 100), encoded(picture(0, 41, 100), "PNG")
    for content in (jpeg, png):
        limits = sp.DecodeLimits(max_pixels=4099)
        error = error_of(whole_images(write_list(tmp_path, [small, content])).decode(limits=limits).batch(2))
        assert error.reason == "too large: 100 × 41 pixels are above max_pixels=4099"
        limits = sp.DecodeLimits(max_pixels=4100)
        loaded(whole_images(write_list(tmp_path, [png])).decode(limits=limits).batch(1))

    source = whole_images(write_list(tmp_path, [small, large])).batch(2)
    error = error_of(source, large_image_memory="1MiB")
    assert error.reason.startswith("too large: needs ")
    assert "more than large_image_memory=1048576" in error.reason
    loaded(source, large_image_memory="8MiB")

    limits = sp.DecodeLimits(max_scans=2)
    error = error_of(source.decode(limits=limits))
    assert error.reason == "unsupported JPEG: more scans than max_scans=2"


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_large_picture_between_two_transforms_waits_for_the_side_arena(tmp_path: Path, kind: str) -> None:
    source = write_list(tmp_path, [encoded(picture(number, 40, 60), kind) for number in range(8)])
    pipeline = sp.Pipeline(source).map(sp.Resize(2000), sp.RandomResizedCrop(9)).batch(8)
    between = 2000 * 3000 * 3
    error = error_of(pipeline, large_image_memory=between)
    assert error.reason.startswith("too large: needs ")
    assert f"more than large_image_memory={between}" in error.reason
    with pipeline.loader(num_workers=4, memory="256MiB", large_image_memory=2 * between) as loader:
        assert len(next(iter(loader))["index"]) == 8
        stats = loader.stats()
    assert between < stats.side_peak_bytes <= 2 * between


def test_a_file_far_too_large_is_not_read(tmp_path: Path) -> None:
    source = write_list(tmp_path, {"large.jpg": GOOD})
    with (tmp_path / "large.jpg").open("ab") as file:
        file.truncate(1 << 36)
    error = error_of(whole_images(source).batch(1), large_image_memory="1MiB")
    assert type(error) is sp.ReadError
    assert "too large: 68719476736 encoded bytes" in error.reason


def test_a_file_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    source = write_list(tmp_path, [GOOD] * 4)
    with whole_images(source).batch(2).loader(memory="64MiB", num_workers=1) as loader:
        (tmp_path / "003.jpg").write_bytes(GOOD[:700])
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(sp.DecodeError, match="ends after 700 bytes") as caught:
            next(iterator)
        assert caught.value.index == 3


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_first_bad_row_in_order_is_the_one_reported(tmp_path: Path, seed: int | None) -> None:
    contents = {f"{i}.jpg": None if i % 3 else (b"" if i % 2 else GOOD) for i in range(24)}
    pipeline = whole_images(write_list(tmp_path, contents))
    pipeline = (pipeline if seed is None else pipeline.shuffle(seed=seed)).batch(12)
    for epoch in range(2):
        errors = set()
        for workers in (1, 2, 8):
            with pipeline.loader(memory="64MiB", num_workers=workers) as loader:
                loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
                with pytest.raises(sp.SampleError) as caught:
                    next(iter(loader))
                errors.add((type(caught.value), str(caught.value)))
                order = loader.plan.order.indices(epoch, 0, 12).tolist()
        assert len(errors) == 1
        assert caught.value.index == next(i for i in order if i % 6)


def test_batches_before_the_bad_one_come_first(tmp_path: Path) -> None:
    source = write_list(tmp_path, [GOOD, GOOD, GOOD, GOOD, b"", GOOD])
    with whole_images(source).batch(1).loader(memory="64MiB", num_workers=4, prefetch=5) as loader:
        iterator = iter(loader)
        assert [next(iterator)["index"].item() for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(sp.DecodeError):
            next(iterator)
        assert loader.state_dict()["consumed"] == 4


@pytest.mark.parametrize("bad", [0, 5])
def test_after_an_error_comes_the_next_epoch(tmp_path: Path, bad: int) -> None:
    source = write_list(tmp_path, [b"" if number == bad else GOOD for number in range(6)])
    with whole_images(source).batch(2).loader(memory="64MiB", num_workers=2) as loader:
        for epoch in range(3):
            assert loader.epoch == min(epoch, loader.epoch)
            with pytest.raises(sp.DecodeError):
                list(loader)
        assert loader.epoch == 2
        (tmp_path / f"{bad:03d}.jpg").write_bytes(GOOD)
        assert sum(len(batch["index"]) for batch in loader) == 6
        assert loader.epoch == 4


def test_errors_at_the_ends_of_epochs_use_up_no_slots(tmp_path: Path) -> None:
    pipeline = whole_images(write_list(tmp_path, [GOOD, GOOD, GOOD, b""])).batch(2)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, num_workers=1, prefetch=1)
    with pipeline.loader(memory=caught.value.smallest_bytes, num_workers=1, prefetch=1) as loader:
        for epoch in range(6):
            assert loader.epoch == max(epoch - 1, 0)
            iterator = iter(loader)
            assert next(iterator)["index"].tolist() == [0, 1]
            with pytest.raises(sp.DecodeError):
                next(iterator)


def test_after_an_error_next_tries_the_same_batch_again(tmp_path: Path) -> None:
    source = write_list(tmp_path, [GOOD, GOOD, b"", GOOD])
    with whole_images(source).batch(2).loader(memory="64MiB", num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        for _ in range(3):
            with pytest.raises(sp.DecodeError, match="empty file"):
                next(iterator)
        (tmp_path / "002.jpg").write_bytes(GOOD)
        assert next(iterator)["index"].tolist() == [2, 3]
        assert next(iterator, None) is None


def by_pillow(content: bytes) -> UInt8Array | str:
    """Pillow's pixels, or why it refuses."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError) as error:
        return str(error)


def check_like_pillow(folder: Path, contents: list[bytes]) -> int:
    """Compare file by file, pixels and refusals; how many Pillow takes."""
    pipeline = whole_images(write_list(folder, contents)).batch(1)
    taken = 0
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        for number, content in enumerate(contents):
            expected = by_pillow(content)
            loader.load_state_dict({**loader.state_dict(), "epoch": 0, "consumed": number})
            if isinstance(expected, np.ndarray):
                taken += 1
                assert np.array_equal(next(iter(loader))["image"][0], expected), f"file {number}"
            elif not expected.startswith("broken data stream"):  # a wrong marker after the last row's bits
                with pytest.raises(sp.DecodeError):
                    next(iter(loader))
    return taken


@pytest.mark.parametrize("data", [GOOD, PROGRESSIVE], ids=["baseline", "progressive"])
def test_the_end_of_a_file_is_judged_as_pillow_does(tmp_path: Path, data: bytes) -> None:
    tails = [
        b"",
        b"\0",
        bytes(100),
        b"\xff",
        b"\xff\xd9",
        b"garbage",
        b"\xff" * 40,
        GOOD,
        np.random.default_rng(0).bytes(500),
    ]
    contents = [data[: len(data) - cut] + tail for cut in (0, 1, 2, 3, 4, 9, 60) for tail in tails]
    assert check_like_pillow(tmp_path, contents) >= len(tails)


def damaged(data: bytes, seed: int) -> bytes:
    """The file with one to four bytes of its scans changed."""
    out, draw = bytearray(data), random.Random(seed)
    for _ in range(draw.randint(1, 4)):
        out[draw.randrange(SCAN, len(data))] = draw.randrange(256)
    return bytes(out)


@pytest.mark.parametrize("data", [GOOD, PROGRESSIVE], ids=["baseline", "progressive"])
def test_damage_inside_a_scan_gives_pillows_pixels(tmp_path: Path, data: bytes) -> None:
    assert check_like_pillow(tmp_path, [damaged(data, seed) for seed in range(60)]) >= 20


def strays() -> Iterator[bytes]:
    """JPEGs that lack what an earlier one in the same thread had."""
    for options in ({}, {"optimize": True}, {"progressive": True}):
        data = encoded(picture(7), quality=50, **options)
        yield without_tables(data, 0xC4)
        yield without_tables(data, 0xDB)


@pytest.mark.parametrize("stray", list(strays()), ids=range(6))
def test_nothing_of_an_earlier_image_gets_into_the_next(tmp_path: Path, stray: bytes) -> None:
    expected = by_pillow(stray)
    pipeline = whole_images(write_list(tmp_path, [GOOD, PROGRESSIVE, GOOD, stray])).batch(4)
    if isinstance(expected, str):
        assert error_of(pipeline, num_workers=1).index == 3
    else:
        assert np.array_equal(loaded(pipeline, num_workers=1)[3], expected)
