"""Orders never change: a state saved years ago resumes with the same rows."""

import json
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from standpipe.contracts import Order
from standpipe.order import (
    BlockShuffled,
    Budget,
    BudgetOrder,
    Chain,
    Mixed,
    Sequential,
    Shuffled,
    Split,
    substitute,
)
from standpipe.plan.order import order_of


def golden_of(name: str) -> list[dict]:
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "golden", golden_of("orders"), ids=lambda g: f"{g['num_records']}-{g['seed']}-{g['epoch']}-{g['start']}"
)
def test_a_shuffle_never_changes(golden: dict) -> None:
    order = Shuffled(golden["num_records"], golden["seed"])
    stop = golden["start"] + len(golden["indices"])
    assert order.indices(golden["epoch"], golden["start"], stop).tolist() == golden["indices"]


@pytest.mark.parametrize("golden", golden_of("blocks"), ids=lambda g: f"{g['num_records']}-{g['block']}")
def test_a_block_shuffle_never_changes(golden: dict) -> None:
    order = BlockShuffled(*(golden[name] for name in ("num_records", "seed", "block", "window")))
    stop = golden["start"] + len(golden["indices"])
    assert order.indices(golden["epoch"], golden["start"], stop).tolist() == golden["indices"]


@pytest.mark.parametrize("golden", golden_of("splits"), ids=lambda g: f"{g['num_records']}-{g['side']}")
def test_a_split_never_changes(golden: dict) -> None:
    split = Split(golden["share"], golden["seed"], golden["side"])
    places = np.arange(len(golden["records"]))
    assert split.records(places, golden["num_records"]).tolist() == golden["records"]


@pytest.mark.parametrize("golden", golden_of("batches"), ids=lambda g: f"{g['num_records']}-{g['budget']}")
def test_batches_within_a_budget_never_change(golden: dict) -> None:
    numbers = np.arange(golden["num_records"])
    lengths = 1 + numbers * numbers * 7919 % golden["longest"]
    budget = Budget(golden["budget"], "length", golden["max_batch_size"], golden["pack"])
    chain = Chain(golden["num_records"])
    batches = BudgetOrder.of(budget, lambda start, stop: lengths[start:stop], chain, seed=golden["seed"])
    assert batches.num_positions == golden["num_batches"]
    assert batches.records(golden["epoch"], golden["position"]).tolist() == golden["records"]


LABEL = np.arange(1_000) ** 2 % 11
COLUMNS = sp.Pipeline(sp.Arrays(label=LABEL, weight=(LABEL + 1) / 8))
OF_COLUMNS = {
    "filter": COLUMNS.filter("label < 3"),
    "by": COLUMNS.split(0.5, seed=3, by="label")[0],
    "by, floats": COLUMNS.split(0.5, seed=3, by="weight")[1],
    "stratify": COLUMNS.split(0.9, seed=3, stratify="label")[1],
    "weights": COLUMNS.sample(seed=1, weights="weight"),
    "weights, samples": COLUMNS.sample(seed=2**64 - 1, weights="weight", num_samples=3_000),
    "balance": COLUMNS.sample(seed=1, balance="label"),
    "balance, samples": COLUMNS.sample(seed=2**64 - 1, balance="label", num_samples=50),
    "mix": sp.Pipeline(sp.Mixture({COLUMNS.shuffle(seed=1): 0.7, COLUMNS.skip(900): 0.3}), seed=4),
    "mix, last": sp.Pipeline(sp.Mixture({COLUMNS: 1, COLUMNS.skip(9): 0.1234567}, stopping="last"), seed=4),
}


@pytest.mark.parametrize("golden", golden_of("columns"), ids=lambda g: f"{g['order']}-{g['epoch']}")
def test_an_order_of_columns_never_changes(golden: dict) -> None:
    pipeline = OF_COLUMNS[golden["order"]]
    order = order_of(pipeline, pipeline.source.open())
    stop = golden["start"] + len(golden["indices"])
    assert order.indices(golden["epoch"], golden["start"], stop).tolist() == golden["indices"]


def _order_of_substitutes(name: str) -> Order | BudgetOrder:
    match name:
        case "sequential":
            return Sequential(1_000)
        case "shuffled":
            return Shuffled(1_000, 3)
        case "mixed":
            return Mixed.over((Shuffled(100, 1), Shuffled(50, 2)), np.array([0, 100]), [0.7, 0.3], "first", 5)
        case _:
            lengths = 1 + np.arange(1_000) ** 2 * 7919 % 97
            budget = Budget(500, "length", None, packing=False)
            return BudgetOrder.of(budget, lambda start, stop: lengths[start:stop], Chain(1_000), seed=9)


@pytest.mark.parametrize(
    "golden", golden_of("substitutes"), ids=lambda g: f"{g['order']}-{g['epoch']}-{g['position']}"
)
def test_substitutes_of_bad_samples_never_change(golden: dict) -> None:
    order = _order_of_substitutes(golden["order"])
    place = {name: golden[name] for name in ("epoch", "position", "index")}
    drawn = [substitute(order, seed=7, attempt=attempt, **place) for attempt in range(1, 7)]
    assert drawn == golden["substitutes"]
