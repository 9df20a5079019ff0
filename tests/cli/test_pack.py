from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from standpipe.cli import main


def test_images_are_packed_checked_and_restored(two_photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "photos", "out"]) == 0
    name, line = capsys.readouterr().out.splitlines()
    assert name == "out"
    assert re.fullmatch(r"  2 records in 1 shard, 10\.0KiB; \d+\.\d s", line)
    assert main(["pack", "photos", "out"]) == 0
    assert "2 records in 1 shard, 1 of them from before" in capsys.readouterr().out
    assert main(["verify", "out"]) == 0
    assert "right: 6 members in 1 shard" in capsys.readouterr().out
    assert main(["unpack", "out", "restored", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 2
    for path in ("cat/0.jpg", "dog/0.jpg"):
        assert (Path("restored") / path).read_bytes() == (two_photos / path).read_bytes()


def test_damage_is_an_exit_code(two_photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "photos", "out", "--order", "source", "--workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == 1
    with Path("out/shard-000000.tar").open("r+b") as shard:
        shard.seek(512)
        shard.write(b"?")
    assert main(["verify", "out"]) == 1
    assert "differs: shard-000000.tar: the content of 000000000.json has changed" in capsys.readouterr().out
    assert main(["verify", "out", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["unpack", "out", "restored"]) == 1
    assert "standpipe verify lists all such members" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pack", "photos", "photos"], "use an empty folder"),
        (["pack", "photos", "out", "--shard-size", "many"], "shard_size='many' isn't a size"),
        (["verify", "photos"], "has no checksums; write them with standpipe index --checksums"),
    ],
)
def test_what_isnt_asked_for_right(
    two_photos: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert says in capsys.readouterr().err
