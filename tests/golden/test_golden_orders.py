"""Orders never change: a state saved years ago resumes with the same rows."""

import json
from pathlib import Path

import pytest

from penstock.order import Shuffled

GOLDEN = json.loads((Path(__file__).parent / "orders.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda g: f"{g['num_records']}-{g['seed']}-{g['epoch']}-{g['start']}"
)
def test_a_shuffle_never_changes(golden: dict) -> None:
    order = Shuffled(golden["num_records"], golden["seed"])
    stop = golden["start"] + len(golden["indices"])
    assert order.indices(golden["epoch"], golden["start"], stop).tolist() == golden["indices"]
