"""``on_error(Replace(…))``: what takes a bad sample's place, who counts, and what a run says of it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
from photos import encoded, picture, write_list
from preloaded import SERVER
from standpipe.order import substitute

MEMORY = "256MiB"


@dataclass(frozen=True)
class Dataset:
    """Record i is ``i``; those in ``bad`` raise."""

    size: int
    bad: frozenset[int]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            raise ValueError(f"no record {index % 3}")
        return {"x": index}


def with_a_draw(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "drawn": rng.random()}


def pipeline(size: int = 60, bad: Sequence[int] = (3, 11, 12, 40), most: float = 100) -> sp.Pipeline:
    source = sp.MapSource(Dataset(size, frozenset(bad)))
    return sp.Pipeline(source).shuffle(seed=5).map(with_a_draw).on_error(sp.Replace(at_most=most))


def rows(loader: sp.Loader, epochs: int = 1) -> list[tuple[int, ...]]:
    """What is delivered, row by row."""
    return [
        row
        for _ in range(epochs)
        for batch in loader
        for row in zip(batch["index"].tolist(), batch["x"].tolist(), batch["drawn"].tolist(), strict=True)
    ]


def expected(plan: sp.Plan, bad: frozenset[int], epoch: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """The records of an epoch, and (position, attempt, index, replacement) of those that gave way."""
    records, gave_way = [], []
    for position, index in enumerate(plan.order.indices(epoch, 0, plan.order.num_positions).tolist()):
        attempt = 0
        while index in bad:
            attempt += 1
            new = substitute(
                plan.order,
                seed=plan.pipeline.seed,
                epoch=epoch,
                position=position,
                attempt=attempt,
                index=index,
            )
            gave_way.append((position, attempt - 1, index, new))
            index = new
        records.append(index)
    return records, gave_way


def test_another_sample_takes_the_place_of_a_bad_one() -> None:
    planned = pipeline().batch(10)
    with planned.loader(memory=MEMORY, num_workers=2, executor="thread") as loader:
        for epoch in range(3):
            before = len(loader.bad_samples)
            records, gave_way = expected(loader.plan, frozenset((3, 11, 12, 40)), epoch)
            got = rows(loader)
            assert [index for index, _, _ in got] == records
            assert [x for _, x, _ in got] == records
            bad = loader.bad_samples[before:]
            assert [(b.position, b.attempt, b.index, b.replacement) for b in bad] == gave_way
            assert {(b.epoch, b.place, b.path, b.offset) for b in bad} == {(epoch, "source", None, 0)}
            assert {b.reason for b in bad} <= {f"the dataset: ValueError: no record {i}" for i in range(3)}
    assert len(gave_way) >= 4


def test_a_substitute_has_draws_of_its_own() -> None:
    """Those of the position and the attempt: not those that the bad sample would have had."""
    with pipeline(bad=()).batch(10).loader(memory=MEMORY, num_workers=1, executor="thread") as loader:
        clean = rows(loader)
    with pipeline(bad=(3,)).batch(10).loader(memory=MEMORY, num_workers=1, executor="thread") as loader:
        replaced = rows(loader)
    differing = [place for place in range(60) if clean[place] != replaced[place]]
    assert [clean[place][0] for place in differing] == [3]
    assert clean[differing[0]][2] != replaced[differing[0]][2]


@settings(max_examples=12, deadline=None)
@given(
    size=st.integers(8, 50),
    share=st.floats(0, 0.5),
    batch=st.integers(1, 9),
    world_size=st.integers(1, 4),
    num_workers=st.integers(1, 4),
    executor=st.sampled_from(["thread", "inline"]),
    seed=st.integers(0, 100),
)
def test_the_same_samples_for_any_ranks_workers_and_batches(
    size: int, share: float, batch: int, world_size: int, num_workers: int, executor: Any, seed: int
) -> None:
    bad = np.random.default_rng(seed).choice(size, int(size * share), replace=False).tolist()
    described = pipeline(size, bad).repeat_each(2)
    with described.batch(1).loader(memory=MEMORY, executor="inline") as loader:
        whole = rows(loader)
    ranks = []
    for rank in range(world_size):
        sharded = described.shard(rank, world_size).batch(batch, last_batch="pad")
        with sharded.loader(memory=MEMORY, num_workers=num_workers, executor=executor) as loader:
            ranks.append([(rows_of(each), each["valid"].tolist()) for each in loader])
            steps = len(loader)
        assert len(ranks[-1]) == steps
    stream = [
        row
        for step in zip(*ranks, strict=True)
        for batch_rows, valid in step
        for row, is_valid in zip(batch_rows, valid, strict=True)
        if is_valid
    ]
    assert stream == whole


def rows_of(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    columns = (batch[name].tolist() for name in ("index", "x", "drawn"))
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_replace_what_threads_do(workers: int) -> None:
    with pipeline().batch(7).loader(memory=MEMORY, executor="inline") as loader:
        inline = rows(loader, 2), loader.bad_samples
    with (
        pipeline()
        .batch(7)
        .loader(memory="512MiB", executor="process", num_workers=workers, mp_context=SERVER) as loader
    ):
        assert (rows(loader, 2), loader.bad_samples) == inline


def photos(folder: Path) -> sp.FileList:
    """24 images; 4 of them are bad, each in its way."""
    files: dict[str, bytes | None] = {
        f"{i:02}.{'png' if i % 4 == 0 else 'jpg'}": encoded(picture(i), "PNG" if i % 4 == 0 else "JPEG")
        for i in range(24)
    }
    files["03.jpg"] = (files["03.jpg"] or b"")[:400]
    files["08.png"] = (files["08.png"] or b"")[:200]
    files["13.jpg"] = b""
    files["17.jpg"] = None
    return write_list(folder, files)


def identity(image: Any) -> Any:
    return image


@pytest.mark.parametrize(
    ("settings_", "python"),
    [
        ({"num_workers": 1}, False),
        ({"num_workers": 3}, False),
        ({"executor": "inline"}, False),
        ({"num_workers": 2}, True),
        ({"num_workers": 2, "executor": "process", "memory": "512MiB", "mp_context": SERVER}, True),
    ],
)
def test_images_that_cannot_be_read_or_decoded(
    tmp_path: Path, settings_: dict[str, Any], python: bool
) -> None:
    transforms: list[Any] = [sp.RandomResizedCrop(24), sp.RandomHorizontalFlip()]
    described = sp.Pipeline(photos(tmp_path)).shuffle(seed=1).on_error(sp.Replace(at_most=8))
    with described.map(*transforms).batch(6).loader(memory=MEMORY, num_workers=2) as loader:
        batches = [{name: value.copy() for name, value in batch.items()} for batch in loader]
        bad = loader.bad_samples
    assert {(Path(b.path or "").name, b.place, b.kind) for b in bad} == {
        ("03.jpg", "transform", "truncated"),
        ("08.png", "transform", "truncated or damaged PNG"),
        ("13.jpg", "transform", "empty file"),
        ("17.jpg", "read", "can't be opened"),
    }
    for batch in batches:
        assert batch["label"].tolist() == batch["index"].tolist()
        assert not {3, 8, 13, 17} & set(batch["index"].tolist())
    described = described.map(*transforms)
    if python:
        described = described.map(identity, field="image")
    with described.batch(6).loader(**{"memory": MEMORY, "executor": "thread", **settings_}) as loader:
        for batch, again in zip(batches, loader, strict=True):
            for name in batch:
                np.testing.assert_array_equal(batch[name], again[name])
        assert loader.bad_samples == bad


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_the_summary_tells_exceptions_of_python_code_apart(executor: str) -> None:
    """By where they were and their type: the text of each may be another one."""
    described = sp.Pipeline(sp.MapSource(Various())).on_error(sp.Replace(at_most=2)).map(odd, field="x")
    with (
        described.batch(8).loader(executor=executor, memory="512MiB", mp_context=SERVER) as loader,  # type: ignore[arg-type]
        pytest.raises(sp.TooManyBadSamples) as raised,
    ):
        list(loader)
    assert raised.value.counts == {
        "the dataset: OSError": 2,
        "the dataset: KeyError": 1,
        f"{__name__}.odd, field='x': ValueError": 1,
    }


def test_a_summary_of_many_kinds_is_short() -> None:
    described = sp.Pipeline(sp.MapSource(Dataset(60, frozenset())))
    described = described.check_labels(1, field="x").on_error(sp.Replace(at_most=20)).batch(60)
    with (
        described.loader(memory=MEMORY, num_workers=1, executor="thread") as loader,
        pytest.raises(sp.TooManyBadSamples) as raised,
    ):
        list(loader)
    assert len(raised.value.counts) > 20
    assert str(raised.value).count(" × ") == 8
    assert f"{len(raised.value.counts) - 8} other kinds; the last one: " in str(raised.value)


class Various:
    """Records of which a few fail, each in its own words."""

    def __len__(self) -> int:
        return 800

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in (1, 3):
            raise OSError(f"no page {index}: gone")
        if index == 4:
            raise KeyError(index)
        return {"x": index}


def odd(x: int) -> int:
    if x == 6:
        raise ValueError
    return x


def test_one_bad_sample_too_many(tmp_path: Path) -> None:
    described = sp.Pipeline(photos(tmp_path)).on_error(sp.Replace(at_most=3)).map(sp.CenterCrop(8)).batch(4)
    with described.loader(memory=MEMORY, num_workers=2) as loader:
        epoch = iter(loader)
        delivered = [next(epoch)["index"].tolist() for _ in range(4)]
        for _ in range(2):  # whoever asks again is told again
            with pytest.raises(sp.TooManyBadSamples) as raised:
                next(epoch)
        assert len({b.position for b in loader.bad_samples}) == 3
        assert len(delivered) == 4
        assert loader.state_dict()["consumed"] == 16
    error = raised.value
    assert error.counts == {
        "truncated or damaged PNG": 2,  # the second time in another one's place
        "truncated": 1,
        "empty file": 1,
        "can't be opened": 1,
    }
    assert (error.place, error.index, Path(error.path or "").name) == ("read", 17, "17.jpg")
    assert str(error).startswith(
        "4 rows of epoch 0 had bad samples, and Replace(at_most=3) allows 3: 2 × truncated or damaged PNG, 1 × "
    )
    assert isinstance(error.__cause__, sp.ReadError)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.counts, copy.index, str(copy)) == (error.counts, 17, str(error))


def test_raising_is_the_default(tmp_path: Path) -> None:
    described = sp.Pipeline(photos(tmp_path)).map(sp.CenterCrop(8)).batch(4)
    for each in (described, described.on_error(sp.Replace(at_most=5)).on_error(sp.Raise())):
        with (
            each.loader(memory=MEMORY) as loader,
            pytest.raises(sp.DecodeError, match=r"truncated.*03\.jpg") as raised,
        ):
            list(loader)
        assert raised.value.__notes__ == ["to replace bad samples: .on_error(sp.Replace(at_most=0.001))"]


def broken(batch: Any) -> Any:
    raise ValueError


def numbers_and_an_end() -> Any:
    yield {"x": 1}
    raise OSError


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_advice_is_given_where_it_helps(executor: str) -> None:
    some = sp.Pipeline(sp.MapSource(Dataset(20, frozenset({7})))).batch(4)
    first = sp.Pipeline(sp.MapSource(Dataset(20, frozenset({0})))).batch(4)
    none = sp.Pipeline(sp.MapSource(Dataset(2, frozenset({0, 1})))).on_error(sp.Replace(at_most=2)).batch(2)
    stream = sp.Pipeline(sp.IterableSource(numbers_and_an_end)).batch(2)

    def notes(described: sp.Pipeline) -> list[str]:
        with (
            described.loader(executor=executor, memory=MEMORY) as loader,  # type: ignore[arg-type]
            pytest.raises(sp.SampleError) as raised,
        ):
            list(loader)
        return getattr(raised.value, "__notes__", [])

    how_to_replace = ["to replace bad samples: .on_error(sp.Replace(at_most=0.001))"]
    assert notes(some) == notes(first) == how_to_replace
    assert notes(none) == ["100 replacement samples were bad too"]
    assert notes(stream) == []  # nobody knows another sample
    for policy in (sp.Raise(), sp.Replace(at_most=2)):
        assert (
            notes(pipeline(bad=()).on_error(policy).batch(4).map_batch(broken)) == []
        )  # it is no sample's fault


@pytest.mark.parametrize(
    ("at_most", "epoch_rows", "world_size", "each"),
    [
        (0.001, 1_281_167, 1, 1282),
        (0.001, 1_281_167, 8, 161),
        (0.001, 100, 1, 1),
        (0.001, 100, 4, 1),
        (1.0, 10, 1, 10),
        (10, 1000, 4, 3),
        (0, 1000, 4, 0),
        (1, 1000, 1, 1),
    ],
)
def test_a_rank_has_its_part_of_the_limit(
    at_most: float, epoch_rows: int, world_size: int, each: int
) -> None:
    assert sp.Replace(at_most=at_most).rows(epoch_rows, world_size) == each


def test_the_count_begins_anew_with_each_epoch() -> None:
    with pipeline(most=4).batch(10).loader(memory=MEMORY, executor="thread") as loader:
        for _ in range(3):
            assert len(rows(loader)) == 60
    with (
        pipeline(most=3).batch(10).loader(memory=MEMORY, executor="thread") as loader,
        pytest.raises(sp.TooManyBadSamples, match="4 rows of epoch 0"),
    ):
        rows(loader)


def test_rows_that_pad_the_last_batch_do_not_count() -> None:
    described = (
        sp.Pipeline(sp.MapSource(Dataset(9, frozenset([0])))).map(with_a_draw).on_error(sp.Replace(at_most=1))
    )
    with described.batch(4, last_batch="pad").loader(memory=MEMORY, executor="thread") as loader:
        assert len(rows(loader)) == 12
        assert [(b.position, b.counts) for b in loader.bad_samples if b.attempt == 0] == [
            (0, True),
            (0, False),
        ]


def test_a_state_carries_the_count() -> None:
    described = pipeline(most=4).batch(10)
    with described.loader(memory=MEMORY, executor="thread") as loader:
        epoch = iter(loader)
        while not loader.bad_samples:
            next(epoch)
        state = json.loads(json.dumps(loader.state_dict()))
        seen = len({b.position for b in loader.bad_samples})
    assert state["bad_rows"] == seen
    for most, fits in ((4, True), (3, False)):
        with pipeline(most=most).batch(5).loader(memory=MEMORY, executor="thread") as loader:
            loader.load_state_dict(state)
            if fits:
                rows(loader)
            else:
                with pytest.raises(sp.TooManyBadSamples, match="4 rows of epoch 0"):
                    rows(loader)
    with described.shard(0, 2).loader(memory=MEMORY, executor="thread") as loader:
        loader.load_state_dict({**state, "bad_rows": 3})
        assert loader.state_dict()["bad_rows"] == 2
    for wrong in (-1, "3", True, 1 << 63):
        with (
            described.loader(memory=MEMORY, executor="thread") as loader,
            pytest.raises(sp.StateError, match="bad_rows"),
        ):
            loader.load_state_dict({**state, "bad_rows": wrong})


def test_a_state_without_a_count_is_read() -> None:
    described = pipeline().batch(10)
    with described.loader(memory=MEMORY, executor="thread") as loader:
        state = loader.state_dict()
        for name in ("bad_rows", "bad_ranks"):
            del state[name]
        loader.load_state_dict(state)
        assert loader.state_dict()["bad_rows"] == 0


def test_only_what_was_delivered_is_told(tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    described = sp.Pipeline(sp.MapSource(Dataset(40, frozenset(range(20, 40)))))
    described = described.on_error(sp.Replace(at_most=1.0)).batch(10)
    with described.loader(
        memory=MEMORY, num_workers=2, prefetch=3, error_log=log, executor="thread"
    ) as loader:
        epoch = iter(loader)
        next(epoch)
        next(epoch)
        assert (loader.bad_samples, log.read_text()) == ([], "")
        next(epoch)
        assert {b.position for b in loader.bad_samples} == set(range(20, 30))


def test_the_log_holds_every_bad_sample_of_all_ranks(tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    told = []
    for rank in range(4):
        with (
            pipeline()
            .shard(rank, 4)
            .batch(3)
            .loader(memory=MEMORY, error_log=str(log), executor="thread") as loader
        ):
            rows(loader, 2)
            told += [(rank, sample) for sample in loader.bad_samples]
    written = [json.loads(line) for line in log.read_text().splitlines()]
    assert written == [
        {
            "rank": rank,
            "epoch": sample.epoch,
            "position": sample.position,
            "attempt": sample.attempt,
            "index": sample.index,
            "path": None,
            "offset": 0,
            "place": "source",
            "reason": sample.reason,
            "replacement": sample.replacement,
        }
        for rank, sample in told
    ]
    assert {line["index"] for line in written} == {3, 11, 12, 40}


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        pipeline()
        .batch(3)
        .loader(memory=MEMORY, error_log=tmp_path / "absent" / "log", executor="thread") as loader,
        pytest.raises(sp.PlanError, match=r"error_log=.*can't be written: No such file"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("log", ["", 3, True])
def test_a_log_that_is_no_path(log: Any) -> None:
    with pytest.raises(sp.PlanError, match=f"^error_log must be the path of a file, got {log!r}$"):
        pipeline().batch(3).loader(memory=MEMORY, error_log=log, executor="thread")


def test_training_goes_on_when_the_log_cannot_be_written_any_more() -> None:
    with (
        pipeline()
        .batch(60, last_batch="pad")
        .loader(memory=MEMORY, error_log="/dev/full", executor="thread") as loader,
        pytest.warns(UserWarning, match="can't be written any more.*No space left"),
    ):
        assert len(rows(loader, 2)) == 120


def test_substitutes_in_a_mixture_are_of_the_same_component() -> None:
    bad = frozenset(range(0, 40, 3))
    described = (
        sp.Pipeline(
            sp.Mixture(
                [
                    (sp.Pipeline(sp.MapSource(Dataset(40, bad))).shuffle(seed=1), 0.9),
                    (sp.Pipeline(sp.MapSource(Dataset(30, frozenset(range(1, 30, 2))))).shuffle(seed=2), 0.1),
                ]
            ),
            seed=4,
        )
        .on_error(sp.Replace(at_most=1.0))
        .batch(5)
    )
    with described.loader(memory=MEMORY, executor="thread") as loader:
        for _ in range(3):
            for batch in loader:
                assert (batch["source"] == (batch["index"] >= 40)).all()
        bad_ones = loader.bad_samples
    assert {b.index >= 40 for b in bad_ones} == {True, False}
    assert all((b.index >= 40) == (b.replacement >= 40) for b in bad_ones)


LENGTHS = np.random.default_rng(2).integers(1, 60, 200)


@pytest.mark.parametrize("packing", [False, True])
def test_substitutes_keep_a_batch_within_its_budget(packing: bool) -> None:
    """They are as long as the bad one's bucket allows, for which the batch has room."""
    bad = frozenset(range(0, 200, 7))
    described = (
        sp.Pipeline(sp.MapSource(Dataset(200, bad), columns={"length": LENGTHS}))
        .shuffle(seed=1)
        .on_error(sp.Replace(at_most=1.0))
        .batch(budget=200, length_column="length", packing=packing)
    )
    with described.loader(memory=MEMORY, executor="thread") as loader:
        count = 0
        for batch in loader:
            lengths = LENGTHS[batch["index"]]
            assert (lengths.sum() if packing else lengths.max() * len(lengths)) <= 200
            count += len(lengths)
        assert count == 200
        assert {b.index for b in loader.bad_samples} == bad
    with pytest.raises(sp.TooManyBadSamples, match="allows 2"):
        list(described.on_error(sp.Replace(at_most=0.01)).loader(memory=MEMORY, executor="thread"))


