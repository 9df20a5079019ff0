from __future__ import annotations

import json
from pathlib import Path

import pytest

from standpipe.cli import main


@pytest.mark.parametrize("task", ["train", "eval"])
def test_a_plan_fits_80_columns(two_photos: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(two_photos), "--task", task, "--memory", "1GiB", "--workers", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    places = ["source", "order", "read", "transform", "batch", "device", "memory", "recipe"]
    assert [line.split()[0] for line in lines[1:] if line[2:3].strip()] == places
    assert any(line.split()[:2] == ["ceiling", "1.0GiB"] for line in lines)


def test_a_plan_for_programs(two_photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(two_photos), "--json", "--batch", "4"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["records"] == 2
    assert facts["fields"]["label"] == {"shape": [4], "dtype": "int64"}
    assert facts["forecast"]["expected"] > facts["forecast"]["slots"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["phtoos"], 1, "can't read "),
        (["photos/cat"], 1, "but no class folders"),
        (["photos/cat/0.jpg"], 1, "photos/cat/0.jpg is one image"),
        (["photos", "--batch", "0"], 1, "got 0"),
        (["photos", "--workers", "many"], 2, "must be a number of threads, or auto, got 'many'"),
        (["photos", "--workers", "0"], 1, "num_workers must be 'auto' or an integer from 1"),
        (["photos", "--memory", "1MiB"], 1, "need memory="),
    ],
)
def test_what_is_wrong_is_said(
    two_photos: Path, arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err
