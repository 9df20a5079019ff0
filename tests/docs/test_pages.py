"""The pages name what exists: every link leads somewhere, and nothing public is left out."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from pathlib import Path

import pytest
from sphinx.ext.napoleon import Config, NumpyDocstring

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
PAGES_OF_DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES += [page for folder in ("docs", "src", "native") for page in sorted((ROOT / folder).rglob("*.md"))]
FOR_SOURCES = (
    "Source",
    "OpenSource",
    "Records",
    "Files",
    "Paths",
    "Rows",
    "RaggedRows",
    "Encoded",
    "ReadsRecords",
    "check_source",
    "Fleet",
    "OpenFleet",
    "Receiver",
)
MOST_COLUMNS = 88  # of code that a page of 1280 pixels shows without scrolling
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
PICTURES = [
    path for path in sorted((ROOT / "docs" / "images").glob("*.svg")) if path.name != "top.svg"
]  # dark
PHONE_PX = 358  # between the margins of a phone's 390
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
    modules = (
        *(sp, sp.recipes, standpipe.torch, standpipe.jax),
        *(standpipe.ray, standpipe.observe, standpipe.reports),
    )
    public = [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    public.remove("standpipe.recipes")
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
    assert by_name.search("pip install 'standpipe[torch]'")
    assert by_name.search("pip install -U standpipe")
    assert not by_name.search("pip install dist/standpipe-0.1.0-cp311-manylinux_2_27_x86_64.whl")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES_OF_DOCS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_no_line_of_code_is_wider_than_its_box(page: Path) -> None:
    wide, fence = [], ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened := re.match(r" *```+(.*)", line):
            fence = "" if fence else opened[1] or "text"
        elif fence and not fence.startswith("{") and len(line) > MOST_COLUMNS:
            wide.append(f"line {number} has {len(line)} characters: {line}")
    assert wide == []


@pytest.mark.parametrize("results", RESULTS, ids=lambda path: path.name)
def test_results_say_when_and_with_what_they_were_measured(results: Path) -> None:
    facts = json.loads(results.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "figures" / f"{results.stem}.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{40}", facts["commit"])
    assert f"Measured on {facts['date']}, at commit {facts['commit'][:10]}." in page
    assert facts["versions"] in page


def test_a_propertys_docstring_may_have_a_colon() -> None:
    """Napoleon takes what is before the colon for the property's type."""

    class Shown:
        @property
        def classes(self) -> None:
            """Class names: None for arrays.

            Examples
            --------
            >>> None
            """

    class App:
        config = Config(napoleon_google_docstring=False)

    docstring = inspect.getdoc(Shown.classes) or ""
    lines = NumpyDocstring(docstring, App.config, None, "property", "Shown.classes").lines()
    assert ":type: Class names" in lines
    runpy.run_path(str(ROOT / "docs" / "conf.py"))["keep_colons"](
        App(), "property", "Shown.classes", Shown.classes, None, lines
    )
    assert lines[0] == "Class names: None for arrays."
    assert ".. rubric:: Examples" in lines


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_every_colour_of_a_picture_has_a_dark_one(picture: Path) -> None:
    light, style, dark = picture.read_text(encoding="utf-8").partition("@media (prefers-color-scheme: dark)")
    assert style
    rules, _, drawn = dark.partition("</style>")
    used = set(re.findall(r'(?:fill|stroke)(?:="|: )(#\w{6})', light + drawn))
    assert used <= set(re.findall(r'\[(?:fill|stroke)="(#\w{6})"\]', rules))


def test_the_words_of_the_front_pages_diagram_can_be_read_on_a_phone() -> None:
    drawn = (ROOT / "docs" / "images" / "places.svg").read_text(encoding="utf-8")
    width = int(re.findall(r' width="(\d+)"', drawn)[0])
    smallest = min(map(int, re.findall(r'font-size="(\d+)"', drawn)))
    assert smallest * PHONE_PX / width >= 10
