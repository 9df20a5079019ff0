"""``standpipe bench`` says what limits, and it is that."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from programs import output
from standpipe import _native
from standpipe.cli import main


def photos(folder: Path, suffix: str, side: int, count: int = 6) -> str:
    (folder / "a").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    for number in range(count):
        Image.fromarray(pixels).save(folder / f"a/{number}{suffix}")
    return str(folder)


@pytest.mark.parametrize(
    ("suffix", "says"),
    [
        # The second where another program has the processors.
        (".jpg", "its one worker (decodes and transforms|has a processor for at most)"),
        (".png", "Pillow decodes 100% of the rows"),
    ],
)
def test_what_limits(suffix: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One worker limits, as rows take long to make. Of two, one may be slow beside other programs."""
    sizes = ["--batch", "2", "--workers", "1", "--memory", "256MiB", "--dtype", "uint8", "--seconds", "0.5"]
    assert main(["bench", photos(tmp_path, suffix, 600), *sizes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] == "transform"
    assert re.search(says, " ".join([found["diagnosis"], *found["advice"]]))


def io_of(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What ``bench --io`` prints of photos in a folder."""
    arguments = ["--io", "--batch", "4", "--workers", "1", "--memory", "256MiB", "--seconds", "0.2", *more]
    assert main(["bench", str(folder), *arguments]) == 0
    return capsys.readouterr().out


def test_storage_and_decoding_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = json.loads(io_of(Path(photos(tmp_path, ".jpg", 600)), capsys, "--json"))
    assert figures["limit"].startswith("decoding: storage alone is ")
    assert figures["read_images_per_s"] > figures["decode_images_per_s"] > 0
    assert figures["read_mb_per_s"] > 0
    assert 0 < figures["read_p50_ms"] <= figures["read_p99_ms"] <= figures["read_slowest_ms"]
    assert (figures["read_failed"], figures["read_threads"]) == (0, 32)


def test_storage_and_decoding_apart_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(photos(tmp_path, ".jpg", 100))
    (folder / "a" / "9.jpg").mkdir()
    lines = io_of(folder, capsys, "--task", "eval", "--dtype", "uint8").splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line[2:18].strip() for line in lines[1:]] == [
        "reads alone",
        "a read takes",
        "storage",
        "decode alone",
        "both together",
        "limit",
    ]


@pytest.mark.parametrize(("batch", "limit"), [("32", "decoding alone is "), ("1", "too few reads at once")])
def test_slow_storage_is_the_limit(tmp_path: Path, batch: str, limit: str) -> None:
    folder = photos(tmp_path, ".jpg", 100, count=64)
    program = f"""
from standpipe.cli import main
more = ["--batch", {batch!r}, "--workers", "1", "--memory", "256MiB", "--seconds", "1", "--json"]
more += ["--dtype", "uint8"]
main(["bench", {folder!r}, "--io", *more])
main(["bench", {folder!r}, *more])
"""
    apart, together = map(json.loads, output(program, environment=at_each_open(folder, "80ms")).splitlines())
    assert apart["limit"].startswith(f"storage: {limit}")
    assert apart["read_p50_ms"] > 80
    assert apart["read_waited_share"] == 1
    assert together["limit"] == "read"


def at_each_open(folder: str, time: str) -> dict[str, str]:
    """An environment in which opening photos of this folder takes that long."""
    keys = [_native.fault_key(os.fsencode(path)) for path in Path(folder).glob("a/*")]
    return {"STANDPIPE_FAULTS": ";".join(f"read.open=delay:{time}@#{key}" for key in keys)}


def test_what_cant_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(photos(tmp_path, ".jpg", 16, count=2))
    for path in folder.glob("a/*"):
        path.unlink()
        path.symlink_to("nowhere.jpg")
    assert main(["bench", str(folder), "--io", "--seconds", "0.1"]) == 1
    assert "none of the files could be read: can't be opened: No such file" in capsys.readouterr().err


def test_what_isnt_asked_for_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path, ".jpg", 16, count=2)
    for wrong, says in (
        (["--seconds", "0"], "--seconds must be above 0"),
        (["--digest", "--io"], "--digest and --io can't be combined"),
    ):
        assert main(["bench", folder, *wrong]) == 1
        assert says in capsys.readouterr().err


def test_it_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = photos(tmp_path, ".jpg", 32), tmp_path / "report.html"
    assert main(["bench", folder, "--batch", "2", "--seconds", "0.1", "--report", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    facts = page.with_suffix(".json")
    assert not facts.exists()
    assert main(["bench", folder, "--batch", "2", "--seconds", "0.1", "--report", str(facts)]) == 0
    known = json.loads(facts.read_text(encoding="ascii"))
    assert known["now"]["stats"]["step"]["rows"] > 0
    capsys.readouterr()
    full = tmp_path / "full.html"
    full.symlink_to("/dev/full")
    facts.unlink()
    words = ["--batch", "2", "--seconds", "0.1", "--report", str(facts), "--report", str(full), "--json"]
    assert main(["bench", folder, *words]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["images_per_s"] > 0
    assert said.err == f"standpipe: can't write {full}: No space left on device\n"
    assert not facts.exists()
    taken = tmp_path / "taken.html"
    taken.mkdir()
    for nowhere, why in ((taken, "it is a folder"), (tmp_path / "none/report.html", "there is no folder")):
        assert main(["bench", folder, "--seconds", "60", "--report", str(nowhere)]) == 1
        assert why in capsys.readouterr().err
    for wrong in (["--report", "report.pdf"], ["--report", str(page), "--io"]):
        assert main(["bench", folder, *wrong]) == 1
        assert "report" in capsys.readouterr().err


def test_the_digest_of_an_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path, ".jpg", 40)

    def said(*more: str) -> str:
        assert main(["bench", folder, "--digest", "--batch", "2", "--memory", "256MiB", *more]) == 0
        return capsys.readouterr().out

    whole = said("--workers", "1")
    assert re.fullmatch(r"[0-9a-f]{64}\n", whole)
    found = json.loads(said("--workers", "2", "--json"))
    assert found == {"sha256": whole.strip(), "rows": 6, "steps": 3}
    assert said("--seed", "1") != whole
