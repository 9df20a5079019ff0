"""Rows that fill up a last batch are never counted as data by a loop that doesn't know of them.

``test_frameworks.py`` counts what Lightning, Accelerate and the Trainer get; the tests of JAX and Ray count theirs.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
import standpipe.torch

RECORDS, ROWS = 70, 64
SETTINGS: dict[str, Any] = {"memory": "256MiB", "num_workers": 1}


def table(records: int = RECORDS, rows: int = ROWS, **how: Any) -> sp.Pipeline:
    image = np.zeros((records, 2, 2, 3), np.uint8)
    return sp.Pipeline(sp.Arrays(image=image, label=np.arange(records))).batch(rows, **how)


def loader(pipeline: sp.Pipeline, **settings: Any) -> standpipe.torch.TorchLoader:
    return standpipe.torch.loader(pipeline, **{**SETTINGS, **settings})


def sizes(batches: Any) -> list[int]:
    return [len(label) for _, label in batches]


def test_a_loop_for_torch_gets_every_record_once() -> None:
    batches = loader(table())
    assert len(batches) == 2
    assert [label.tolist() for _, label in batches] == [[*range(ROWS)], [*range(ROWS, RECORDS)]]
    assert "6 rows in the last one" in batches.dataset.loader.explain()
    assert [len(batch["label"]) for batch in loader(table(), fields=None)] == [64, 6]


def test_the_drop_in_gives_as_many() -> None:
    drop_in = standpipe.torch.DataLoader(
        torch.utils.data.TensorDataset(torch.zeros(RECORDS), torch.arange(RECORDS)), ROWS
    )
    assert sizes(drop_in) == [64, 6]


def test_numpy_marks_what_it_repeats() -> None:
    with table().loader(**SETTINGS) as batches:
        assert [(len(batch["label"]), int(batch["valid"].sum())) for batch in batches] == [(64, 64), (64, 6)]


PARTS = [sp.Pipeline(table(RECORDS).source), sp.Pipeline(table(RECORDS).source)]


def join(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (table(last_batch="drop"), [64]),
        (table().shuffle(seed=1), [64]),
        (sp.Pipeline(sp.Mixture(dict.fromkeys(PARTS, 1))).batch(ROWS), [64, 64]),
        (sp.Pipeline(table().source).repeat_each(2).batch(ROWS), [64, 64, 12]),
        (sp.Pipeline(table().source).batch(budget=9000, length_column="label"), None),
        (table(collate={"label": list}), [64, 6]),
        (table(collate_fn=join), [64, 6]),
        (table().map_batch(lambda batch: batch), [64, 6]),
    ],
)
def test_only_padding_gives_way(pipeline: sp.Pipeline, expected: list[int] | None) -> None:
    found = [len(batch["index"]) for batch in loader(pipeline, fields=None, executor="thread")]
    assert found == expected or (expected is None and sum(found) == RECORDS)


def test_a_state_goes_on_under_another_tail() -> None:
    """Saved where the end is padded, loaded where it is short, and the other way round."""
    padded, short = (loader(table(rows=16, **how), fields="label") for how in ({"last_batch": "pad"}, {}))
    for epoch, (one, other, end) in enumerate(((padded, short, 6), (short, padded, 16))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batches = iter(one)
            first = [next(batches) for _ in range(2)]
            other.load_state_dict(one.state_dict())
            rest = list(other)
        assert torch.cat([*first, *rest])[:RECORDS].tolist() == [*range(RECORDS)]
        assert [len(batch) for batch in rest] == [16, 16, end]
        assert other.state_dict()["epoch"] == epoch + 1


@pytest.mark.parametrize(
    ("pipeline", "rows"),
    [
        (table(), 6),
        (table(rows=35), -1),
        (table(last_batch="pad").shard(1, 2), 70),
        (table(last_batch="drop"), -1),
        (sp.Pipeline(table().source).batch(budget=9000, length_column="label").shard(0, 2), -1),
        (sp.Pipeline(sp.IterableSource(lambda: iter([{"x": 1.0}] * 5))).batch(2), -1),
    ],
)
def test_accelerate_hears_how_many_rows_are_in_the_last_batch(pipeline: sp.Pipeline, rows: int) -> None:
    assert loader(pipeline, fields=None).dataset.remainder == rows


RANKED = table(rows=32)


@pytest.mark.parametrize("pipeline", [RANKED.shard(0, 2), table(last_batch="pad")])
def test_padding_that_fields_hide_is_a_warning_once(pipeline: sp.Pipeline) -> None:
    batches = loader(pipeline)
    ways = r"\"valid\"\).*last_batch=\"drop\".*gather_for_metrics"
    with pytest.warns(UserWarning, match=ways) as said:
        first = sizes(batches)
    assert sizes(batches) == first  # warnings are errors here
    assert sum(first) * pipeline.world_size == 128
    assert [warning.filename for warning in said] == [__file__]


@pytest.mark.parametrize(
    ("pipeline", "fields"),
    [
        (RANKED.shard(1, 2), ("label", "valid")),
        (RANKED.shard(1, 2), {"labels": "label", "mask": "valid"}),
        (RANKED.shard(1, 2), None),
        (table(64, 32).shard(1, 2), "label"),  # nothing is padded
        (table(rows=32, last_batch="drop").shard(1, 2), "label"),
        (RANKED.shuffle(seed=1).shard(1, 2), "label"),
    ],
)
def test_no_warning_without_hidden_padding(pipeline: sp.Pipeline, fields: Any) -> None:
    assert len(list(loader(pipeline, fields=fields))) >= 1
