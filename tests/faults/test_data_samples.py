"""Bad samples of Python code: shapes that differ, functions and datasets that return something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from samples import Samples

PYTHON = [
    pytest.param("inline", id="inline"),
    pytest.param("thread", id="threads"),
    pytest.param("process", id="processes"),
]


def error_of(pipeline: sp.Pipeline, way: str) -> sp.SampleError:
    with (
        pytest.raises(sp.SampleError) as caught,
        pipeline.loader(memory="1GiB", num_workers=2, executor=way) as batches,
    ):
        list(batches)
    return caught.value


@pytest.mark.parametrize("way", PYTHON)
@pytest.mark.parametrize(
    ("later", "says"),
    [
        (np.zeros(4), r"'x' is \(4\) float64, and \(3\) float64 in record 0; "),
        (np.zeros((3, 1)), r"'x' is \(3, 1\) float64, and \(3\) float64 in record 0; "),
        (np.zeros(3, np.complex64), r"'x' is \(3\) complex64, and \(3\) float64 in record 0; "),
    ],
    ids=["shape", "axes", "dtype"],
)
def test_mixed_shapes_and_dtypes_in_a_batch(later: Any, says: str, way: str) -> None:
    """The error names both samples by their numbers, and both shapes."""
    source = sp.MapSource(Samples(lambda index: later if index == 5 else np.zeros(3)), fields="x")
    error = error_of(sp.Pipeline(source).batch(8), way)
    assert re.match(says, error.reason)
    assert (error.place, error.index) == ("batch", 5)


def test_mixed_shapes_against_a_declared_one() -> None:
    """Where shapes are declared, the error says so."""
    spec = {"x": sp.ArraySpec((3,), np.dtype(np.float64))}
    source = sp.MapSource(Samples(lambda index: np.zeros(4 if index == 5 else 3)), fields="x", spec=spec)
    assert r"(3) float64 as declared" in error_of(sp.Pipeline(source).batch(8), "inline").reason


@pytest.mark.parametrize("way", PYTHON)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value: None, r"returned None; return the new value \(transform, record 0\)"),
        (
            lambda value, more: value,
            r"TypeError: .* missing 1 required positional argument.*\(transform, record 0\)",
        ),
        (lambda: 1, r"TypeError: .*takes 0 positional arguments but 1 was given \(transform, record 0\)"),
        (
            lambda value: (each for each in value),
            r"'x' is a generator; return the value.*\(transform, record 0\)",
        ),
    ],
    ids=["None", "too many arguments", "no arguments", "generator"],
)
def test_user_function_returns_none_has_a_wrong_arity_or_is_a_generator(
    change: Callable[..., Any], says: str, way: str
) -> None:
    """The error names the function and the sample."""
    source = sp.MapSource(Samples(lambda index: np.zeros(3)), fields="x")
    error = error_of(sp.Pipeline(source).map(change, field="x").batch(4), way)
    assert re.search(says, str(error))
    assert "test_data_samples.<lambda>, field='x'" in str(error)


@pytest.mark.parametrize("way", PYTHON)
@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (lambda index: None, r"dataset\[0\] returned None"),
        (lambda index: (1, 2, 3), r"a sample of 3 values; name them, as fields=\('x', 'y', 'field2'\)"),
        (lambda index: (1,), r"a sample of 1 values, and fields=\('x', 'y'\) are more"),
        (lambda index: (1, (each for each in "ab")), "the dataset: 'y' is a generator"),
        (lambda index: {}, "the sample has no fields"),
    ],
    ids=["None", "too many values", "too few values", "generator", "nothing"],
)
def test_dataset_returns_none_has_a_wrong_arity_or_is_a_generator(
    sample: Callable[[int], Any], says: str, way: str
) -> None:
    """The error names the dataset and the sample."""
    error = error_of(sp.Pipeline(sp.MapSource(Samples(sample), fields=("x", "y"))).batch(4), way)
    assert re.search(rf"{says}.*record 0\)", str(error))


@pytest.mark.parametrize("way", PYTHON)
def test_function_of_a_batch_that_is_a_generator(way: str) -> None:
    """Functions of whole batches likewise."""
    pipeline = sp.Pipeline(sp.MapSource(Samples(lambda index: 1), fields="x")).batch(4)
    error = error_of(pipeline.map_batch(lambda batch: (each for each in batch)), way)
    assert "map_batch(" in error.reason
    assert "'x' is a generator" in error.reason


@pytest.mark.parametrize("way", PYTHON)
@pytest.mark.parametrize("mapped", [False, True], ids=["memory", "file"])
def test_user_function_that_changes_a_view_of_the_source(tmp_path: Path, way: str, mapped: bool) -> None:
    """It gets the rows as they lie there, read-only: an error that names it, and the source stays as it is."""
    rows = np.zeros((4, 3))
    np.save(tmp_path / "rows.npy", rows)

    def change(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        x += 1
        return x

    source = sp.Arrays(x=tmp_path / "rows.npy" if mapped else rows)
    error = error_of(sp.Pipeline(source).map(change, field="x").batch(4), way)
    assert (error.place, error.index) == ("transform", 0)
    assert "change" in error.reason
    assert "ValueError" in error.reason
    assert "read-only" in error.reason
    assert not rows.any()
    assert not np.load(tmp_path / "rows.npy").any()
