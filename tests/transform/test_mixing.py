"""MixUp and CutMix: torchvision's images and labels for the same draws, and the same draws for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
from preloaded import SERVER
from standpipe.transform.python.mixing import beta, cut_box
from torchvision_cpu import torchvision

ROWS, CLASSES, RECORDS = 6, 5, 24
GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "mixing.json").read_text(encoding="utf-8"))


def generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def batch_of(layout: str, dtype: Any) -> dict[str, Any]:
    random = np.random.default_rng(1)
    shape = (ROWS, 3, 20, 16) if layout == "NCHW" else (ROWS, 20, 16, 3)
    image = (random.random(shape) * 255).astype(dtype)
    return {"image": image, "label": random.integers(0, CLASSES, ROWS), "index": np.arange(ROWS)}


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: array.copy() for name, array in batch.items()}


def torchvisions(name: str, batch: dict[str, Any], **drawn: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The images, NCHW, and labels that torchvision makes with what was drawn."""

    import torchvision_cpu  # noqa: F401 (torchvision needs it here)

    images, labels = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
    transform = getattr(torchvision.transforms.v2, name)(num_classes=CLASSES)
    if images.shape[3] == 3:
        images = images.permute(0, 3, 1, 2)
    transform.make_params = lambda _inputs: drawn
    return transform(images, labels)


@pytest.mark.parametrize("key", range(4))
def test_mixup_of_floats_is_torchvisions_bit_for_bit(key: int) -> None:
    batch = batch_of("NCHW", np.float32)
    images, labels = torchvisions("MixUp", batch, lam=beta(0.4, generator(key)))
    mixed = sp.MixUp(0.4, CLASSES)(copied(batch), generator(key))
    np.testing.assert_array_equal(mixed["image"], images)
    np.testing.assert_array_equal(mixed["label"], labels)
    assert (mixed["label"].dtype, mixed["image"].dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(mixed["index"], batch["index"])


@pytest.mark.parametrize("key", range(4))
def test_mixup_of_bytes_is_the_nearest_byte(key: int) -> None:
    batch = batch_of("NHWC", np.uint8)
    share = beta(1.0, generator(key))
    exact = share * batch["image"] + (1 - share) * np.roll(batch["image"], 1, axis=0)
    mixed = sp.MixUp(1.0, CLASSES)(copied(batch), generator(key))["image"]
    assert mixed.dtype == np.uint8
    assert np.abs(mixed - exact).max() <= 0.5


@pytest.mark.parametrize(
    ("layout", "dtype"), [("NCHW", np.float32), ("NHWC", np.uint8), ("NHWC", np.float16)]
)
@pytest.mark.parametrize("key", range(4))
def test_cutmix_is_torchvisions(layout: str, dtype: Any, key: int) -> None:
    batch, rng = batch_of(layout, dtype), generator(key)
    top, left, bottom, right = cut_box(20, 16, beta(1.0, rng), rng)
    share = 1 - (bottom - top) * (right - left) / 320
    images, labels = torchvisions("CutMix", copied(batch), box=(left, top, right, bottom), lam_adjusted=share)
    mixed = sp.CutMix(1.0, CLASSES)(copied(batch), generator(key))
    where = (0, 3, 1, 2) if layout == "NHWC" else (0, 1, 2, 3)
    np.testing.assert_array_equal(mixed["image"].transpose(where), images)
    np.testing.assert_array_equal(mixed["label"], labels)


def test_labels_that_are_mixed_already_are_mixed_again() -> None:
    batch = batch_of("NCHW", np.float32)
    once = sp.MixUp(0.4, CLASSES)(batch, generator(1))
    twice = sp.CutMix(1.0, CLASSES)(once, generator(2))["label"]
    np.testing.assert_allclose(twice.sum(axis=1), 1, atol=1e-6)
    assert (np.count_nonzero(twice, axis=1) > 1).any()


@pytest.mark.parametrize("alpha", [0.001, 0.2, 1.0, 8.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    """By its mean and variance, within six standard errors of 4,000 draws."""
    rng = generator(5)
    drawn = np.array([beta(alpha, rng) for _ in range(4000)])
    assert ((drawn >= 0) & (drawn <= 1)).all()
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(drawn.mean() - 0.5) < 6 * np.sqrt(variance / 4000)
    fourth = 3 / (16 * (2 * alpha + 1) * (2 * alpha + 3))  # the central moment
    assert abs(drawn.var() - variance) < 6 * np.sqrt((fourth - variance**2) / 4000) + 1e-5


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden['alpha']}-{golden['key']}")
def test_draws_never_change(golden: dict[str, Any]) -> None:
    rng = generator(golden["key"])
    share = beta(golden["alpha"], rng)
    assert share == golden["share"]
    assert list(cut_box(224, 160, share, rng)) == golden["box"]


class Photos:
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((8, 8, 3), index, np.uint8), index % CLASSES


def epoch(pipeline: sp.Pipeline, **settings: Any) -> list[dict[str, Any]]:
    with pipeline.loader(
        **{"memory": "512MiB", "executor": "thread", "mp_context": SERVER, **settings}
    ) as loader:
        return [copied(batch) for batch in loader]


MIXED = sp.Pipeline(sp.MapSource(Photos())).shuffle(seed=3).map(sp.Normalize()).batch(ROWS)
MIXED = MIXED.map_batch(sp.MixUp(0.8, CLASSES), sp.CutMix(1.0, CLASSES))


@pytest.mark.parametrize(
    "settings",
    [
        {"executor": "thread", "num_workers": 1},
        {"executor": "thread", "num_workers": 3},
        {"executor": "process", "num_workers": 2},
    ],
    ids=str,
)
def test_a_batch_is_the_same_whoever_mixes_it(settings: dict[str, Any]) -> None:
    expected = epoch(MIXED, executor="inline")
    for batch, other in zip(epoch(MIXED, **settings), expected, strict=True):
        assert batch.keys() == other.keys()
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name])


