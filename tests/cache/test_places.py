"""Where a cache may stand, what the plan says of it, and the place that it chooses itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture, write_list


@pytest.fixture
def cache(tmp_path: Path) -> sp.Cache:
    (tmp_path / "rows").mkdir()
    return sp.Cache("test", memory="32MiB", directory=tmp_path / "rows")


def source(folder: Path, rows: int = 8) -> sp.Pipeline:
    return sp.Pipeline(write_list(folder, [encoded(picture(seed)) for seed in range(rows)]))


def test_after_a_random_transform_it_is_refused_by_name(tmp_path: Path, cache: sp.Cache) -> None:
    crop = source(tmp_path).map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip())
    with pytest.raises(sp.PlanError, match=r"RandomResizedCrop\(.*right after the source"):
        crop.cache(cache).batch(2).plan()
    with pytest.raises(sp.PlanError, match=r"RandomHorizontalFlip\(.*after CenterCrop\("):
        source(tmp_path).map(sp.CenterCrop(32), sp.RandomHorizontalFlip()).cache(cache).batch(2).plan()


def test_where_images_have_no_fixed_size_it_is_refused(tmp_path: Path, cache: sp.Cache) -> None:
    with pytest.raises(sp.PlanError, match=r"cache\(\) needs images of a fixed size"):
        source(tmp_path).map(sp.Resize(32)).cache(cache).map(sp.CenterCrop(16)).batch(2).plan()


def test_two_of_them_and_other_things_are_refused(tmp_path: Path, cache: sp.Cache) -> None:
    with pytest.raises(sp.PlanError, match=r"only one \.cache"):
        source(tmp_path).cache(cache).map(sp.CenterCrop(32)).cache(cache)
    with pytest.raises(sp.PlanError, match="a Cache, such as"):
        source(tmp_path).cache("8GiB")  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="'here' or 'auto'"):
        source(tmp_path).cache(cache, place="there")  # type: ignore[arg-type]
    arrays = sp.Pipeline(sp.Arrays(image=np.zeros((4, 8, 8, 3), np.uint8)))
    with pytest.raises(sp.PlanError, match="memory already"):
        arrays.cache(cache).batch(2).plan()


def test_explain_says_what_is_kept_and_what_that_brings(tmp_path: Path, cache: sp.Cache) -> None:
    pipeline = source(tmp_path).map(sp.CenterCrop(32)).cache(cache).map(sp.Normalize()).batch(2)
    text = pipeline.plan().explain()
    assert "images, (32, 32, 3) uint8" in text
    assert "after CenterCrop" in text
    assert "all 8 rows would take 24.0KiB; later epochs find 100% of them" in " ".join(text.split())
    assert "no row is stored" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "/" not in line)
    with pipeline.loader() as loader:
        list(loader)
    assert "8 rows are stored" in pipeline.plan().explain()


def test_the_queue_for_a_disk_counts_whoever_named_the_disk(tmp_path: Path, cache: sp.Cache) -> None:
    """The job, its session, or an earlier job whose set has rows there."""

    def counted(used: sp.Cache) -> int:
        return source(tmp_path).map(sp.CenterCrop(32)).cache(used).batch(2).plan().forecast.cache

    without, queue = counted(cache), 16 << 20
    spilling = replace(cache, spill=tmp_path)
    assert counted(spilling) == without + queue
    assert counted(cache) == without
    sp.create_cache(replace(spilling, name="session"))
    assert counted(replace(cache, name="session")) == without + queue
    with source(tmp_path).map(sp.CenterCrop(32)).cache(spilling).batch(2).loader() as loader:
        list(loader)
    sp.destroy_cache(replace(cache, name="session"))
    assert counted(replace(cache, name="other")) == without + queue


@pytest.mark.parametrize(
    ("transforms", "memory", "kind", "why"),
    [
        ((sp.CenterCrop(32), sp.RandomHorizontalFlip()), "32MiB", "images", "because all images fit"),
        ((sp.RandomResizedCrop(32),), "32MiB", "encoded", "no fixed size before the first random transform"),
        ((sp.Resize(32), sp.RandomCrop(32)), "32MiB", "encoded", "no fixed size before the first random"),
        ((sp.CenterCrop(32),), 16_000, "encoded", "or don't all fit"),
    ],
)
def test_auto_caches_images_if_all_fit_else_files_and_says_why(
    tmp_path: Path, transforms: tuple[Any, ...], memory: int | str, kind: str, why: str
) -> None:
    (tmp_path / "rows").mkdir()
    cache = sp.Cache("test", memory=memory, directory=tmp_path / "rows")
    plan = source(tmp_path).map(*transforms).cache(cache, place="auto").batch(2).plan()
    assert plan.cache is not None
    assert plan.cache.kind == kind
    assert why in " ".join(plan.explain().split())


def test_explain_says_where_a_cache_pays_off(tmp_path: Path, cache: sp.Cache) -> None:
    text = source(tmp_path).map(sp.CenterCrop(32)).cache(cache).batch(2).plan().explain()
    assert "pays off from the second epoch on, where making samples limits the run" in " ".join(text.split())
