"""Batches of images of similar aspect ratio, beside torchvision's rule."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from painted import painted
from standpipe.order import AspectGroups
from standpipe.spec import AnyArray

IMAGES, ROWS = 103, 8


def sizes(images: int = IMAGES) -> tuple[AnyArray, AnyArray]:
    random = np.random.default_rng(4)
    return random.integers(20, 200, images), random.integers(20, 200, images)


def pipeline(images: int = IMAGES, factor: int = 3) -> sp.Pipeline:
    height, width = sizes(images)
    source = sp.Arrays(height=height, width=width)
    return sp.Pipeline(source).shuffle(seed=5).batch(ROWS, group_by="aspect_ratio", group_factor=factor)


def torchvision_group(height: int, width: int, factor: int) -> int:
    """The number of a group as ``create_aspect_ratio_groups`` of torchvision's references has it."""
    bounds = (2 ** np.linspace(-1, 1, 2 * factor + 1)).tolist() if factor > 0 else [1.0]
    return bisect.bisect_right(sorted(bounds), width / height)


@pytest.mark.parametrize("factor", [0, 1, 3])
def test_groups_are_those_of_torchvision(factor: int) -> None:
    height, width = sizes(500)
    height[:3], width[:3] = (100, 100, 50), (100, 50, 100)  # on the bounds
    expected = [
        torchvision_group(*each, factor) for each in zip(height.tolist(), width.tolist(), strict=True)
    ]
    assert AspectGroups(2, "aspect_ratio", factor).of(height, width).tolist() == expected


def epoch(loader: sp.Loader) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


@pytest.mark.parametrize("factor", [0, 3])
def test_every_batch_has_one_group_and_every_record_comes_once(factor: int) -> None:
    height, width = sizes()
    group = AspectGroups(ROWS, "aspect_ratio", factor).of(height, width)
    with pipeline(factor=factor).loader(memory="128MiB") as loader:
        first, second = epoch(loader), epoch(loader)
    for batches in (first, second):
        assert sorted(index for batch in batches for index in batch) == list(range(IMAGES))
        assert all(len(set(group[batch])) == 1 for batch in batches)
        full = Counter(int(group[batch[0]]) for batch in batches if len(batch) == ROWS)
        smaller = {int(group[batch[0]]): len(batch) for batch in batches if len(batch) < ROWS}
        for number, count in Counter(group.tolist()).items():
            assert (full[number], smaller.get(number, 0)) == divmod(count, ROWS)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


def test_ranks_have_as_many_steps_and_no_record_twice_and_a_run_goes_on() -> None:
    with pipeline().loader(memory="128MiB") as loader:
        whole = epoch(loader)
    parts = []
    for rank in range(2):
        with pipeline().shard(rank, 2).loader(memory="128MiB") as loader:
            parts.append(epoch(loader))
    assert [batch for pair in zip(*parts, strict=True) for batch in pair] == whole[: len(whole) // 2 * 2]
    with pipeline().loader(memory="128MiB") as loader:
        batches = iter(loader)
        next(batches), next(batches), next(batches)
        state = loader.state_dict()
    with pipeline().loader(memory="128MiB", num_workers=1) as loader:
        loader.load_state_dict(state)
        assert epoch(loader) == whole[3:]


def test_a_bad_sample_is_replaced_by_one_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = painted(tmp_path, 40)
    pad = {"image": sp.Pad(max_shape=(160, 160, 3))}
    described = sp.Pipeline(source).shuffle(seed=1).batch(4, group_by="aspect_ratio", collate=pad)
    described = described.on_error(sp.Replace(at_most=40))
    plan = described.plan(memory="256MiB")
    assert {"height", "width"} <= {*plan.source.columns}
    height, width = (plan.source.column(name, 0, 40) for name in ("height", "width"))
    group = AspectGroups(4, "aspect_ratio", 3).of(height, width)
    for number in range(0, 40, 7):
        (tmp_path / "images" / f"{number:04d}.jpg").write_bytes(b"no image")
    with described.loader(memory="256MiB") as loader:
        for batch in loader:
            assert len(set(group[batch["index"]])) == 1
            for index, length in zip(batch["index"], batch["image_length"], strict=True):
                assert tuple(length[:2]) == (height[index], width[index])
        assert len(loader.bad_samples) >= 6


def test_recipes_and_explanations_name_the_groups() -> None:
    described = pipeline()
    plan = described.plan()
    assert "of them smaller; shuffle(seed=5)" in plan.order.describe()
    assert plan.digest != pipeline(factor=2).plan().digest
    again = sp.Pipeline.from_dict(json.loads(json.dumps(described.to_dict())), source=described.source)
    assert again.plan().digest == plan.digest
    assert "group_by='aspect_ratio', group_factor=3" in repr(described)


def test_what_does_not_go_together_is_refused() -> None:
    photos = sp.Pipeline(sp.Arrays(x=np.arange(4)))
    with pytest.raises(sp.PlanError, match="doesn't know the sizes"):
        photos.batch(2, group_by="aspect_ratio").plan()
    with pytest.raises(sp.PlanError, match="takes a batch_size"):
        photos.batch(budget=4, length_column="x", group_by="aspect_ratio")
    with pytest.raises(sp.PlanError, match="group_by must be 'aspect_ratio'"):
        photos.batch(2, group_by="size")  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="group_factor"):
        photos.batch(2, group_by="aspect_ratio", group_factor=65)
    with pytest.raises(sp.PlanError, match="orders records by shape"):
        sp.Pipeline(pipeline().source).shuffle(seed=1, block=2).batch(2, group_by="aspect_ratio").plan()