def summed(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"sum": np.array([each["x"] for each in samples]).sum(), "rows": len(samples)}


@pytest.mark.parametrize("settings_", [{}, {"executor": "process", "memory": "512MiB", "mp_context": SERVER}])
def test_a_function_that_takes_samples_gets_substitutes(settings_: dict[str, Any]) -> None:
    described = pipeline().batch(10, collate_fn=summed)
    with described.loader(
        **{"memory": MEMORY, "num_workers": 2, "executor": "thread", **settings_}
    ) as loader:
        records, gave_way = expected(loader.plan, frozenset((3, 11, 12, 40)), 0)
        sums = [int(batch["sum"]) for batch in loader]
        assert sums == [sum(records[first : first + 10]) for first in range(0, 60, 10)]
        bad = loader.bad_samples
        assert [(b.position, b.attempt, b.index, b.replacement) for b in bad] == gave_way


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    assert not {3, 11, 12, 40} & set(batch["x"].tolist())
    return {**batch, "x": 2 * batch["x"]}


def test_functions_of_a_batch_get_substitutes() -> None:
    with (
        pipeline()
        .map_batch(doubled)
        .batch(10)
        .loader(memory=MEMORY, num_workers=2, executor="thread") as loader
    ):
        for batch in loader:
            assert batch["x"].tolist() == (2 * batch["index"]).tolist()


