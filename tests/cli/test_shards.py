"""Commands that take images take tar shards too: by a pattern, or a folder that holds only shards."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import standpipe as sp
from photos import encoded, picture
from standpipe.cli import main
from standpipe.source.at_path import source_at
from tars import shard

PHOTOS = 12
SMALL = ["--batch", "4", "--memory", "256MiB", "--dtype", "uint8"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with photos and, in several shards, the same photos in source order."""
    monkeypatch.chdir(tmp_path)
    for number in range(PHOTOS):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(number, 240, 320)))
    sp.pack_shards(sp.ImageFolder("photos"), "shards", shard_size="48KiB", order="source")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("path", ["shards", "shards/shard-{000000..000002}.tar", "shards/*.tar"])
def test_shards_and_files_have_the_same_epoch(
    here: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(here.glob("shards/*.tar"))) == 3
    files = said(capsys, "bench", "photos", "--digest", *SMALL)
    assert said(capsys, "bench", path, "--digest", "--workers", "2", *SMALL) == files


def test_each_command_takes_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        json.loads(said(capsys, "bench", "shards", "--seconds", "0.1", "--json", *SMALL))["images_per_s"] > 0
    )
    io = json.loads(said(capsys, "bench", "shards", "--io", "--seconds", "0.1", "--json", *SMALL))
    assert io["decode_images_per_s"] > 0
    assert "TarShards(" in said(capsys, "explain", "shards", *SMALL)
    assert "every row once" in said(capsys, "audit", "shards", "--batch", "2", "--ranks", "2")
    assert "12 records" in said(capsys, "index", "shards")
    assert "right: 12 records" in said(capsys, "index", "shards", "--verify")
    assert "bad: 0" in said(capsys, "scan", "shards/*.tar")
    assert "1406 ×" in said(capsys, "show", "shards", "--output", "sheet.png", "--images", "2")
    found = json.loads(said(capsys, "doctor", "shards", "--seconds", "0.5", "--json"))
    assert found["images"] == PHOTOS
    assert not any("decode" in finding["title"] for finding in found["findings"])


def test_a_bad_record_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "photos/cat/00.jpg").write_bytes(b"no image at all")
    sp.pack_shards(sp.ImageFolder("photos"), "damaged", order="source")
    assert "    shard-000000.tar: 000000000.jpg: " in said(capsys, "scan", "damaged", code=1)


def test_records_of_several_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mask = encoded(picture(0)[..., 0], "PNG")
    files = {
        "0.image.jpg": encoded(picture(0)),
        "0.mask.png": mask,
        "1.image.jpg": b"",
        "1.mask.png": mask[:90],
    }
    shard(here / "masks.tar", files.items())
    lines = said(capsys, "scan", "masks.tar", "--output", "bad.jsonl", code=1).splitlines()
    assert lines[0].startswith("4 files, ")
    assert "    masks.tar: 1.image.jpg: empty file" in lines
    assert any(line.startswith("    masks.tar: 1.image.jpg: mask: truncated") for line in lines)
    assert "  2 records" in said(capsys, "index", "masks.tar")
    assert main(["bench", "masks.tar", "--io", "--seconds", "0.1", *SMALL]) == 1
    assert "bench --io needs records of one image" in capsys.readouterr().err


def test_what_a_path_is(here: Path) -> None:
    Path("list.txt").write_text("photos/cat/00.jpg 1\n")
    shards = ("shards", "a-{0..9}.tar", "b.tar.gz", "a-*.idx", "shards/*.tra", "a-{0..9}.tr")
    assert {type(source_at(path)) for path in shards} == {sp.TarShards}
    assert isinstance(source_at("photos"), sp.ImageFolder)
    assert isinstance(source_at("list.txt"), sp.FileList)
    Path("shards/shard-000000.tar.idx").touch()
    assert source_at("shards").open().num_records == PHOTOS
    Path("shards/README").touch()
    assert isinstance(source_at("shards"), sp.TarShards)
    Path("shards/cat").mkdir()
    assert isinstance(source_at("shards"), sp.TarShards)
    Path("shards/cat/0.jpg").touch()
    with pytest.raises(sp.PlanError, match="shards has tar shards and images; name files of one kind"):
        source_at("shards")
    Path("folder.tar").mkdir()
    assert isinstance(source_at("folder.tar"), sp.ImageFolder)


def test_compressed_shards_say_what_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import gzip

    Path("b.tar.gz").write_bytes(gzip.compress(Path("shards/shard-000000.tar").read_bytes()))
    assert main(["explain", os.fspath("b.tar.gz")]) == 1
    assert "gunzip" in capsys.readouterr().err
