"""Samples with a field that is None: bad samples, or entries of a list, and never what the slot had before.

Every record has another value, and a few slots are filled again and again in a shuffled order. So a row that wasn't
written has the value of another record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from fleets import Makers
from photos import encoded
from preloaded import SERVER
from samples import Samples

RECORDS, EPOCHS = 40, 3
SETTINGS: dict[str, Any] = {"memory": "1GiB", "num_workers": 1, "prefetch": 1}
EXECUTORS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread"}, id="threads"),
    pytest.param({"executor": "process", "mp_context": SERVER}, id="processes"),
]
NONE = frozenset(range(3, RECORDS, 7))
X = {"x": sp.ArraySpec((), np.dtype(np.int64))}


def x_of(index: int) -> int | None:
    return None if index in NONE else 100 + index


def x_or_none_first(index: int) -> int | None:
    return None if index == 0 else 100 + index


@functools.cache
def picture(index: int) -> np.ndarray[Any, Any]:
    return np.full((12, 12, 3), 6 * index, np.uint8)


class Columns(Samples):
    """Samples that also come many at once, field by field."""

    def __getcolumns__(self, indices: Iterable[int]) -> dict[str, Any]:
        values = [self.sample(index)["x"] for index in indices]
        return {"x": values if None in values else np.array(values)}


def of_map(sample: Callable[[int], Any], **settings: Any) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(Samples(sample, RECORDS), **settings))


def of_images(image: Callable[[int], Any], **settings: Any) -> sp.Pipeline:
    return of_map(lambda index: {"image": image(index), "x": x_of(index)}, **settings).map(sp.CenterCrop(8))


def fields_of(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": x_of(sample["x"] - 100), "y": 0.5}


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "twice": batch["x"] * 2}


def padded(how: Any) -> sp.Pipeline:
    return of_map(lambda index: {"x": None if index in NONE else [100 + index] * (1 + index % 3)}).batch(
        8, collate={"x": how}
    )


WAYS: dict[str, Callable[[Path], sp.Pipeline]] = {
    "dicts": lambda folder: of_map(lambda index: {"x": x_of(index)}),
    "tuples": lambda folder: of_map(lambda index: (1, x_of(index)), fields=("one", "x")),
    "floats": lambda folder: of_map(lambda index: {"x": None if index in NONE else 100.0 + index}),
    "arrays": lambda folder: of_map(lambda index: {"x": None if index in NONE else np.full(3, 100 + index)}),
    "declared": lambda folder: of_map(lambda index: {"x": x_of(index)}, spec=X),
    "columns": lambda folder: sp.Pipeline(sp.MapSource(Columns(lambda index: {"x": x_of(index)}, RECORDS))),
    "function": lambda folder: sp.Pipeline(sp.Arrays(x=100 + np.arange(RECORDS))).map(fields_of),
    "field of a function": lambda folder: of_map(lambda index: {"x": 0, "i": index}).map(
        lambda sample: {**sample, "x": x_of(sample["i"])}
    ),
    "pixels": lambda folder: of_images(picture),
    "JPEGs": lambda folder: of_images(lambda index: encoded(picture(index)), encoded="image"),
    "no JPEG": lambda folder: of_map(
        lambda index: {"image": None if index in NONE else encoded(picture(index)), "x": 100 + index},
        encoded="image",
    ).map(sp.CenterCrop(8)),
    "no mask": lambda folder: of_map(
        lambda index: {
            "image": picture(index),
            "mask": None if index in NONE else picture(index)[:, :, 0],
            "x": 100 + index,
        }
    ).map(sp.CenterCrop(8)),
    "cached": lambda folder: of_map(lambda index: {"x": x_of(index)}).cache(
        sp.Cache("none", memory="16MiB", directory=folder)
    ),
    "function of the batch": lambda folder: of_map(lambda index: {"x": x_of(index)}).map_batch(doubled),
    "padded": lambda folder: padded(sp.Pad(max_shape=4)),
    "joined": lambda folder: padded(sp.Ragged(max_values=64)),
}


def rows_of(batch: dict[str, Any]) -> Iterator[tuple[int, set[float]]]:
    """Yield each row's record, and the different values of its field ``x``."""
    parts = np.split(batch["x"], batch["x_offsets"][1:-1]) if "x_offsets" in batch else batch["x"]
    for row, index in enumerate(batch["index"].tolist()):
        x = parts[row][: batch["x_length"][row]] if "x_length" in batch else parts[row]
        yield index, set(np.ravel(x).tolist())


def check_rows(loader: sp.Loader) -> None:
    """Check that each row of some epochs has its own record's values, and that bad samples are those with None."""
    for _ in range(EPOCHS):
        for batch in loader:
            for row, (index, x) in enumerate(rows_of(batch)):
                assert index not in NONE
                assert x == {100 + index}
                for name in batch.keys() & {"image", "mask"}:
                    assert abs(batch[name][row].astype(int) - 6 * index).max() <= 1
            if "twice" in batch:
                assert (batch["twice"] == 2 * batch["x"]).all()
    bad = {(each.epoch, each.index) for each in loader.bad_samples}
    assert bad == {(epoch, index) for epoch in range(EPOCHS) for index in NONE}


