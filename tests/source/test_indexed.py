from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.contracts import Encoded, check_source


def names() -> list[dict[str, Any]]:
    return [{"name": f"{number}"} for number in range(10)]


def test_columns_are_known_without_taking_a_sample() -> None:
    class Untouched:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("a sample is taken")

    source = sp.MapSource(
        Untouched(), columns={"length": range(10), "score": np.linspace(0, 1, 10, dtype=">f4")}
    )
    opened = source.open()
    assert opened.columns == ("length", "score")
    assert opened.column("length", 2, 5).tolist() == [2, 3, 4]
    assert opened.column("score", 0, 10).dtype == np.float32
    plan = (
        sp.Pipeline(source).filter("length >= 4 and score < 1").batch(budget=8, length_column="length").plan()
    )
    assert plan.order.num_positions == 5


def test_columns_belong_to_the_digest() -> None:
    given = [None, {"length": range(10)}, {"length": range(1, 11)}, {"size": range(10)}]
    digests = [sp.MapSource(names(), columns=columns).open().digest for columns in given]  # type: ignore[arg-type]
    assert len(set(digests)) == 4
    assert digests[1] == sp.MapSource(names(), columns={"length": list(range(10))}).open().digest


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([1, 2], "columns must be a dict of arrays"),
        ({"length": range(9)}, "'length' is int64 of shape .9,..*each of 10 records"),
        ({"length": ["a"] * 10}, "'length' is <U1 of shape"),
        ({"index": range(10)}, "names must be different texts, and none may be 'index' or 'valid'"),
    ],
)
def test_columns_that_are_none(columns: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.MapSource(names(), columns=columns).open()


class Words:
    """Gives how long the word is that it is asked for, and of a number the number."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: str | int) -> dict[str, int]:
        return {"size": len(key) if isinstance(key, str) else key}


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_keys_are_what_the_dataset_is_asked_for(executor: str) -> None:
    source = sp.MapSource(Words(), keys={0: "tree", 1: "a"})
    with sp.Pipeline(source).batch(3).loader(memory="256MiB", num_workers=1, executor=executor) as loader:
        assert next(iter(loader))["size"].tolist() == [4, 1, 2]


def test_any_fields_may_be_encoded() -> None:
    samples = [{"left": b"1", "right": b"2", "depth": b"3", "label": 4}]
    spec = {"label": sp.ArraySpec((), np.dtype(np.int64))}
    pair = sp.MapSource(samples, encoded=("right", "left"), spec=spec).open()
    assert dict(pair.fields) == {**spec, "left": Encoded(), "right": Encoded()}
    encoded = [None, "image", "left", ("left",), ("left", "right"), ["right", "left"], ("left", "depth")]
    digests = [sp.MapSource(samples, encoded=names).open().digest for names in encoded]
    assert len({*digests}) == 5
    assert digests[2] == digests[3]
    assert (
        digests[4] == digests[5] == sp.MapSource(samples, encoded=("right", "left"), spec=spec).open().digest
    )
    check_source(sp.MapSource(samples, encoded=None))


def test_the_same_fields_must_be_encoded_to_be_joined() -> None:
    one, both = sp.MapSource([{}], encoded="left"), sp.MapSource([{}], encoded=("left", "right"))
    assert [*sp.Concat(both, both).open().fields] == ["left", "right"]
    with pytest.raises(
        sp.PlanError, match=r"its field 'right' is encoded, or that of the other. Give the same encoded="
    ):
        sp.Concat(one, both).open()
