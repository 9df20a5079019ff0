from __future__ import annotations

import json
from pathlib import Path

import pytest

import standpipe as sp
from standpipe.cli import main


def arguments(two_photos: Path, *more: str) -> list[str]:
    return ["tune", str(two_photos), "--batch", "2", "--memory", "256MiB", "--seconds", "1", *more]


def test_what_is_printed_is_code_that_fits_80_columns(
    two_photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(two_photos, "--output", "tuned.json")) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert "images/s with" in out
    settings = sp.load_tuning("tuned.json")
    words = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    assert f"    loader = pipeline.loader({words})\n" in out
    assert "or:  loader = pipeline.loader(**sp.load_tuning('tuned.json'))" in out


def test_for_programs(two_photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(two_photos, "--workers", "1", "--step-ms", "20", "--json")) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["workers"] == 1
    assert facts["images_per_s"] > 0
    assert set(facts) == {"images_per_s", "workers", "prefetch", "settled", "trials"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--seconds", "0"], "--seconds must be above 0"),
        (["--step-ms", "-1"], "--step-ms must be from 0"),
        (["--output", "no/such/folder.json"], "can't write no/such/folder.json: there is no folder no/such"),
        (["--output", "photos"], "can't write photos: it is a folder"),
        (["--memory", "1MiB"], "need memory="),
    ],
)
def test_what_is_wrong_is_said(
    two_photos: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(two_photos, *more)) == 1
    assert says in capsys.readouterr().err
