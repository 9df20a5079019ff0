"""Code that raises what nobody expects, and values that can't travel: an error that names the sample, never a wait."""

import io
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import encoded, picture
from preloaded import SERVER
from samples import Samples

WORKERS = [
    pytest.param({"executor": "thread", "num_workers": 2}, id="threads"),
    pytest.param({"executor": "process", "num_workers": 2, "mp_context": SERVER}, id="processes"),
]


class Panic(BaseException):
    """What other languages' errors come as: no Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def refuse(index: int) -> NoReturn:
    raise ValueError(f"{index} can't be made again")


class Fragile:
    """An object that pickles, and doesn't unpickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, (9,)


def raising(error: BaseException) -> Samples:
    def sample(index: int) -> int:
        if index == 9:
            raise error
        return index

    return Samples(sample, length=24)


def loader(dataset: Samples, **settings: Any) -> sp.Loader:
    return sp.Pipeline(sp.MapSource(dataset, fields="x")).batch(4).loader(memory="1GiB", **settings)


@pytest.mark.parametrize("settings", WORKERS)
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Panic("a panic"), "Panic: a panic"),
        (Mute(), "Mute"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_code_raises_names_the_sample_and_the_workers_go_on(
    error: BaseException, says: str, settings: dict[str, Any]
) -> None:
    with loader(raising(error), **settings) as batches:
        iterator = iter(batches)
        next(iterator), next(iterator)
        with pytest.raises(sp.SampleError, match=rf"{says}.*record 9"):
            next(iterator)
        batches.skip_steps(1)
        assert [batch["x"].tolist() for batch in batches.steps(3)] == [
            list(range(first, first + 4)) for first in (12, 16, 20)
        ]


@pytest.mark.parametrize("at", [0, 9])
@pytest.mark.parametrize("settings", [*WORKERS, pytest.param({"executor": "inline"}, id="inline")])
def test_a_value_that_becomes_no_array_names_its_sample(settings: dict[str, Any], at: int) -> None:
    """A picture that can't be loaded: nobody tries before its shape is asked for, of the first sample too."""
    jpeg = encoded(picture(1))

    def sample(index: int) -> Image.Image:
        return Image.open(io.BytesIO(jpeg[:-200] if index == at else jpeg))

    dataset = Samples(sample, length=24)
    with loader(dataset, **settings) as batches:
        if at:
            batches.skip_steps(at // 4)
        with pytest.raises(sp.TransformError, match=f"OSError: .*truncated.*record {at}"):
            next(iter(batches))
    replaces = sp.Pipeline(sp.MapSource(dataset, fields="x")).on_error(sp.Replace(at_most=1)).batch(4)
    with replaces.loader(memory="1GiB", **settings) as batches:
        assert len(list(batches)) == 6
        assert [each.index for each in batches.bad_samples] == [at]


@pytest.mark.parametrize("settings", WORKERS)
def test_a_dataset_that_returns_nothing(settings: dict[str, Any]) -> None:
    with loader(Samples(lambda index: None if index == 9 else index, length=24), **settings) as batches:
        batches.skip_steps(2)
        with pytest.raises(sp.SampleError, match=r"dataset\[9\] returned None; return the sample"):
            next(iter(batches))


def test_another_dtype_of_the_same_shape_is_no_matter_of_padding() -> None:
    with (
        loader(
            Samples(lambda index: np.zeros(3, "f4" if index < 9 else "f8"), length=24), executor="inline"
        ) as batches,
        pytest.raises(
            sp.TransformError, match=r"float64, and \(3\) float32 .*the same dtype in every sample"
        ),
    ):
        list(batches)


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (lambda index: [threading.Lock()], r"'x', of the type lock, can't be sent.*thread.*record 0"),
        (lambda index: [Fragile()], "can't be rebuilt here: ValueError: 9 can't be made again"),
    ],
    ids=["lock", "fragile"],
)
def test_values_that_do_not_travel(sample: Callable[[int], Any], says: str) -> None:
    with (
        loader(Samples(sample, length=24), executor="process", num_workers=2) as batches,
        pytest.raises(sp.TransformError, match=says),
    ):
        list(batches)
