"""Texts of a source: each batch has a list of str, the same for all kinds of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
import standpipe.torch
from fleets import Makers
from photos import encoded, picture, write_list
from preloaded import SERVER
from sized import Sized

COUNT = 23
CAPTIONS = ["", "a\0b", "漢字 😀", "tail\0", "é" * 50, *(f"caption {number}" for number in range(5, COUNT))]
SETTINGS: Any = {"memory": "256MiB"}


def images(*, texts: Any = CAPTIONS) -> sp.Arrays:
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 12, 12, 3), np.uint8)
    return sp.Arrays(image=pixels, caption=texts)


def cropped(source: Any = None) -> sp.Pipeline:
    return sp.Pipeline(source or images()).shuffle(seed=7).map(sp.RandomResizedCrop(8))


def with_length(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "length": len(sample["caption"])}


def rows(loader: sp.Loader, epochs: int = 1) -> list[tuple[int, str, bytes]]:
    """The record, text and pixels of each row; ``caption`` must be a list of str of the batch's rows."""
    found: list[tuple[int, str, bytes]] = []
    for _ in range(epochs):
        for batch in loader:
            assert type(batch["caption"]) is list
            pixels = [image.tobytes() for image in batch["image"]]
            found += zip(batch["index"].tolist(), batch["caption"], pixels, strict=True)
    return found


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_all_kinds_of_workers_give_the_same_texts(last_batch: Any) -> None:
    pipeline = cropped().batch(5, last_batch=last_batch)
    with pipeline.loader(num_workers=1, **SETTINGS) as loader:
        assert loader.plan.samples.program is None
        expected = rows(loader, epochs=2)
    assert [text for _, text, _ in expected] == [CAPTIONS[index] for index, _, _ in expected]
    with pipeline.loader(num_workers=4, **SETTINGS) as loader:
        assert rows(loader, epochs=2) == expected
    with pipeline.loader(executor="inline", **SETTINGS) as loader:
        assert rows(loader, epochs=2) == expected
    fleet = Makers([pipeline.plan(num_workers=2, **SETTINGS)] * 2)
    with pipeline.loader(fleet=fleet, **SETTINGS) as loader:
        assert rows(loader, epochs=2) == expected


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_functions_get_the_text_of_their_sample(executor: Any) -> None:
    pipeline = cropped().map(with_length).batch(5)
    workers = {"executor": executor, "num_workers": 2, "mp_context": SERVER}
    with pipeline.loader(**workers, **SETTINGS) as loader:
        for batch in loader:
            assert batch["caption"] == [CAPTIONS[index] for index in batch["index"]]
            assert batch["length"].tolist() == [len(text) for text in batch["caption"]]


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_a_bad_samples_text_is_replaced_with_it(tmp_path: Path, executor: Any) -> None:
    files = [b"bad" if number in (2, 3, 17) else encoded(picture(number)) for number in range(COUNT)]
    source = Sized(write_list(tmp_path, files), sp.Arrays(caption=CAPTIONS))
    pipeline = cropped(source).on_error(sp.Replace(at_most=9)).batch(5, last_batch="partial")
    with pipeline.loader(executor=executor, num_workers=2, **SETTINGS) as loader:
        assert (loader.plan.samples.program is None) == (executor == "thread")
        found = rows(loader)
        assert {bad.index for bad in loader.bad_samples} == {2, 3, 17}
    assert len(found) == COUNT
    assert [text for _, text, _ in found] == [CAPTIONS[index] for index, _, _ in found]


def test_a_resumed_run_has_the_same_texts_on_other_ranks() -> None:
    pipeline = cropped().batch(4, last_batch="pad")
    with pipeline.loader(num_workers=1, **SETTINGS) as loader:
        expected = rows(loader)
    with pipeline.loader(num_workers=2, **SETTINGS) as loader:
        first = next(iter(loader))
        state = loader.state_dict()
    parts: list[list[tuple[int, str, bytes]]] = []
    for rank in range(2):
        with replaced(pipeline, rank).loader(num_workers=3, **SETTINGS) as loader:
            loader.load_state_dict(state)
            parts.append(rows(loader))
    steps = [part[step : step + 2] for step in range(0, len(parts[0]), 2) for part in parts]
    assert first["caption"] == [text for _, text, _ in expected[:4]]
    assert [row for step in steps for row in step] == expected[4:]


