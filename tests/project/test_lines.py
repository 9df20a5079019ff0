"""Lines of code are counted without words, and none of their ceilings rises by itself."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

RULE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "lines.py"))
PYTHON = '''"""A module."""

# A comment.
TEXT = """two
lines"""


def f(x: int) -> int:
    """Return x.

    It is what it was.
    """
    return x  # as it was
'''
NATIVE = """// A header.
#pragma once

/* Two
   lines. */
const char* url = "https://a";  // a string
int f(int x);
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a package of 4 lines and a folder of 3, which scripts/lines.py counts."""
    for name, text in {"src/standpipe/some/a.py": PYTHON, "native/some/a.h": NATIVE}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setitem(RULE["main"].__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(RULE["main"].__globals__, "CEILINGS", tmp_path / "ceilings.toml")
    return tmp_path


def run(project: Path, monkeypatch: pytest.MonkeyPatch, ceilings: str, *words: str) -> int:
    """Return the exit code of the script with these ceilings."""
    (project / "ceilings.toml").write_text(ceilings, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["lines.py", *words])
    try:
        RULE["main"]()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("ceilings", "above"),
    [
        ("[python]\nsome = 4\n[native]\nsome = 3\n", ""),
        ("[python]\nsome = 3\n[native]\nsome = 3\n", "python/some has 4 lines of code, more than 3"),
        ("[python]\nsome = 4\n[native]\n", "native/some has 3 lines of code, more than 0"),
    ],
)
def test_more_lines_than_the_ceiling_are_a_failure(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ceilings: str,
    above: str,
) -> None:
    assert run(project, monkeypatch, ceilings) == bool(above)
    printed = capsys.readouterr().out
    assert printed.startswith("lines of python, 4, some 4\nlines of native, 3, some 3\n")
    assert ("scripts/ceilings.toml: " in printed) == bool(above)
    assert above in printed


def test_ceilings_are_lowered_never_raised_or_added(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = project / "src/standpipe/new/b.py"
    new.parent.mkdir()
    new.write_text("x = 1\n", encoding="utf-8")
    run(project, monkeypatch, "[python]\nsome = 9\ngone = 5\n[native]\nsome = 2\n", "--write")
    written = tomllib.loads((project / "ceilings.toml").read_text(encoding="utf-8"))
    assert written == {"python": {"some": 4}, "native": {"some": 2}}
