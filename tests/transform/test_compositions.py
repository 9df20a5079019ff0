"""Published compositions become native as a whole, or their report says which part doesn't, and what to do."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp

pytest.importorskip("torch")
import torchvision_cpu

assert torchvision_cpu  # timm imports it
pytest.importorskip("timm")
from compositions import LIST, Row  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "dino_multicrop.py"
PAGE = Path(__file__).parents[2] / "docs" / "coming-from" / "compositions.md"


def result(composition: Any, **options: Any) -> tuple[bool, str]:
    """Return True if a composition is native as a whole, and its report or error."""
    try:
        converted = sp.from_torchvision(composition, **options)
    except sp.PlanError as error:
        return False, str(error)
    return not converted.python, str(converted)


@pytest.mark.parametrize("name", LIST)
def test_a_published_composition_is_native_or_says_why_and_what_to_do(name: str) -> None:
    row = LIST[name]
    native, said = result(row.composed(), tensors="as_pillow")
    assert native == (not row.refused), said
    assert row.refused in said
    if row.instead:
        native, said = result(list(row.instead), tensors="as_pillow")
        assert native, said
    native, said = result(row.composed())
    assert native or row.refused or 'tensors="as_pillow" takes Pillow\'s' in said


def test_the_dino_example_makes_the_published_crops() -> None:
    first, second, local = (
        list(sp.from_torchvision(list(LIST[f"DINO, {name} crop"].instead), tensors="as_pillow"))
        for name in ("first global", "second global", "local")
    )
    images = np.random.default_rng(7).integers(0, 256, (8, 256, 256, 3), np.uint8)
    published = sp.Views(first=first, second=second, small=sp.Repeat(6, local))
    batches = []
    for views in (published, runpy.run_path(str(EXAMPLE))["crops"](224, 96)):
        pipeline = sp.Pipeline(sp.Arrays(image=images)).shuffle(seed=7).map(views).batch(8)
        with pipeline.loader(executor="inline") as loader:
            batches.append(loader.peek())
    for name in ("first", "second", "small"):
        np.testing.assert_array_equal(*(batch[name] for batch in batches))


def outcome(row: Row) -> str:
    """The result's words on the page."""
    if result(row.composed())[0]:
        return "native"
    if not row.refused:
        return '`tensors="as_pillow"`'
    return "with the form that it names" if row.instead else "Python"


def table() -> str:
    """The page's table, and the sentence above it."""
    rows = {name: outcome(row) for name, row in LIST.items()}
    counts = {what: list(rows.values()).count(what) for what in dict.fromkeys(rows.values())}
    said = ", ".join(f"{number} {what}" for what, number in counts.items())
    lines = [f"| {name} | `{LIST[name].source}` | {what} |" for name, what in rows.items()]
    head = ["| composition | source | result |", "|---|---|---|"]
    return "\n".join([f"Of {len(rows)} compositions: {said}.", "", *head, *lines])


def test_the_page_has_the_list_and_at_least_nine_in_ten_become_native() -> None:
    found = [outcome(row) for row in LIST.values()]
    assert found.count("Python") <= len(found) / 10
    assert table() in PAGE.read_text(encoding="utf-8"), f"write this into {PAGE.name}:\n{table()}"
