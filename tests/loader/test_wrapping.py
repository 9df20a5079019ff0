"""A loader of torch has what ``Loader`` has, and notebooks show what these objects are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import standpipe as sp
from photos import write_photos


@pytest.fixture
def pipeline(tmp_path: Path) -> sp.Pipeline:
    """One of a few photos of two classes."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        write_photos(tmp_path / name, 4)
    return sp.Pipeline(sp.ImageFolder(tmp_path)).map(sp.CenterCrop(32)).batch(2)


def test_what_a_loader_has_that_for_torch_has_too(pipeline: sp.Pipeline, tmp_path: Path) -> None:
    module = pytest.importorskip("standpipe.torch")
    with module.loader(pipeline, memory="64MiB", num_workers=1) as batches:
        with batches.progress():
            assert sum(1 for _ in batches) == 4
        assert batches.classes == batches.plan.classes == ("cat", "dog")
        assert batches.stats().step.rows == 8
        assert batches.bad_samples == []
        assert batches.explain().startswith("standpipe plan")
        assert "slots" in str(batches.memory())
        assert str(batches.diagnose())
        batches.report(tmp_path / "report.json")
        assert repr(batches).startswith("<TorchLoader of Pipeline(ImageFolder(")
        assert "standpipe plan" in batches._repr_html_()
    assert repr(batches).endswith("closed>")


def test_notebooks_show_text_whose_lines_stay(pipeline: sp.Pipeline) -> None:
    shown = pipeline.map(lambda image: image, field="image")
    assert "\n    .map(" in shown._repr_html_()
    assert "&lt;lambda&gt;" in shown._repr_html_()
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        list(loader)
        for each in (loader, loader.plan, loader.stats()):
            assert each._repr_html_().startswith(
                "<pre>&lt;" if each is not loader.plan else "<pre>standpipe plan"
            )
            assert "\n" not in repr(each)
            assert len(repr(each)) < 400
        assert "24" not in repr(loader.stats())
        assert "4 batches of 8 rows taken" in repr(loader.stats())
        assert "8 records, 4 steps per epoch of 2 rows" in repr(loader.plan)


def test_tab_completion_shows_what_is_for_users(pipeline: sp.Pipeline) -> None:
    shown: list[tuple[Any, int]] = [(pipeline, 35), (pipeline.plan(memory="64MiB", num_workers=1), 20)]
    for each, most in shown:
        names = [name for name in dir(each) if not name.startswith("_")]
        assert len(names) <= most
        assert all(hasattr(each, name) for name in names)
    assert {"map", "batch", "loader", "from_dict"} <= set(dir(pipeline))
    assert set(dir(sp)) <= {*sp.__all__, "__version__"}
    assert dir(sp.CenterCrop(2)) == ["mask_fill", "size"]
    assert dir(sp.Views(a=[])) == ["views"]
    module = pytest.importorskip("standpipe.torch")
    assert set(dir(module)) == set(module.__all__)
