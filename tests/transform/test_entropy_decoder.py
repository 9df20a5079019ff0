"""Standpipe's entropy decoder gives libjpeg-turbo's pixels and verdicts, and leaves doubtful files to it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from jpegs import Coding, encode, kinds, photo, saved
from model.pictures import transformed
from parity import CROP, SIZE_PX, damaged, delivered, small_photos
from reference import decoded, delivered as rows_of, explain_difference, in_order, listed
from standpipe import _native

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # Pillow's, about damaged metadata
    pytest.mark.skipif(
        not _native.has_entropy_decoder(),
        reason="built with the system's libjpeg-turbo, without its own headers",
    ),
]

DECODERS = ["", "libjpeg"]


@pytest.fixture(params=DECODERS, ids=["standpipe", "libjpeg"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STANDPIPE_DECODER", request.param)
    return str(request.param)


def test_every_kind_of_jpeg_has_pillows_pixels(decoder: str, tmp_path: Path) -> None:
    for number, size in enumerate([(97, 131), (33, 17), (9, 250)]):
        files = kinds(*size)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        pipeline = in_order(listed(folder, list(files.values()), times=4), *CROP, seed=11)
        rows = rows_of(pipeline)
        for position, row in enumerate(rows):
            name = list(files)[position % len(files)]
            expected = transformed(decoded(files[name]), CROP, Sample(11, 0, position))
            assert np.array_equal(row, expected), f"{name}: {explain_difference(row, expected)}"


def answers(
    folder: Path, files: list[bytes], choice: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[bytes], dict[int, str]]:
    """The rows and the reasons of refused files; rows of refused files are empty."""
    monkeypatch.setenv("STANDPIPE_DECODER", choice)
    rows, refused = delivered(in_order(listed(folder, files, times=3), *CROP, seed=5))
    return [b"" if number in refused else row.tobytes() for number, row in enumerate(rows)], refused


def test_damaged_files_have_one_verdict_and_the_same_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = small_photos(lambda number: Image.fromarray(photo(*SIZE_PX, seed=number)))
    jpegs = {name: data for name, data in photos.items() if name.startswith("JPEG")}
    files = [data for _, data in damaged(jpegs, 300, seed=8)]
    ours, libjpegs = (answers(tmp_path, files, choice, monkeypatch) for choice in DECODERS)
    assert ours == libjpegs
    delivered_rows, refused = ours
    assert any(delivered_rows)
    assert refused


def with_ones(data: bytes) -> bytes:
    """A JPEG in whose scan 64 more bits are one. No code has as many as 16 of them."""
    at = data.index(b"\xff\xda") + 14 + 200
    at += data[at - 1] == 0xFF
    return data[:at] + b"\xff\x00" * 8 + data[at:]


def test_what_is_doubtful_is_decoded_again_and_counted(decoder: str, tmp_path: Path) -> None:
    good = saved(photo(97, 131))
    files = [good, with_ones(good)]
    with in_order(listed(tmp_path, files), sp.Resize((97, 131))).loader(
        memory="128MiB", num_workers=1
    ) as loader:
        rows = [image for batch in loader for image in batch["image"].copy()]
        stats = loader.stats()
    for row, data in zip(rows, files, strict=True):
        assert np.array_equal(row, np.asarray(decoded(data)))
    assert stats.redecoded >= 1 if decoder == "" else stats.redecoded == 0


def separate_scans(seed: int) -> bytes:
    """A sequential JPEG with a scan for each component."""
    rgb = Image.fromarray(photo(40, 56, seed=seed))
    return encode(
        np.asarray(rgb.convert("YCbCr")), Coding(factors=((2, 2), (1, 1), (1, 1)), scans="separate")
    )


def scanned_twice() -> bytes:
    """The scans of two pictures in one file: those of the second add to the coefficients of the first."""
    first, second = separate_scans(1), separate_scans(2)
    return first[:-2] + second[second.index(b"\xff\xda") :]


def fill_byte_behind_a_scan() -> bytes:
    """A scan that is followed by a byte 0xFF in three bytes, which libjpeg-turbo takes for data."""
    data = separate_scans(1)
    end = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    return data[:end] + b"\xff\xff\0" + data[end:]


@pytest.mark.parametrize("odd", [scanned_twice, fill_byte_behind_a_scan], ids=lambda odd: odd.__name__)
def test_odd_scans_have_libjpegs_pixels_and_warnings(
    odd: Callable[[], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, damaged_rows = [], []
    pipeline = in_order(listed(tmp_path, [odd()]), sp.Resize((40, 56)))
    for choice in DECODERS:
        monkeypatch.setenv("STANDPIPE_DECODER", choice)
        with pipeline.loader(memory="128MiB", num_workers=1) as loader:
            rows.append(next(iter(loader))["image"].copy())
            damaged_rows.append(loader.stats().damaged > 0)
    assert np.array_equal(rows[0][0], np.asarray(decoded(odd())))
    assert np.array_equal(*rows)
    assert damaged_rows[0] == damaged_rows[1]


def test_explain_names_the_decoder(decoder: str, tmp_path: Path) -> None:
    text = in_order(listed(tmp_path, [saved(photo(20, 30))]), sp.CenterCrop(8)).plan().explain()
    assert ("with standpipe's entropy decoder" in " ".join(text.split())) == (decoder == "")


def test_an_unknown_decoder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDPIPE_DECODER", "turbo")
    pipeline = in_order(listed(tmp_path, [saved(photo(20, 30))]), sp.CenterCrop(8))
    with pytest.raises(sp.PlanError, match="STANDPIPE_DECODER must be unset or 'libjpeg', got 'turbo'"):
        pipeline.plan().explain()
