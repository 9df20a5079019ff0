"""Bad samples of the drop-in DataLoader: others of their batch take their place, up to a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, ROWS, THREADS, Count, Of


def sample(index: int) -> Any:
    if index % 9 == 4:
        raise OSError(f"no photo {index}")
    return torch.full((1 + index // 8,), index)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("more", [{}, {"collate_fn": data.default_collate}], ids=["default", "collate_fn"])
def test_another_sample_of_the_batch_takes_a_bad_ones_place(
    workers: int, more: dict[str, Any], tmp_path: Path
) -> None:
    settings = THREADS if workers else MEMORY
    loader = standpipe.torch.DataLoader(
        Of(sample),
        4,
        num_workers=workers,
        on_error=sp.Replace(at_most=0.2),
        error_log=tmp_path / "bad.jsonl",
        **more,
        **settings,
    )
    for epoch in range(2):
        batches = [batch[:, 0].tolist() for batch in loader]
        expected = [list(range(first, min(first + 4, ROWS))) for first in range(0, ROWS, 4)]
        for batch, named in zip(batches, expected, strict=True):
            assert len(batch) == len(named)
            good = [index for index in named if index % 9 != 4]
            assert [value for value, index in zip(batch, named, strict=True) if index % 9 != 4] == good
            assert set(batch) == set(good)
        assert [bad.index for bad in loader.bad_samples] == [4, 13, 22] * (1 + epoch)
        assert "no photo 4" in loader.bad_samples[0].reason
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 6


def test_a_warning_points_to_who_asks_for_a_batch() -> None:
    loader = standpipe.torch.DataLoader(
        Of(sample), 8, on_error=sp.Replace(at_most=0.2), error_log="/dev/full", **MEMORY
    )
    with pytest.warns(UserWarning, match="can't be written any more") as told:
        next(iter(loader))
    assert [each.filename for each in told] == [__file__]


def test_too_many_end_it() -> None:
    loader = standpipe.torch.DataLoader(Of(sample), 4, on_error=sp.Replace(at_most=2), **MEMORY)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    with pytest.raises(sp.TooManyBadSamples, match="OSError"):
        next(batches)


def test_what_cant_be_replaced_is_an_error() -> None:
    always = standpipe.torch.DataLoader(
        Of(lambda index: 1 // 0), 4, on_error=sp.Replace(at_most=1.0), **MEMORY
    )
    with pytest.raises(sp.SampleError, match="ZeroDivisionError"):
        next(iter(always))
    alone = standpipe.torch.DataLoader(Of(sample), 1, sampler=[4], on_error=sp.Replace(at_most=1.0), **MEMORY)
    with pytest.raises(sp.SampleError, match="no photo 4"):
        next(iter(alone))
    with pytest.raises(sp.PlanError, match="stream"):
        next(iter(standpipe.torch.DataLoader(Count(), on_error=sp.Replace(at_most=1), **MEMORY)))
    with pytest.raises(sp.PlanError, match="on_error"):
        next(iter(standpipe.torch.DataLoader(Of(sample), on_error="skip", **MEMORY)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{}, {"num_workers": 2, "executor": "thread"}], ids=["inline", "threads"]
)
@pytest.mark.parametrize(
    "with_value", [lambda index, x: x, lambda index, x: {"index": index, "x": x}], ids=["alone", "dict"]
)
def test_no_value_is_an_error_as_with_torch(with_value: Any, settings: dict[str, Any]) -> None:
    """torch's ``default_collate`` doesn't take None."""
    samples = [with_value(index, None if index == 11 else 100 + index) for index in range(ROWS)]
    loader = standpipe.torch.DataLoader(Of(samples), 4, **settings, **MEMORY)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(sp.TransformError, match="NoneType"):
        next(batches)
