"""``standpipe doctor PATH``: a folder of images, judged by tables and by the real command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from standpipe.cli import main
from standpipe.doctor import Data, Host, Speeds, judge_data
from standpipe.doctor.data import Picture
from standpipe.reports import FileFinding

HOST = Host(cores=8, memory_free=24 << 30, memory=32 << 30, shm_free=8 << 30, shm=16 << 30)
PHOTO = Picture(width_px=500, height_px=375, bytes=110_000, format="JPEG")
SPEEDS = Speeds(reads=9000.0, decode=3000.0, both=2900.0, workers=8, p50_s=1e-4, p99_s=1e-3, waited=0.9)
HEALTHY = Data(
    path="photos",
    images=1_281_167,
    pictures=(PHOTO,) * 20,
    unreadable=0,
    largest_folder=("photos/cat", 1300),
    speeds=SPEEDS,
    cpus=8,
)
SLOW = replace(SPEEDS, reads=500.0, both=480.0)


@pytest.mark.parametrize(
    ("host", "data", "codes"),
    [
        ({}, {}, []),
        ({}, {"unreadable": 1}, ["problem bad-files"]),
        ({}, {"speeds": replace(SPEEDS, failed=1)}, ["problem bad-files"]),
        ({}, {"pictures": (replace(PHOTO, width_px=2048, height_px=1536),)}, ["warning images-large"]),
        ({}, {"pictures": (replace(PHOTO, width_px=4000, height_px=256),)}, []),
        ({}, {"pictures": (PHOTO, replace(PHOTO, progressive=True))}, ["warning jpegs-progressive"]),
        ({}, {"pictures": (PHOTO, replace(PHOTO, format="PNG"))}, ["note not-jpeg"]),
        ({}, {"speeds": SLOW}, ["warning storage-slow"]),
        ({}, {"speeds": SLOW, "pictures": (replace(PHOTO, bytes=9000),)}, ["warning small-files"]),
        ({}, {"speeds": replace(SLOW, waited=0.1)}, []),  # they came from the page cache
        ({}, {"largest_folder": ("photos", 1_281_167)}, ["note folder-full"]),
        ({"shm_free": 64 << 20}, {}, ["warning shm-small"]),
        ({"cores": 2}, {}, ["note cpu-quota"]),
    ],
)
def test_judgements(host: dict[str, Any], data: dict[str, Any], codes: list[str]) -> None:
    found = judge_data(replace(HOST, **host), replace(HEALTHY, **data))
    assert [f"{finding.severity.value} {finding.code}" for finding in found] == codes


BAD = FileFinding(index=1, path="photos/cat/1.jpg", kind="truncated", level="bad", text="ends early")


@pytest.mark.parametrize(
    ("data", "evidence", "advice"),
    [
        (
            {"images": 3, "bad": (BAD,)},
            "of 3 images, 1 can't be decoded: cat/1.jpg: truncated",
            "at_most=0.334",
        ),
        ({"unreadable": 1}, "of 21 images looked at, 1 has no header that Pillow knows", "at_most=0.048"),
        ({"images": 3, "bad": (), "speeds": replace(SPEEDS, failed=2)}, "2 reads failed", "at_most=0.001"),
    ],
)
def test_advice_on_bad_files_allows_those_that_were_found(
    data: dict[str, Any], evidence: str, advice: str
) -> None:
    (found,) = judge_data(HOST, replace(HEALTHY, **data))
    assert found.evidence == (evidence,)
    assert advice in found.standpipe


def test_a_header_that_pillow_does_not_know_is_no_finding_where_all_files_were_decoded() -> None:
    assert judge_data(HOST, replace(HEALTHY, unreadable=1, bad=())) == []


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty large images, a quarter of them progressive, and one file that is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    colours = np.random.default_rng(3).integers(0, 256, (40, 3, 3, 3), np.uint8)
    for number, colour in enumerate(colours):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(colour).resize((800, 640)).save(path, progressive=number % 4 == 0)
    (folder / "cat" / "none.jpg").write_bytes(b"no image")
    return folder


def test_a_folder(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(photos), "--seconds", "0.3", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    codes = {finding["code"] for finding in told["findings"]}
    assert {"bad-files", "images-large", "jpegs-progressive"} <= codes
    assert (told["images"], told["short_px"], told["progressive"]) == (41, 640, 0.25)
    assert told["largest_folder"] == {"path": str(photos / "cat"), "files": 21}
    assert min(told["read_images_per_s"], told["decode_images_per_s"], told["images_per_s"]) > 0


def test_a_truncated_file_is_found(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its header is whole, and no crop may reach its end."""
    (photos / "cat" / "none.jpg").unlink()
    path = photos / "dog" / "7.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    assert main(["doctor", str(photos), "--seconds", "0.3", "--json"]) == 1
    (bad,) = (each for each in json.loads(capsys.readouterr().out)["findings"] if each["code"] == "bad-files")
    assert bad["evidence"] == ["of 40 images, 1 can't be decoded: dog/7.jpg: truncated"]


def test_what_a_person_reads(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cat" / "none.jpg").unlink()
    assert main(["doctor", str(photos), "--seconds", "0.3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "  a file" in lines[1]
    assert any(line.startswith("warning  jpegs-progressive  ") for line in lines)
    assert [line for line in lines if len(line) > 80] == []


def test_more_bad_files_than_good_ones(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (photos / "cat").iterdir():
        path.write_bytes(b"no image")
    for path in list((photos / "dog").iterdir())[1:]:
        path.unlink()
    assert main(["doctor", str(photos), "--seconds", "0.3"]) == 2
    assert capsys.readouterr().err == (
        f"standpipe: more than 50% of these files can't be decoded: standpipe scan {photos} says which, and what is "
        "wrong with each\n"
    )


def test_arguments_are_a_scripts(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(photos), "--", "--lr", "1"]) == 2
    assert "arguments behind -- are for a script" in capsys.readouterr().err


@pytest.mark.parametrize("images", [1, 3])
def test_few_images(photos: Path, images: int, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (*sorted((photos / "cat").iterdir())[images:], *(photos / "dog").iterdir()):
        path.unlink()
    (photos / "dog").rmdir()
    assert main(["doctor", str(photos), "--seconds", "0.3", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["decode_images_per_s"] >= told["images_per_s"]
    assert main(["doctor", str(photos), "--seconds", "0.3"]) == 1
    assert f": {images} image{'s' * (images > 1)}, about" in capsys.readouterr().out
