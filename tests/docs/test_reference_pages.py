"""The pages about commands and settings say what the code has."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

import standpipe as sp

ROOT = Path(__file__).parent.parent.parent
WRITES = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


@pytest.mark.parametrize("name", WRITES["PAGES"])
def test_the_page_is_as_the_code_writes_it(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert page == WRITES["PAGES"][name](), "python scripts/reference.py writes it"


def test_every_setting_is_on_its_page() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ", WRITES["settings_page"](), re.MULTILINE)
    settings = [field.name for field in dataclasses.fields(sp.LoaderOptions)]
    assert [name for name in listed if not name.isupper()] == settings


def test_every_environment_variable_is_on_its_page() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "native").rglob("*.cpp")]
    )
    read = set(re.findall(r"(?:environ(?:\.get\(|\[)|getenv\()\s*\"(\w+)\"", code))
    assert "STANDPIPE_FAULTS" in read
    assert [name for name in sorted(read) if f"`{name}`" not in WRITES["ENVIRONMENT"]] == []
