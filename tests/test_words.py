"""The check of plain words finds what it is for, in small examples."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

RULE = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "words.py"))


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("src/a.py", '"""What each pass delivers."""', "src/a.py:1: say first what it does or is"),
        ("src/a.py", 'def f():\n    """Whoever waits."""', "src/a.py:2: say first what it does or is"),
        ("src/a.py", 'TEXT = "a row that gives way"', "src/a.py:1: “gives way”: write is replaced"),
        ("benchmarks/a.py", "x = 1  # hangs on y", "benchmarks/a.py:1: “hangs on”: write depends on"),
        ("README.md", "# A\n\nA whole number.", "README.md:3: “whole number”: write integer"),
        ("docs/a/b.md", "Long " + "and long " * 20 + "sentences.", "docs/a/b.md: 42 words"),
    ],
)
def test_a_symptom_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, says: str
) -> None:
    found = findings(tmp_path, monkeypatch, file, text)
    assert any(line.startswith(says) for line in found), found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("src/a.py", '"""Return the batch size that fits the budget."""\nx = "one row"  # for two workers'),
        ("docs/a.md", "A row.\n\n```text\nas of now, whoever\n```\n\nAnd `as of` in code."),
        ("docs/_build/a.md", "whoever"),
    ],
)
def test_plain_words_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str) -> None:
    assert findings(tmp_path, monkeypatch, file, text) == []


@pytest.mark.parametrize("subject", ["The loader waits", "Do " + "more " * 20])
def test_a_commit_subject_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for message in ("Add a page", subject):
        subprocess.run(
            ["git", *settings, "commit", "-q", "--allow-empty", "-m", message], cwd=tmp_path, check=True
        )
    (found,) = findings(tmp_path, monkeypatch, "src/a.py", "x = 1")
    assert subject.strip() in found


def findings(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str) -> list[str]:
    """Return what the check says of a folder with one file."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", file):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name != file else text, encoding="utf-8")
    return list(RULE["findings"]())
