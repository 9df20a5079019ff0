from __future__ import annotations

import json
from pathlib import Path

import pytest

from photos import age
from standpipe.cli import main


def test_records_are_compared_with_their_checksums(
    two_photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    age(*Path().glob("photos/**/"))
    assert main(["index", "photos", "--checksums"]) == 0
    capsys.readouterr()
    assert main(["verify", "photos", "--workers", "1"]) == 0
    assert "right: 2 records; " in capsys.readouterr().out
    with Path("photos/dog/0.jpg").open("r+b") as photo:
        photo.seek(300)
        photo.write(b"damage")
    assert main(["verify", "photos"]) == 1
    said = capsys.readouterr().out
    assert "differs: damaged, or changed since it was indexed" in said
    assert "record 1, " in said
    assert main(["verify", "photos", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["records"], found["compared"], len(found["differences"])) == (False, 2, 2, 1)
    assert main(["index", "photos", "--checksums", "--verify"]) == 1
    assert "leave out --column and --checksums" in capsys.readouterr().err
