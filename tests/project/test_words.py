"""The check of plain words finds what it is for, in small examples."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

STUB = "src/standpipe/_native.pyi"
RULE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "words.py"))


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("src/a.py", '"""What each pass delivers."""', "src/a.py:1: say first what it does or is"),
        ("src/a.py", 'def f():\n    """Whoever waits."""', "src/a.py:2: say first what it does or is"),
        ("src/a.py", 'TEXT = "a row that gives way"', "src/a.py:1: “gives way”: write is replaced"),
        ("benchmarks/a.py", "x = 1  # hangs on y", "benchmarks/a.py:1: “hangs on”: write depends on"),
        ("native/a/a.h", "int b;  // Of it.\n    // What a row holds.\nint a;", "native/a/a.h:2: say first"),
        ("native/a/a.cpp", "// Whether it is ready.\nbool ready();", "native/a/a.cpp:1: say first"),
        ("native/bind/a.cpp", 'm.def("f", "The row that gives way.");', "native/bind/a.cpp:1: “gives way”"),
        ("native/a/a.cpp", "int a;  // hangs on y", "native/a/a.cpp:1: “hangs on”: write depends on"),
        ("tests/native/a.h", "// Whether it is ready.\nbool ready();", "tests/native/a.h:1: say first"),
        ("tests/a.py", 'def f():\n    """Whoever waits."""', "tests/a.py:2: say first what it does or is"),
        (STUB, 'def f() -> int:\n    """Whether it is open."""', f"{STUB}:2: say first what it does or is"),
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
        ("native/a/a.cpp", "int f() {\n    // If it is ready:\n    return 1;\n}"),
        ("native/a/a.h", "// A row.\n// If it is ready, a worker takes it."),
        ("docs/a.md", "A row.\n\n```text\nas of now, whoever\n```\n\nAnd `as of` in code."),
        ("docs/_build/a.md", "whoever"),
    ],
)
def test_plain_words_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str) -> None:
    assert findings(tmp_path, monkeypatch, file, text) == []


TWO = "// Whether it is ready.\nbool ready();\n\n// No more rows.\nvoid end();\n"


def test_a_file_has_as_many_findings_as_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(tmp_path, monkeypatch, "native/a.h", TWO, '"native/a.h" = 2') == []
    found = findings(tmp_path, monkeypatch, "native/a.h", TWO, '"native/a.h" = 1')
    assert [line.partition(": ")[0] for line in found] == ["native/a.h:1", "native/a.h:4", "native/a.h"]


@pytest.mark.parametrize("name", ["native/a.h", "native/gone.h"])
def test_fewer_findings_lower_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (found,) = findings(tmp_path, monkeypatch, "native/a.h", "int a;", f'"{name}" = 1')
    assert found.startswith(f"{name}: fewer than 1 findings")
    RULE["lower"]()
    assert list(RULE["findings"]()) == []


def test_more_findings_never_raise_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = findings(tmp_path, monkeypatch, "native/a.h", TWO, '"native/a.h" = 1')
    RULE["lower"]()
    assert list(RULE["findings"]()) == before


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


def findings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, allowed: str = ""
) -> list[str]:
    """Return what the check says of a folder with one file, and with ``allowed`` in scripts/words.toml."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    pages = dict.fromkeys(("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"), "")
    for name, content in {**pages, "scripts/words.toml": allowed, file: text}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return list(RULE["findings"]())
