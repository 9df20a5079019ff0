"""The pages name what exists: every link leads somewhere, and nothing public is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import standpipe as sp
import standpipe.jax
import standpipe.observe
import standpipe.ray
import standpipe.reports
import standpipe.torch
from standpipe import contracts
from standpipe.cli import main

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [page for folder in ("docs", "src", "native") for page in sorted((ROOT / folder).rglob("*.md"))]
FOR_SOURCES = (
    "Source",
    "OpenSource",
    "Records",
    "Files",
    "Paths",
    "Rows",
    "Encoded",
    "ReadsRecords",
    "check_source",
    "Fleet",
    "OpenFleet",
    "Receiver",
)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    linked = [page.parent / target for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [str(target) for target in linked if not target.exists()] == []


def test_every_test_that_a_page_names_exists() -> None:
    defined = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))}
    assert [name for name in sorted(named) if f"def {name}(" not in defined] == []


def test_the_reference_has_a_page_for_every_public_name() -> None:
    text = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    lists = re.findall(r"currentmodule:: (\S+)\n\n.. autosummary::\n(?:   :.*\n)+\n((?:   \w+\n)+)", text)
    listed = [f"{module}.{name}" for module, names in lists for name in names.split()]
    modules = (sp, standpipe.torch, standpipe.jax, standpipe.ray, standpipe.observe, standpipe.reports)
    public = [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    assert sorted(listed) == sorted([*public, *(f"standpipe.contracts.{name}" for name in FOR_SOURCES)])
    assert set(FOR_SOURCES) <= set(contracts.__all__)


@pytest.mark.parametrize("more", [[], ["--io"]])
def test_every_field_of_bench_is_documented(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    (tmp_path / "class").mkdir()
    Image.new("RGB", (32, 24)).save(tmp_path / "class" / "0.jpg")
    assert main(["bench", str(tmp_path), "--batch", "2", "--seconds", "0.1", "--json", *more]) == 0
    fields = re.findall(r'"(\w+)":', capsys.readouterr().out)
    text = (ROOT / "docs" / "guide" / "measuring.md").read_text(encoding="utf-8")
    assert [field for field in fields if f"`{field}`" not in text] == []


def test_every_benchmark_and_example_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    files = [*ROOT.glob("benchmarks/[!_]*.py"), *ROOT.glob("examples/*.py")]
    assert [file.name for file in files if file.name not in text] == []


def test_no_text_installs_a_name_that_is_not_ours() -> None:
    """The name isn't registered with the package index: texts install from a checkout, or from the file of a wheel."""
    by_name = re.compile(r"pip3? install [^\n`]*(?<![\w./-])standpipe(?![\w./-]*\.whl)(?![/\w])")
    texts = [
        *PAGES,
        *(
            path
            for folder in ("src", "scripts", "examples", ".github")
            for path in (ROOT / folder).rglob("*")
        ),
    ]
    found = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for path in texts
        if path.suffix in (".md", ".py", ".yml", "") and path.is_file()
        for hit in by_name.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert by_name.search("pip install 'standpipe[gpu]'")
    assert by_name.search("pip install -U standpipe")
    assert not by_name.search("pip install dist/standpipe-0.1.0-cp311-manylinux_2_27_x86_64.whl")