def failing(batch: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("not this batch")


@pytest.mark.parametrize("samples", [False, True])
def test_a_function_that_fails_on_a_batch_is_no_bad_sample(samples: bool) -> None:
    described = pipeline(bad=())
    described = described.batch(10, collate_fn=failing) if samples else described.map_batch(failing).batch(10)
    with described.loader(memory=MEMORY, executor="thread") as loader:
        with pytest.raises(sp.TransformError, match="not this batch"):
            next(iter(loader))
        assert loader.bad_samples == []


class Growing:
    """Lists as long as the record's number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.arange(index + 1)}


def test_samples_that_fit_no_field_give_way() -> None:
    described = sp.Pipeline(sp.MapSource(Growing())).on_error(sp.Replace(at_most=9))
    with described.batch(5, collate={"x": sp.Pad(max_shape=(16,))}).loader(
        memory=MEMORY, executor="thread"
    ) as loader:
        seen = [index for batch in loader for index in batch["index"].tolist()]
        assert seen[:16] == list(range(16))
        assert max(seen) == 15
        assert {b.index for b in loader.bad_samples} == {16, 17, 18, 19}
        assert {b.place for b in loader.bad_samples} == {"batch"}


@pytest.mark.parametrize("executor", ["thread", "inline", "process"])
def test_the_first_sample_of_all_is_bad(executor: Any) -> None:
    described = (
        sp.Pipeline(sp.MapSource(Dataset(6, frozenset([0, 4]))))
        .map(with_a_draw)
        .on_error(sp.Replace(at_most=2))
    )
    with described.batch(3).loader(memory="512MiB", executor=executor, mp_context=SERVER) as loader:
        assert len(rows(loader)) == 6
        assert [b.index for b in loader.bad_samples if b.attempt == 0] == [0, 4]


def test_where_everything_is_bad() -> None:
    described = sp.Pipeline(sp.MapSource(Dataset(6, frozenset(range(6))))).on_error(sp.Replace(at_most=1.0))
    with (
        described.batch(3).loader(memory=MEMORY, executor="thread") as loader,
        pytest.raises(sp.SampleError, match="no record"),
    ):
        next(iter(loader))
    declared = sp.MapSource(Dataset(6, frozenset(range(6))), spec=SPEC)
    described = sp.Pipeline(declared).on_error(sp.Replace(at_most=1.0)).batch(3)
    with (
        described.loader(memory=MEMORY, executor="thread") as loader,
        pytest.raises(sp.SampleError, match="no record"),
    ):
        next(iter(loader))


SPEC = {"x": sp.ArraySpec((), np.dtype(np.int64)), "drawn": sp.ArraySpec((), np.dtype(np.float64))}


def test_streams_have_no_substitutes() -> None:
    described = (
        sp.Pipeline(sp.IterableSource(lambda: iter(range(5)))).on_error(sp.Replace(at_most=1)).batch(2)
    )
    with pytest.raises(sp.PlanError, match="can't replace a stream's samples"):
        described.plan()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (sp.Replace, "got a class. Write Replace"),
        ("replace", "Raise\\(\\) or Replace"),
        (sp.Replace(at_most=0.0), "as a fraction of the epoch's rows, must be above 0"),
        (sp.Replace(at_most=1.5), "as a fraction of the epoch's rows, must be above 0"),
        (sp.Replace(at_most=float("nan")), "as a fraction of the epoch's rows, must be above 0"),
        (sp.Replace(at_most=-1), "or a number of rows"),
        (sp.Replace(at_most=True), "or a number of rows"),
        (sp.Replace(at_most="1%"), "or a number of rows"),  # type: ignore[arg-type]
    ],
)
def test_policies_that_are_none(policy: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        pipeline().on_error(policy)


@pytest.mark.parametrize("number", [np.int64(3), np.float64(0.5)])
def test_a_limit_may_be_a_number_of_numpys(number: Any) -> None:
    """And prints as the number that it is."""
    policy = pipeline().on_error(sp.Replace(at_most=number)).bad
    assert repr(policy) == f"Replace(at_most={number})"


def test_explain_says_what_happens_to_bad_samples() -> None:
    assert (
        "a bad sample raises" in sp.Pipeline(sp.MapSource(Dataset(6, frozenset()))).batch(2).plan().explain()
    )
    assert "bad samples are replaced, at most 100 of an epoch's rows" in pipeline().batch(2).plan().explain()
    share = pipeline(most=0.001).batch(2).plan().explain()
    assert "bad samples are replaced, at most 0.001 of an epoch's rows" in share


def test_policies_leave_the_recipe_as_it_is() -> None:
    """So that who met a bad sample can go on from the state that was saved."""
    assert pipeline().batch(2).plan().digest == pipeline().on_error(sp.Raise()).batch(2).plan().digest
