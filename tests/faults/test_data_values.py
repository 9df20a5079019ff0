"""Bad values: floats that aren't finite, labels out of range, ranks that see other data."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
from forked import run
from photos import encoded, picture, write_list
from samples import Samples

# Who makes rows: native threads, or Python code, whoever runs that.
NATIVE = pytest.param("native", id="native")
PYTHON = [
    pytest.param("inline", id="inline"),
    pytest.param("thread", id="threads"),
    pytest.param("process", id="processes"),
]
SMALL = encoded(picture(0), quality=90)


def loader(pipeline: sp.Pipeline, way: str, **settings: Any) -> sp.Loader:
    if way != "native":
        settings["executor"] = way
    return pipeline.loader(memory="1GiB", num_workers=2, **settings)


def error_of(pipeline: sp.Pipeline, way: str) -> sp.SampleError:
    with pytest.raises(sp.SampleError) as caught, loader(pipeline, way) as batches:
        list(batches)
    return caught.value


def table(bad: float = np.nan) -> np.ndarray[Any, Any]:
    """Eight rows of (2, 3) floats, of which those of records 3 and 6 hold a bad one."""
    rows = np.arange(48, dtype=np.float32).reshape(8, 2, 3)
    rows[3, 1, 2] = rows[6, 0, 0] = bad
    return rows


def source_of(rows: np.ndarray[Any, Any], way: str) -> sp.Arrays | sp.MapSource:
    if way == "native":
        return sp.Arrays(x=rows, y=np.arange(8))
    return sp.MapSource(Samples(lambda index: {"x": rows[index], "y": index}))


@pytest.mark.parametrize("way", [NATIVE, *PYTHON])
def test_nan_and_inf_floats_pass_by_default(way: str) -> None:
    """What is in the data is delivered."""
    with loader(sp.Pipeline(source_of(table(), way)).batch(8), way) as batches:
        (batch,) = batches
        assert np.array_equal(batch["x"], table(), equal_nan=True)


@pytest.mark.parametrize("way", [NATIVE, *PYTHON])
def test_check_finite_makes_them_bad_samples(way: str) -> None:
    """The error names the first record, the field and the place in it."""
    error = error_of(sp.Pipeline(source_of(table(-np.inf), way)).check_finite().batch(8), way)
    assert (error.place, error.index, error.reason) == ("batch", 3, "'x' is -inf at [1, 2]")


@pytest.mark.parametrize("way", [NATIVE, *PYTHON])
def test_samples_that_are_not_finite_are_replaced_and_counted(way: str) -> None:
    """Likewise under a policy: the same rows whoever makes them, and each bad one is told."""
    pipeline = (
        sp.Pipeline(source_of(table(), way)).shuffle(seed=3).check_finite("x").on_error(sp.Replace(at_most=4))
    )
    with loader(pipeline.batch(4), way) as batches:
        got = np.concatenate([batch["y"] for batch in batches])
        bad = [(each.index, each.place, each.reason) for each in batches.bad_samples]
        assert {each.kind for each in batches.bad_samples} == {"'x' is nan"}  # wherever it is
    plan = sp.Pipeline(source_of(table(), way)).shuffle(seed=3).batch(8).plan(memory="1GiB")
    order = plan.order.indices(0, 0, 8)
    assert not {3, 6} & set(got.tolist())
    assert got[~np.isin(order, [3, 6])].tolist() == order[~np.isin(order, [3, 6])].tolist()
    assert {index for index, _, _ in bad} == {3, 6}
    assert {fact[1:] for fact in bad} == {
        ("batch", "'x' is nan at [1, 2]"),
        ("batch", "'x' is nan at [0, 0]"),
    }


def nested(depth: int) -> Any:
    value: Any = np.nan
    for _ in range(depth):
        value = [value]
    return value


VALUES = {
    "float": (float("nan"), "is nan"),
    "0-d": (np.array(np.inf), "is inf"),
    "scalar": (np.float32(np.nan), "is nan"),
    "half": (np.array([0, np.nan], np.float16), r"is nan at \[1\]"),
    "double": (np.array([[0, 1], [np.inf, 0]]), r"is inf at \[1, 0\]"),
    "complex": (np.array([1, complex(0, np.nan)]), r"is nan\+?0?.*j.* at \[1\]"),
    "other byte order": (np.array([0, np.nan], ">f8"), r"is nan at \[1\]"),
    "tensor": (torch.tensor([0, torch.inf]), r"is inf at \[1\]"),
    "bfloat16": (torch.tensor([[0, torch.nan]], dtype=torch.bfloat16), r"is nan at \[0, 1\]"),
    "sparse": (torch.tensor([0, torch.nan]).to_sparse(), r"is nan at \[1\]"),
    "list": ([1, None, "nan", float("nan")], r"is nan at \[3\]"),
    "dict of lists": (
        {"a": 1, "boxes": [np.ones(2), np.array([0, np.inf])]},
        r"is inf at \['boxes'\]\[1\]\[1\]",
    ),
    "objects": (np.array([1, "a", np.nan], object), r"is nan at \[2\]"),
    "structured": (np.array([(1, np.nan)], [("a", "i4"), ("b", "f4")]), r"is nan at \['b'\]\[0\]"),
    "too deep": (nested(70), "nested more than 64 deep"),
}


@pytest.mark.parametrize(("value", "says"), VALUES.values(), ids=VALUES.keys())
def test_where_a_value_is_not_finite(value: Any, says: str) -> None:
    """Whatever holds the float, wherever."""
    source = sp.MapSource(Samples(lambda index: {"x": value if index == 5 else 1}))
    error = error_of(sp.Pipeline(source).check_finite().batch(8, collate={"x": list}), "inline")
    assert error.index == 5
    assert re.search(says, error.reason)


@pytest.mark.parametrize(
    "value",
    [
        1,
        2.5,
        True,
        "nan",
        b"nan",
        None,
        np.arange(3),
        np.ones((2, 0)),
        [1, "a", None],
        {"a": np.ones(2)},
        {1, 2},
    ],
    ids=repr,
)
def test_what_is_finite_or_no_number_passes(value: Any) -> None:
    source = sp.MapSource(Samples(lambda index: {"x": value}))
    with loader(sp.Pipeline(source).check_finite().batch(8, collate={"x": list}), "inline") as batches:
        assert len(list(batches)) == 1


def test_only_the_fields_that_are_named_are_checked() -> None:
    """And a name that no sample has is an error of the plan."""
    arrays = sp.Arrays(x=table(), z=np.ones(8))
    with loader(sp.Pipeline(arrays).check_finite("z").batch(8), "native") as batches:
        assert len(list(batches)) == 1
    with pytest.raises(sp.PlanError, match=r"check_finite: there is no field 'q'. The fields are x, z"):
        sp.Pipeline(arrays).check_finite("q").batch(8).plan()
    with pytest.raises(sp.PlanError, match="check_finite takes names of fields, got 1"):
        sp.Pipeline(arrays).check_finite(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", PYTHON)
def test_what_functions_make_of_images_is_checked(tmp_path: Path, way: str) -> None:
    """A function that divides by zero after the native kernel is found; the images themselves are finite."""
    files = write_list(tmp_path, {f"{number}.jpg": SMALL for number in range(3)})
    images = sp.Pipeline(files).map(sp.CenterCrop(8), sp.Normalize()).check_finite()

    def divided(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(all="ignore"):
            return np.divide(image, np.zeros(1, np.float32))

    error = error_of(images.map(divided, field="image").batch(1), way)
    assert (error.index, error.path) == (0, str(tmp_path / "0.jpg"))
    assert error.reason.startswith("'image' is ")
    with loader(images.batch(1), "native") as batches:
        assert len(list(batches)) == 3


def test_columns_beside_native_images_are_checked(tmp_path: Path) -> None:
    """A number of an index file that isn't finite, while native threads make the images."""
    files = write_list(tmp_path, {f"{number}.jpg": SMALL for number in range(4)})
    sp.build_index(files, columns={"score": np.array([1, 2, np.nan, 3])})
    error = error_of(sp.Pipeline(files).map(sp.CenterCrop(8)).check_finite().batch(4), "native")
    assert (error.index, error.reason) == (2, "'score' is nan")
    assert error.path == str(tmp_path / "2.jpg")


