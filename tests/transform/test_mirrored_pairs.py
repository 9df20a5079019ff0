"""A mirrored row swaps the fields of a pair, so that left stays left."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from field_files import painted, written
from standpipe.spec import UInt8Array


def scene(size: tuple[int, int] = (20, 28)) -> dict[str, list[UInt8Array]]:
    left = [painted(*size) + np.uint8(40 * number) for number in range(6)]
    return {"left": left, "right": [255 - each for each in left], "mask": [each[..., 0] for each in left]}


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory="256MiB", **options) as loader:
        return [{name: np.array(field) for name, field in batch.items()} for batch in loader]


def arrays() -> sp.Arrays:
    return sp.Arrays({name: np.stack(each) for name, each in scene().items()})


RUNS: list[dict[str, Any]] = [{"num_workers": 2}, {"executor": "inline"}, {"executor": "process"}]


@pytest.mark.parametrize("kind", ["files", "arrays"])
def test_a_mirrored_row_swaps_the_fields(kind: str, tmp_path: Path) -> None:
    source = written(tmp_path, scene()) if kind == "files" else arrays()
    plain = sp.Pipeline(source, seed=3).decode(images=("left", "right"), masks=("mask",), pairs=())
    paired = plain.decode(images=("left", "right"), masks=("mask",), pairs=("left", "right"))
    flips = [sp.RandomHorizontalFlip(), sp.RandomVerticalFlip(), sp.RandomHorizontalFlip()]
    crop = [
        sp.CenterCrop(18),
        sp.RandomCrop((16, 14), padding=(3, 1)),
        *flips,
        sp.ColorJitter(0.3),
        sp.Normalize(),
    ]
    (in_place,) = batches(plain.map(*crop).batch(6))
    (unmirrored,) = batches(plain.map(*crop[:2], flips[1]).batch(6))
    mirrored = [(a != b).any() for a, b in zip(in_place["mask"], unmirrored["mask"], strict=True)]
    assert 0 < sum(mirrored) < 6
    for options in RUNS:
        (batch,) = batches(paired.map(*crop).batch(6), **options)
        assert (batch["mask"] == in_place["mask"]).all()
        for row, swaps in enumerate(mirrored):
            left, right = ("right", "left") if swaps else ("left", "right")
            assert (batch["left"][row] == in_place[left][row]).all()
            assert (batch["right"][row] == in_place[right][row]).all()


def test_each_view_swaps_by_its_own_flips(tmp_path: Path) -> None:
    flip = [sp.CenterCrop(16), sp.RandomHorizontalFlip()]
    views = sp.Views(
        a=flip,
        b=sp.Repeat(2, flip),
        whole=[sp.CenterCrop(16)],
        always=[*flip[:1], sp.RandomHorizontalFlip(1.0)],
    )
    pipeline = (
        sp.Pipeline(written(tmp_path, scene()), seed=1).decode(pairs=("left", "right")).map(views).batch(6)
    )
    (batch,) = batches(pipeline)
    left, right = batch["whole"], batch["whole_right"]
    assert (batch["always"] == right[:, :, ::-1]).all()
    assert (batch["always_right"] == left[:, :, ::-1]).all()
    seen = set()
    for one, other in [("a", "a_right"), ("b", "b_right")]:
        ones, others = (batch[name].reshape(6, -1, 16, 16, 3) for name in (one, other))
        for row in range(6):
            for place in range(ones.shape[1]):
                mirrored = (ones[row, place] == right[row, :, ::-1]).all()
                seen.add(bool(mirrored))
                want = (right[row, :, ::-1], left[row, :, ::-1]) if mirrored else (left[row], right[row])
                assert (ones[row, place] == want[0]).all()
                assert (others[row, place] == want[1]).all()
    assert seen == {True, False}


def test_several_pairs_swap_together() -> None:
    parts = {name: np.stack(each) for name, each in scene().items()}
    masks = {"left_mask": parts["mask"], "right_mask": 255 - parts["mask"]}
    source = sp.Arrays({"left": parts["left"], "right": parts["right"], **masks})
    pairs = (("left", "right"), ("left_mask", "right_mask"))
    pipeline = sp.Pipeline(source).decode(images=("left", "right"), masks=tuple(masks), pairs=pairs)
    (batch,) = batches(pipeline.map(sp.RandomHorizontalFlip()).batch(6))
    assert (batch["left"][..., 0] == batch["left_mask"]).all()
    assert (batch["right"][..., 0] == batch["right_mask"]).all()
    assert sp.Pipeline.from_dict(pipeline.to_dict(), source=source) == pipeline
    assert "pairs" in pipeline.map(sp.CenterCrop(8)).batch(2).plan().explain()


def test_left_and_right_need_a_word_beside_a_flip(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(written(tmp_path, scene()))
    flip = [sp.CenterCrop(8), sp.RandomHorizontalFlip()]
    for transforms in (flip, [sp.Views(a=flip)]):
        with pytest.raises(
            sp.PlanError, match=r"mirrors the fields 'left' and 'right': write decode\(pairs="
        ):
            pipeline.map(*transforms).batch(2).plan()
    pipeline.map(sp.CenterCrop(8), sp.RandomVerticalFlip()).batch(2).plan()
    pipeline.decode(pairs=()).map(*flip).batch(2).plan()


def test_impossible_pairs_are_refused(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(written(tmp_path, scene()))
    wrong: list[Any] = ["left", ("left",), ("left", "left"), (("left", "right"), ("left", "mask")), 3, (1, 2)]
    for pairs in wrong:
        with pytest.raises(sp.PlanError, match=r"decode\(pairs=.*give two names of fields"):
            pipeline.decode(pairs=pairs)
    for pairs, says in (
        (("left", "rigth"), "no field 'rigth'"),
        (("left", "mask"), "swap where rows are mirrored"),
    ):
        with pytest.raises(sp.PlanError, match=says):
            pipeline.decode(pairs=pairs).map(sp.CenterCrop(8)).batch(2).plan()