def replaced(pipeline: sp.Pipeline, rank: int) -> sp.Pipeline:
    return pipeline.batch(2, last_batch="pad").shard(rank, 2)


def test_padding_repeats_texts_as_it_repeats_all_fields() -> None:
    with cropped().batch(5, last_batch="pad").loader(**SETTINGS) as loader:
        *_, last = batches = list(loader)
    assert last["valid"].tolist() == [True, True, True, False, False]
    assert last["caption"][3:] == batches[0]["caption"][:2]


@pytest.mark.parametrize("executor", [None, "inline"])
def test_texts_alone_are_a_data_set(executor: Any) -> None:
    source = sp.Arrays(caption=CAPTIONS)
    with sp.Pipeline(source).batch(COUNT).loader(executor=executor, **SETTINGS) as loader:
        assert loader.peek()["caption"] == CAPTIONS
        assert next(iter(loader))["caption"] == CAPTIONS


def test_views_and_lists_of_images_are_beside_texts() -> None:
    views = sp.Views(a=[sp.RandomResizedCrop(8)], b=[sp.CenterCrop(4)])
    with sp.Pipeline(images()).map(views).batch(COUNT).loader(**SETTINGS) as loader:
        batch = next(iter(loader))
    assert sorted(batch) == ["a", "b", "caption", "index", "valid"]
    assert batch["caption"] == CAPTIONS
    lists = sp.Pipeline(images()).batch(COUNT, collate={"image": list, "caption": list})
    with lists.loader(executor="inline", **SETTINGS) as loader:
        assert next(iter(loader))["caption"] == CAPTIONS


def test_mixtures_and_copies_have_the_texts_of_their_records() -> None:
    other = images(texts=[text.upper() for text in CAPTIONS])
    pairs = [(sp.Pipeline(images()).shuffle(seed=7), 0.5), (sp.Pipeline(other).shuffle(seed=8), 0.5)]
    mixture = sp.Pipeline(sp.Mixture(pairs), seed=1).map(sp.RandomResizedCrop(8))
    with mixture.batch(4).loader(**SETTINGS) as loader:
        batches = list(loader)
    both = [CAPTIONS, [text.upper() for text in CAPTIONS]]
    for batch in batches:
        assert batch["caption"] == [both[index // COUNT][index % COUNT] for index in batch["index"]]
    assert {source for batch in batches for source in batch["source"].tolist()} == {0, 1}


def test_torchs_fields_name_texts() -> None:
    loader = standpipe.torch.loader(cropped().batch(5), fields=("image", "caption"), **SETTINGS)
    with cropped().batch(5).loader(**SETTINGS) as plain:
        expected = [batch["caption"] for batch in plain]
    assert [caption for _, caption in loader] == expected
    loader.close()


def test_the_plan_says_that_texts_are_lists_and_counts_them() -> None:
    plan = cropped(images(texts=["x" * 1000] * COUNT)).batch(5).plan(**SETTINGS)
    assert "caption: a list of 5, outside the slots" in plan.explain()
    assert plan.memory.forecast.waiting >= 5000
    assert plan.memory.forecast.index >= 1000 * COUNT


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sp.Pipeline(sp.Arrays(image=["a"])).map(sp.CenterCrop(8)).batch(1),
            "CenterCrop.*can't take the field 'image', which is list of str",
        ),
        (
            lambda: cropped().batch(4, collate={"caption": sp.Pad(max_shape=9)}),
            "needs arrays, but 'caption' is a list of str",
        ),
        (
            lambda: cropped(sp.Concat(images(), sp.Arrays(image=np.zeros((1, 12, 12, 3), np.uint8)))).batch(
                4
            ),
            "has no field 'caption'",
        ),
        (lambda: cropped().filter("caption == 'a'").batch(4), "caption"),
    ],
    ids=["images", "pad", "concat", "filter"],
)
def test_texts_are_no_numbers(make: Any, words: str) -> None:
    with pytest.raises(sp.PlanError, match=words):
        make().plan(**SETTINGS)


def test_a_text_whose_name_is_of_places_doesnt_move() -> None:
    source = sp.Arrays(image=np.zeros((2, 12, 12, 3), np.uint8), polygon=["1 2 3 4", ""])
    with cropped(source).batch(2).loader(**SETTINGS) as loader:
        assert sorted(next(iter(loader))["polygon"]) == ["", "1 2 3 4"]
