"""Filters and splits by a column, against plain NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from programs import open_below
from standpipe.plan.order import order_of
from standpipe.spec import AnyArray, Int64Array

N = 5_000
LABEL = np.random.default_rng(1).integers(0, 20, N)
LENGTH = np.random.default_rng(2).integers(1, 1_000, N).astype(np.uint16)
SCORE = np.random.default_rng(3).normal(size=N).astype(np.float32)
GOOD = SCORE > 0
SOURCE = sp.Arrays(label=LABEL, length=LENGTH, score=SCORE, good=GOOD, x=np.zeros((N, 1)))


def records(pipeline: sp.Pipeline) -> Int64Array:
    order = order_of(pipeline, pipeline.source.open())
    return order.indices(0, 0, order.num_positions)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label < 10", LABEL < 10),
        ("label < 10 and length <= 512", (LABEL < 10) & (LENGTH <= 512)),
        ("10 <= length < 20 or score > 1.5", ((LENGTH >= 10) & (LENGTH < 20)) | (SCORE > 1.5)),
        ("not good", ~GOOD),
        ("good and not label == 3", GOOD & (LABEL != 3)),
        ("good == False", ~GOOD),
        ("label in [1, 2, -3]", np.isin(LABEL, [1, 2])),
        ("label not in (1, 2)", ~np.isin(LABEL, [1, 2])),
        ("length * 1000 // 7 % 2 == 1", LENGTH.astype(int) * 1000 // 7 % 2 == 1),
        ("length - label + 1 > -label * 2", LENGTH.astype(int) - LABEL + 1 > -LABEL * 2),
        ("-score >= +0.5", -SCORE.astype(float) >= 0.5),
        ("length < 2 * 300 != 0", LENGTH < 600),
        (" 1 < 2 ", np.ones(N, bool)),
        ("(label\n<\n2)", LABEL < 2),
        ("label < 9223372036854775807", np.ones(N, bool)),
    ],
)
def test_a_filter_leaves_what_numpy_would(text: str, expected: AnyArray) -> None:
    assert records(sp.Pipeline(SOURCE).filter(text)).tolist() == np.flatnonzero(expected).tolist()


def test_a_filter_looks_at_what_was_selected_before() -> None:
    pipeline = sp.Pipeline(SOURCE)
    assert records(pipeline.take(100).filter("good")).tolist() == np.flatnonzero(GOOD[:100]).tolist()
    chosen = np.random.default_rng(4).integers(0, N, 300)
    assert records(pipeline.select(chosen).filter("good")).tolist() == chosen[GOOD[chosen]].tolist()
    train, _ = pipeline.split(0.5, seed=1)
    expected = [i for i in records(train) if LENGTH[i] < 50 and SCORE[i] < 0]
    assert records(train.filter("score < 0").filter("length < 50")).tolist() == expected
    half = records(train.filter("good"))
    assert records(train.filter("good").skip(5).take(7)).tolist() == half[5:12].tolist()


def test_a_large_table_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = 2_200_000  # 4 bytes each are more than 8 MiB
    pipeline = sp.Pipeline(sp.Arrays(label=np.arange(rows, dtype=np.int32)))
    plan = pipeline.sample(seed=1, weights="label").batch(4).plan()
    assert len(open_below(tmp_path)) == 2
    del plan


def test_class_names_compare_with_the_label(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "list.txt").write_text("a.jpg\tcat\nb.jpg\tgolden retriever\nc.jpg\tcat\nd.jpg\tant\n")
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt"))
    assert records(pipeline.filter("label == 'cat'")).tolist() == [0, 2]
    assert records(pipeline.filter("'cat' != label")).tolist() == [1, 3]
    assert records(pipeline.filter("label in ['ant', 'golden retriever']")).tolist() == [1, 3]
    assert records(pipeline.filter("label >= 1")).tolist() == [0, 1, 2]
    with pytest.raises(sp.PlanError, match=r"character 10: 'cats' isn't one of the 3 classes, such as 'cat'"):
        records(pipeline.filter("label == 'cats'"))
    with pytest.raises(sp.PlanError, match="Compare it only with label"):
        records(pipeline.filter("label < 'cat'"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a condition on columns"),
        (7, "a condition on columns"),
        ("label <", "can't be read"),
        ("label\x00 < 3", "can't be read"),
        ("(" * 500 + "1" + ")" * 500, "can't be read"),
        ("label < 3; 1", "can't be read"),
        ("label" + " + 1" * 2_400 + " < 5", "nested too deeply"),
        ("x" * 20_000, "more than 10,000"),
        (
            "lable < 3",
            r"character 1: 'lable' isn't a column of the source. Its columns are label, length, score, good",
        ),
        ("label < 3 and x > 1", r"character 15: 'x' isn't a column"),
        ("label", "'label' is a number; compare it"),
        ("label and good", "'label' is a number where a condition is needed"),
        ("good + 1 > 1", "'good' is a condition where a number is needed"),
        ("good < True", "can't compare with"),
        ("good == 1", "can't compare with"),
        ("label == '3'", "source's labels are plain numbers"),
        ("'a' == 'b'", "Compare it only with label"),
        ("label in 3", "must be a list"),
        ("label in []", "must be a list"),
        ("label in [length]", "must be a value"),
        ("label is 3", "write =="),
        ("label / 2 < 1", "isn't allowed in a filter"),
        ("label ** 2 < 1", "isn't allowed in a filter"),
        ("abs(label) < 1", "isn't allowed in a filter"),
        ("label.real < 1", "isn't allowed in a filter"),
        ("label[0] < 1", "isn't allowed in a filter"),
        ("(lambda: 1)() < 1", "isn't allowed in a filter"),
        ("__import__('os').system('true') == 0", "isn't allowed in a filter"),
        ("[label for label in [1]] == 1", "isn't allowed in a filter"),
        ("f'{label}' == 1", "isn't allowed in a filter"),
        ("label < 1j", "isn't allowed in a filter"),
        ("label < 99999999999999999999", "doesn't fit 64 bits"),
        ("label + 9223372036854775807 * 2 < 1", "doesn't fit 64 bits"),
        ("10 % label == 1", r"character 6: 'label' is 0 for a record"),
        ("length > 5000", "leaves nothing of 5,000 records"),
    ],
)
def test_what_is_no_filter(text: str, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(SOURCE).filter(text).batch(2).plan()


def test_numbers_that_do_not_fit_are_refused() -> None:
    source = sp.Arrays(big=np.array([1, 2**64 - 1], np.uint64), z=np.zeros(2, complex))
    with pytest.raises(sp.PlanError, match="doesn't fit 64 bits"):
        records(sp.Pipeline(source).filter("big > 3"))
    with pytest.raises(sp.PlanError, match="complex"):
        records(sp.Pipeline(source).filter("z == 3"))


def sides(pipelines: tuple[sp.Pipeline, sp.Pipeline]) -> tuple[Int64Array, Int64Array]:
    first, rest = (records(each) for each in pipelines)
    return first, rest


@given(
    n=st.integers(2, 400),
    values=st.integers(2, 60),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**64 - 1),
    kind=st.sampled_from([np.int64, np.float32, np.uint8]),
)
def test_a_group_is_on_one_side(n: int, values: int, share: float, seed: int, kind: type) -> None:
    patient = np.random.default_rng(seed).integers(0, values, n).astype(kind)
    pipeline = sp.Pipeline(sp.Arrays(patient=patient))
    if len(np.unique(patient)) == 1:
        with pytest.raises(sp.PlanError, match="one side empty"):
            sides(pipeline.split(share, seed=seed, by="patient"))
        return
    first, rest = sides(pipeline.split(share, seed=seed, by="patient"))
    assert sorted([*first, *rest]) == list(range(n))
    assert not set(patient[first].tolist()) & set(patient[rest].tolist())
    largest = np.unique(patient, return_counts=True)[1].max()
    assert abs(len(first) - n * share) <= largest


@given(
    n=st.integers(10, 400),
    values=st.integers(1, 9),
    share=st.floats(0.2, 0.8),
    seed=st.integers(0, 2**64 - 1),
)
def test_a_stratified_split_cuts_each_value(n: int, values: int, share: float, seed: int) -> None:
    label = np.random.default_rng(seed).integers(-3, values - 3, n)
    pipeline = sp.Pipeline(sp.Arrays(label=label))
    first, rest = sides(pipeline.split(share, seed=seed, stratify="label"))
    assert sorted([*first, *rest]) == list(range(n))
    assert abs(len(first) - n * share) <= 0.5 + 1e-9
    for value in np.unique(label):
        assert abs(np.sum(label[first] == value) - share * np.sum(label == value)) <= 1 + 1e-9


def test_splits_by_a_column_are_random_and_their_seed_matters() -> None:
    pipeline = sp.Pipeline(SOURCE)
    for how in ({"by": "length"}, {"stratify": "label"}):
        a, b = (set(records(pipeline.split(0.5, seed=seed, **how)[0]).tolist()) for seed in (1, 2))
        assert len(a & b) / len(a) == pytest.approx(0.5, abs=0.06)
        order = records(pipeline.split(0.5, seed=1, **how)[0])
        assert abs(np.corrcoef(np.arange(len(order)), order)[0, 1]) < 0.1
        assert abs(np.corrcoef(np.arange(len(order)), LABEL[order])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.split(0.5, seed=1, by="label", stratify="label"), "by= or stratify="),
        (lambda p: p.split(1.5, seed=1, by="label")[0], "must be above 0 and below 1"),
        (lambda p: p.split(0.5, seed=-1, by="label")[0], "split's seed"),
        (
            lambda p: p.split(0.5, seed=1, by="lable")[0],
            "the source has no column 'lable'. Its columns are 'label'",
        ),
        (lambda p: p.split(0.5, seed=1, stratify="score")[0], "must be integers"),
        (lambda p: p.split(0.5, seed=1, stratify="row")[0], "more than 65,536 values"),
        (lambda p: p.shuffle(seed=1).filter("good"), "Write it before .shuffle"),
    ],
)
def test_what_cannot_be_split(change, says: str) -> None:  # type: ignore[no-untyped-def]
    rows = 70_000
    source = sp.Arrays(
        label=np.zeros(rows, int), score=np.zeros(rows), row=np.arange(rows), good=np.ones(rows, bool)
    )
    with pytest.raises(sp.PlanError, match=says):
        change(sp.Pipeline(source)).batch(2).plan()