def test_tensors_that_numpy_cannot_hold_come_in_lists() -> None:
    """As anything else that is no array of numbers."""
    source = sp.MapSource(Samples(lambda index: torch.full((2,), index, dtype=torch.bfloat16)), fields="x")
    with loader(sp.Pipeline(source).batch(8), "inline") as batches:
        (batch,) = batches
    assert [value.tolist() for value in batch["x"]] == [[index, index] for index in range(8)]


def labelled(tmp_path: Path, *labels: object) -> sp.FileList:
    for number in range(len(labels)):
        (tmp_path / f"{number}.jpg").write_bytes(SMALL)
    lines = [f"{number}.jpg {label}" for number, label in enumerate(labels)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    return sp.FileList(tmp_path / "list.txt")


def test_label_out_of_range(tmp_path: Path) -> None:
    """An error of the plan, which names the file, its label, the range, and how many more there are."""
    images = sp.Pipeline(labelled(tmp_path, 0, 9, 10, -1, 11)).map(sp.CenterCrop(8)).batch(1)
    with pytest.raises(sp.PlanError) as caught:
        images.check_labels(10).plan()
    path = tmp_path / "2.jpg"
    assert str(caught.value) == (
        f"check_labels(10): record 2, {path}, has the label 10, and labels are from 0 to 9; so have 2 more"
    )
    with pytest.raises(sp.PlanError, match=r"record 3, .*3\.jpg, has the label -1, .* from 0 to 11$"):
        images.check_labels(12).plan()
    assert images.check_labels(np.int64(12), ignore=np.int64(-1)).plan().samples.kernel is not None
    with loader(images.check_labels(12, ignore=-1), "native") as batches:
        assert [int(batch["label"][0]) for batch in batches] == [0, 9, 10, -1, 11]


def test_only_records_that_are_selected_are_asked_for_their_labels(tmp_path: Path) -> None:
    files = labelled(tmp_path, 0, 1, 7, 1)
    images = sp.Pipeline(files).map(sp.CenterCrop(8)).check_labels(2).batch(1)
    with pytest.raises(sp.PlanError, match="record 2"):
        images.plan()
    assert images.exclude([2]).plan().rows_per_epoch == 3
    with pytest.raises(sp.PlanError, match="record 2"):
        images.select([0, 2]).plan()
    mixed = sp.Mixture({sp.Pipeline(files): 1, sp.Pipeline(files).take(2): 1})
    with pytest.raises(sp.PlanError, match=r"record 2, .*2\.jpg"):
        sp.Pipeline(mixed).map(sp.CenterCrop(8)).check_labels(2).batch(1).plan()


def test_one_class_folder_too_many(tmp_path: Path) -> None:
    """Such as one that somebody left there: it is named."""
    for name in ("cat", "dog", "lost+found"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.jpg").write_bytes(SMALL)
    images = sp.Pipeline(sp.ImageFolder(tmp_path)).map(sp.CenterCrop(8)).check_labels(2).batch(1)
    with pytest.raises(sp.PlanError, match=r"has the label 2 \('lost\+found'\), and labels are from 0 to 1"):
        images.plan()


@pytest.mark.parametrize("way", PYTHON)
def test_labels_that_python_code_gives(way: str) -> None:
    """Where no column tells, a sample with such a label is bad."""
    samples = sp.Pipeline(sp.MapSource(Samples(lambda index: (np.zeros(2), index)), fields=("x", "label")))
    error = error_of(samples.check_labels(5).batch(8), way)
    assert (error.index, error.reason) == (5, "'label' is 5; labels are from 0 to 4")
    shifted = samples.check_labels(8).map(lambda label: label + 1, field="label")
    assert error_of(shifted.batch(8), way).index == 7


def test_a_function_may_bring_labels_into_their_range(tmp_path: Path) -> None:
    """So the list's own aren't asked, where a function changes them."""
    images = sp.Pipeline(labelled(tmp_path, 1, 2, 3)).map(sp.CenterCrop(8)).check_labels(3)
    with pytest.raises(sp.PlanError, match="record 2"):
        images.batch(1).plan()
    shifted = images.map(lambda label: label - 1, field="label").batch(1)
    with loader(shifted, "inline") as batches:
        assert [int(batch["label"][0]) for batch in batches] == [0, 1, 2]


def test_labels_of_masks() -> None:
    """Of many labels in a sample the first wrong one is named."""
    masks = np.zeros((8, 4, 4), np.uint8)
    masks[:, 0] = 255
    masks[5, 2, 3] = 21
    samples = sp.Pipeline(sp.Arrays(mask=masks)).batch(8)
    error = error_of(samples.check_labels(21, field="mask", ignore=255), "thread")
    assert error.reason == "'mask' is 21 at [2, 3]; labels are from 0 to 20, or 255"
    assert error.index == 5


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda pipeline: pipeline.check_labels(0), "an integer from 1"),
        (lambda pipeline: pipeline.check_labels(True), "an integer from 1"),
        (lambda pipeline: pipeline.check_labels(2, ignore=0.5), "an integer or None"),
        (lambda pipeline: pipeline.check_labels(2), "there is no field 'label'. The fields are x"),
        (
            lambda pipeline: pipeline.check_labels(2, field="x"),
            "labels must be integers, but 'x' is float64",
        ),
    ],
    ids=["none", "bool", "ignored half", "no field", "floats"],
)
def test_checks_that_cannot_be(check: Callable[[sp.Pipeline], sp.Pipeline], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        check(sp.Pipeline(sp.Arrays(x=np.zeros(3))).batch(1)).plan()


def test_checks_change_no_recipe_and_are_explained() -> None:
    """As policies: a run that met a bad sample goes on from its state with a check, or without."""
    plain = sp.Pipeline(sp.Arrays(x=np.zeros(3), label=np.arange(3))).batch(1)
    checked = plain.check_finite("x").check_labels(3)
    assert checked.plan().digest == plain.plan().digest
    text = checked.plan().explain()
    assert "floats of x must be finite" in text
    assert "label: labels are from 0 to 2" in text
    with pytest.raises(sp.PlanError, match=r"has a \.check_finite\(…\)\. Write it after the mixture"):
        sp.Pipeline(sp.Mixture({sp.Pipeline(sp.Arrays(x=np.zeros(3))).check_finite(): 1, plain: 1})).batch(
            1
        ).plan()


def folders(root: Path, *classes: str) -> sp.Pipeline:
    for name in classes:
        (root / name).mkdir(parents=True)
        (root / name / "0.jpg").write_bytes(SMALL)
    return sp.Pipeline(sp.ImageFolder(root)).shuffle(seed=1).map(sp.CenterCrop(8)).batch(1)


def manifests(*pipelines: sp.Pipeline) -> list[dict[str, object]]:
    return [
        pipeline.shard(rank, len(pipelines)).plan(memory="64MiB", num_workers=1).manifest()
        for rank, pipeline in enumerate(pipelines)
    ]


def test_class_folders_differ_between_ranks(tmp_path: Path) -> None:
    """Whoever gathers the ranks' manifests asks ``check_ranks``, which names who differs, and in what."""
    whole = folders(tmp_path / "whole", "bee", "cat", "dog", "elk")
    part = folders(tmp_path / "part", "cat", "dog", "emu", "elk")
    copy = folders(tmp_path / "copy", "bee", "cat", "dog", "elk")
    sp.check_ranks(manifests(whole, copy, whole))
    with pytest.raises(sp.PlanError) as caught:
        sp.check_ranks(manifests(whole, part, copy, part))
    text = str(caught.value)
    assert text.startswith("the ranks' plans differ: ranks 1, 3 have another recipe than rank 0: source is '")
    assert text.endswith("the class 'emu' is only there, the class 'bee' is missing there")


def test_ranks_with_other_files_seeds_or_steps(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(SMALL)
    rows = [
        sp.Pipeline(write_list(tmp_path / f"{files}", {f"{number}.jpg": SMALL for number in range(files)}))
        .map(sp.CenterCrop(8))
        .shuffle(seed=1)
        for files in (4, 5)
        if not (tmp_path / f"{files}").mkdir()
    ]
    with pytest.raises(
        sp.PlanError, match=r"rank 1 has another recipe than rank 0: rows is 5, not 4, source is"
    ):
        sp.check_ranks(manifests(rows[0].batch(1), rows[1].batch(1)))
    with pytest.raises(sp.PlanError, match=r"rank 1 has another recipe than rank 0: seed is 2, not 1$"):
        sp.check_ranks(manifests(rows[0].batch(1), rows[0].shuffle(seed=2).batch(1)))
    with pytest.raises(
        sp.PlanError, match=r"batch is 1 on rank 0 and 2 on rank 1; steps is 2 on rank 0 and 1 on"
    ):
        sp.check_ranks(manifests(rows[0].batch(1), rows[0].batch(2)))
    with pytest.raises(sp.PlanError, match="ranks 0, 2 have no manifest"):
        sp.check_ranks([None, *manifests(rows[0].batch(1)), None])


def test_ranks_that_get_the_same_part() -> None:
    """Two of one rank, one that is missing, a forgotten shard(); on purpose it is said."""
    rows = sp.Pipeline(sp.Arrays(x=np.arange(16))).batch(2)
    each = manifests(rows, rows, rows, rows)
    sp.check_ranks(each)
    sp.check_ranks(list(reversed(each)))
    sp.check_ranks([*each, *each], replicate=2)
    for wrong in ([*each[:3], each[2]], each[:3], [*each, *each], [], [{**each[0], "rank": []}]):
        with pytest.raises(sp.PlanError, match=r"each must come once\. Write \.shard\(\)"):
            sp.check_ranks(wrong)
    with pytest.raises(sp.PlanError, match=r"have parts \[0, 0\] of 1"):
        sp.check_ranks([manifests(rows)[0]] * 2)
    with pytest.raises(sp.PlanError, match="must come 2 times"):
        sp.check_ranks(each, replicate=2)


RANK = """
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method={store!r}, rank=rank, world_size=2)
pipeline = sp.Pipeline(sp.ImageFolder({root!r} + str(rank))).map(sp.CenterCrop(8)).batch(1).shard()
manifests = [None] * dist.get_world_size()
dist.all_gather_object(manifests, pipeline.plan(memory="64MiB", num_workers=1).manifest())
try:
    sp.check_ranks(manifests)
except sp.PlanError as error:
    print(error)
dist.destroy_process_group()
"""


def test_class_folders_differ_between_processes_of_torch(tmp_path: Path) -> None:
    """Every rank gets the error, before any of them reads a sample."""
    folders(tmp_path / "data0", "cat", "dog")
    folders(tmp_path / "data1", "dog")
    store = f"file://{tmp_path}/store"
    launcher = {"WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}

    def said(rank: int) -> str:
        program = RANK.format(root=str(tmp_path / "data"), store=store)
        done = run(program, environment={**launcher, "RANK": str(rank)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    with ThreadPoolExecutor() as ranks:
        first, second = ranks.map(said, range(2))
    assert first == second
    assert first.endswith("the class 'cat' is missing there\n")