def test_every_batch_draws_anew_and_resumes_with_its_draws() -> None:
    whole = epoch(MIXED, executor="inline")
    assert len({batch["label"].max(axis=1).tobytes() for batch in whole}) == len(whole)
    with MIXED.loader(memory="512MiB", executor="thread") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with MIXED.loader(memory="512MiB", executor="thread") as loader:
        loader.load_state_dict(state)
        for batch, other in zip(loader, whole[1:], strict=True):
            np.testing.assert_array_equal(batch["image"], other["image"])


def test_images_of_native_transforms_are_mixed_in_their_slot() -> None:
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), np.uint8)
    plain = sp.Pipeline(sp.Arrays(image=images, label=np.arange(12) % 2)).map(sp.CenterCrop(4)).batch(6)
    mixed = plain.map_batch(sp.MixUp(1.0, 2))
    for batch, other in zip(epoch(mixed), epoch(plain), strict=True):
        share = batch["label"].max(axis=1)
        assert batch["image"].dtype == np.uint8
        first = [other["image"][row].astype(float) for row in (0, 5)]
        own = batch["label"][0, other["label"][0]]
        expected = own * first[0] + (1 - own) * first[1]
        assert np.abs(batch["image"][0] - expected).max() <= 0.51
        assert ((share >= 0.5) & (share <= 1)).all()


def test_explain_names_the_exception() -> None:
    text = " ".join(MIXED.plan(memory="512MiB").explain().split())
    assert "map_batch(MixUp(alpha=0.8, num_classes=5, image='image', label='label'))" in text
    assert "with another world size or batch size, each sample is mixed with a different one" in text
    other = MIXED.batch(ROWS).map_batch(sp.MixUp(0.9, CLASSES))
    assert other.plan(memory="512MiB").digest != MIXED.plan(memory="512MiB").digest


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (sp.MixUp(0, 3), "alpha must be a number above 0"),
        (sp.MixUp(float("inf"), 3), "alpha must be a number above 0"),
        (sp.CutMix("1", 3), "alpha must be a number above 0"),  # type: ignore[arg-type]
        (sp.CutMix(1, 0), "num_classes must be the number of classes"),
        (sp.MixUp(1, 3, image=""), "names of fields"),
        (sp.CutMix(1, 3, layout="CHW"), "layout must be"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_what_cant_be_asked_is_said_by_the_plan(function: Any, words: str) -> None:
    with pytest.raises(sp.PlanError, match=words):
        sp.Pipeline(sp.MapSource(Photos())).batch(4).map_batch(function).plan(memory="512MiB")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"image": np.zeros((ROWS, 3, 4, 4))}, "'image' must be .*, got float64"),
        ({"image": np.zeros((ROWS, 7, 4, 5), np.float32)}, "pass layout='NCHW' or 'NHWC'"),
        ({"image": np.zeros((ROWS, 12), np.float32)}, "must have four axes, got 2"),
        ({"image": [1, 2]}, "'image' must be .*, got list"),
        ({"label": np.full(ROWS, CLASSES)}, "'label' is 5, but classes go from 0 to 4"),
        ({"label": np.zeros((ROWS, 3), np.float32)}, "one class or 5 class weights per row"),
        ({"label": np.zeros(ROWS)}, "'label' must be integers"),
    ],
    ids=str,
)
def test_batches_that_cant_be_mixed(changed: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        sp.CutMix(1.0, CLASSES)({**batch_of("NCHW", np.float32), **changed}, generator(0))


@pytest.mark.parametrize(
    ("mixing", "missing"),
    [(sp.MixUp(0.2, num_classes=4), "image"), (sp.CutMix(1.0, num_classes=4, image="a", label="c"), "c")],
)
def test_fields_that_are_missing_are_named_by_the_plan(mixing: sp.MixUp | sp.CutMix, missing: str) -> None:
    source = sp.Arrays(image=np.zeros((4, 8, 8, 3), np.uint8), label=np.arange(4))
    views = sp.Pipeline(source).map(sp.Views(a=[sp.CenterCrop(4)], b=[sp.CenterCrop(2)])).batch(4)
    with pytest.raises(
        sp.PlanError, match=f"mixes the field '{missing}', but the fields are a, b, label. Name"
    ):
        views.map_batch(mixing).plan()


def test_a_call_with_other_fields_names_them() -> None:
    with pytest.raises(TypeError, match="but the fields are a, label"):
        sp.MixUp(0.2, num_classes=4)({"a": np.zeros(1), "label": np.zeros(1, int)}, np.random.default_rng(0))