@pytest.mark.parametrize("way", WAYS)
def test_a_none_is_replaced_and_nothing_else_is_delivered(way: str, tmp_path: Path) -> None:
    pipeline = WAYS[way](tmp_path)
    pipeline = (pipeline if pipeline.batch_rows else pipeline.batch(8)).shuffle(seed=1)
    with pipeline.on_error(sp.Replace(at_most=1.0)).loader(executor="inline", **SETTINGS) as loader:
        check_rows(loader)


@pytest.mark.parametrize("settings", EXECUTORS[1:])
@pytest.mark.parametrize("way", ["columns", "JPEGs", "padded"])
def test_workers_deliver_nothing_else(way: str, settings: dict[str, Any], tmp_path: Path) -> None:
    pipeline = WAYS[way](tmp_path)
    pipeline = (pipeline if pipeline.batch_rows else pipeline.batch(8)).shuffle(seed=1)
    with pipeline.on_error(sp.Replace(at_most=1.0)).loader(**settings, **SETTINGS) as loader:
        check_rows(loader)


def test_makers_of_a_fleet_deliver_nothing_else(tmp_path: Path) -> None:
    pipeline = WAYS["dicts"](tmp_path).batch(8).shuffle(seed=1).on_error(sp.Replace(at_most=1.0))
    makers = Makers([pipeline.plan(executor="thread", **SETTINGS) for _ in range(2)])
    with pipeline.loader(memory="1GiB", fleet=makers) as loader:
        check_rows(loader)


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("dicts", r"'x' is None, and \(\) int64 in record 0; give it a value .*collate={'x': list}\)"),
        ("declared", r"'x' is None, and \(\) int64 as declared; give it a value"),
        ("columns", r"'x' is None, and \(\) int64 in record 0; give it a value"),
        ("JPEGs", r"'x' is None, and \(\) int64 in record 0; give it a value"),
        ("padded", "'x' is None; give it a value"),
        ("joined", "'x' is None; give it a value"),
        ("no mask", r"'mask' must be class numbers \(H, W\) uint8, .*, but it is NoneType"),
    ],
)
def test_the_error_names_field_and_record(way: str, says: str, tmp_path: Path) -> None:
    pipeline = WAYS[way](tmp_path)
    pipeline = pipeline if pipeline.batch_rows else pipeline.batch(8)
    with (
        pipeline.loader(executor="inline", **SETTINGS) as loader,
        pytest.raises(sp.SampleError, match=rf"{says}.*record 3") as failed,
    ):
        list(loader)
    assert failed.value.index == 3


def test_a_stream_names_the_sample() -> None:
    source = sp.IterableSource(lambda: ({"x": x_of(index)} for index in range(RECORDS)))
    with sp.Pipeline(source).batch(8).loader(executor="inline", **SETTINGS) as loader:
        for _ in range(2):
            with pytest.raises(sp.SampleError, match=r"'x' is None.*record 3"):
                next(iter(loader))


@pytest.mark.parametrize("settings", EXECUTORS)
def test_a_field_without_a_value_in_the_first_sample(settings: dict[str, Any]) -> None:
    """The error names field, record and ways out; each way out works."""
    pipeline = of_map(lambda index: {"x": x_or_none_first(index)}).batch(8)
    with (
        pipeline.loader(**settings, **SETTINGS) as loader,
        pytest.raises(
            sp.PlanError, match=r"'x' is None in the first sample, record 0, .*give it a value"
        ) as no,
    ):
        next(iter(loader))
    for way in ("map()", "collate={'x': list}", "spec="):
        assert way in str(no.value)
    assert "on_error(sp.Replace" in no.value.__notes__[0]

    declared = of_map(lambda index: {"x": x_or_none_first(index)}, spec=X).batch(8)
    with (
        declared.loader(**settings, **SETTINGS) as loader,
        pytest.raises(sp.SampleError, match=r"'x' is None.*record 0"),
    ):
        next(iter(loader))
    listed = pipeline.batch(8, collate={"x": list})
    with listed.loader(**settings, **SETTINGS) as loader:
        assert next(iter(loader))["x"] == [None, *range(101, 108)]
    for replaced in (pipeline.on_error(sp.Replace(at_most=1)), declared.on_error(sp.Replace(at_most=1))):
        with replaced.loader(**settings, **SETTINGS) as loader:
            batches = list(loader)
            assert [bad.index for bad in loader.bad_samples] == [0]
        assert all((batch["x"] == 100 + batch["index"]).all() for batch in batches)


def test_a_first_value_that_is_none_is_no_matter_of_the_other_fields() -> None:
    """A function that makes the batch gets samples as they are, and a function of a sample may drop a field."""
    pipeline = of_map(lambda index: {"x": x_or_none_first(index), "y": index})
    for made in (
        pipeline.batch(8, collate_fn=lambda samples: {"y": np.array([each["y"] for each in samples])}),
        pipeline.map(lambda sample: {"y": sample["y"]}).batch(8),
    ):
        with made.loader(executor="inline", **SETTINGS) as loader:
            assert next(iter(loader))["y"].tolist() == list(range(8))


@pytest.mark.parametrize("settings", EXECUTORS)
def test_a_text_may_be_none(settings: dict[str, Any]) -> None:
    pipeline = of_map(lambda index: {"text": None if index in NONE else f"{index}", "x": index}).batch(8)
    expected = [None if index in NONE else f"{index}" for index in range(RECORDS)]
    with pipeline.loader(**settings, **SETTINGS) as loader:
        for _ in range(EPOCHS):
            assert [text for batch in loader for text in batch["text"]] == expected
