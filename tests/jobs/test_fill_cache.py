"""Filling a cache ahead: who fills what, and what a loader finds then."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import standpipe as sp
from photos import encoded, picture, write_list
from standpipe.reports import CacheFillReport

ROWS = 12


@pytest.fixture
def cache(tmp_path: Path) -> sp.Cache:
    (tmp_path / "rows").mkdir()
    return sp.Cache("test", memory="32MiB", directory=tmp_path / "rows", strict=True, validate="never")


def pipeline(folder: Path, cache: sp.Cache, *, images: bool = True) -> sp.Pipeline:
    source = sp.Pipeline(write_list(folder, [encoded(picture(seed)) for seed in range(ROWS)]))
    crop, flip = sp.CenterCrop(32), sp.RandomHorizontalFlip()
    return source.map(crop).cache(cache).map(flip) if images else source.cache(cache).map(crop, flip)


def misses(of: sp.Pipeline) -> int:
    """Rows that an epoch doesn't find."""
    with of.loader(num_workers=1) as loader:
        list(loader)
        return loader.stats().cache_misses


@pytest.mark.parametrize("images", [True, False], ids=["images", "files"])
def test_what_was_filled_ahead_is_found(tmp_path: Path, cache: sp.Cache, images: bool) -> None:
    told: list[tuple[int, int]] = []
    kept = pipeline(tmp_path, cache, images=images).shuffle(seed=1).batch(4)
    assert sp.fill_cache(kept, progress=lambda done, of: told.append((done, of))) == CacheFillReport(
        ROWS, ROWS, 0, 0
    )
    assert told[-1] == (ROWS, ROWS)
    assert sp.fill_cache(kept) == CacheFillReport(ROWS, 0, ROWS, 0)
    assert misses(kept) == 0


def test_the_place_that_the_plan_chooses_is_filled(tmp_path: Path, cache: sp.Cache) -> None:
    source = sp.Pipeline(write_list(tmp_path, [encoded(picture(seed)) for seed in range(ROWS)]))
    kept = source.cache(cache, place="auto").map(sp.CenterCrop(32)).batch(4)
    assert sp.fill_cache(kept).stored == ROWS
    assert misses(kept) == 0


def test_a_cache_that_cant_be_had_isnt_filled(tmp_path: Path, cache: sp.Cache) -> None:
    (tmp_path / "rows" / f"standpipe-{os.geteuid()}").write_text("in the way")
    kept = pipeline(tmp_path, replace(cache, strict=False)).batch(4)
    with pytest.raises(sp.CacheError):
        sp.fill_cache(kept)
    with kept.loader(num_workers=1) as loader:
        assert len(list(loader)) == ROWS // 4


def test_a_rank_fills_its_own_rows(tmp_path: Path, cache: sp.Cache) -> None:
    kept = pipeline(tmp_path, cache).batch(3)
    assert sp.fill_cache(kept.shard(1, 2)).stored == ROWS // 2
    assert misses(kept.shard(1, 2)) == 0
    assert misses(kept.shard(0, 2)) == ROWS // 2


def test_a_node_has_all_rows_before_its_first_batch(
    tmp_path: Path, cache: sp.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pipeline(tmp_path, replace(cache, scope="node")).batch(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for rank in range(2):  # of four, on this machine
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        with kept.shard(rank, 4).loader(num_workers=1):
            pass
    assert misses(kept.shard(3, 4)) == 0


def test_ranks_of_one_machine_fill_nothing_ahead(
    tmp_path: Path, cache: sp.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    kept = pipeline(tmp_path, replace(cache, scope="node")).batch(2).shard(0, 2)
    assert misses(kept) == ROWS // 2


def test_without_a_cache_there_is_nothing_to_fill(tmp_path: Path, cache: sp.Cache) -> None:
    plain = pipeline(tmp_path, cache).batch(2)
    with pytest.raises(sp.PlanError, match="has none"):
        sp.fill_cache(replace(plain, cached=None))
    with pytest.raises(sp.PlanError, match="is off"):
        sp.fill_cache(pipeline(tmp_path, sp.Cache("off", memory=0)).batch(2))
