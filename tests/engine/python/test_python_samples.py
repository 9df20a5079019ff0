"""Datasets and transforms in Python: the same bytes whoever runs them, and errors that name the sample."""

from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import standpipe as sp
from photos import write_photos
from preloaded import TORCH
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2
EXECUTORS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread", "num_workers": 1}, id="1 thread"),
    pytest.param({"executor": "thread", "num_workers": 3}, id="3 threads"),
    pytest.param({"executor": "thread", "num_workers": 8}, id="8 threads"),
    pytest.param({"executor": "process", "num_workers": 3, "mp_context": TORCH}, id="3 processes"),
]


class Squares:
    """Samples of the kind that torch datasets give."""

    def __init__(self, length: int = 40) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((6, 6, 3), index, np.uint8), index * index


def epoch(pipeline: sp.Pipeline, **settings: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**{"memory": "1GiB", "executor": "thread", **settings}) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name, values in left.items():
            assert values.dtype == right[name].dtype
            np.testing.assert_array_equal(values, right[name], err_msg=name)


def of_rng(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return image + rng.integers(100, dtype=np.uint8)


def of_torchs_rng(image: np.ndarray, rng: torch.Generator) -> np.ndarray:
    return image + int(torch.randint(100, (1,), generator=rng))


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize("draw", [of_rng, of_torchs_rng], ids=lambda draw: draw.__name__)
def test_draws_hang_on_the_sample_alone(draw: Callable[..., Any], settings: dict[str, Any]) -> None:
    """Those of a parameter; what comes from global generators is in test_draws.py."""
    pipeline = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=3).map(draw, field="image").batch(8)
    expected = epoch(pipeline, executor="inline")
    assert_same(epoch(pipeline, **settings), expected)
    rows = {
        int(index): image
        for batch in expected
        for index, image in zip(batch["index"], batch["image"], strict=True)
    }
    assert len({float(image[0, 0, 0]) - index for index, image in rows.items()}) > 3  # it did draw


def test_a_second_draw_of_a_record_is_another_one() -> None:
    pipeline = (
        sp.Pipeline(sp.MapSource(Squares(4)))
        .shuffle(seed=3)
        .repeat_each(2)
        .map(of_rng, field="image")
        .batch(8)
    )
    (batch,) = epoch(pipeline)
    for index in range(4):
        one, other = batch["image"][batch["index"] == index]
        assert not np.array_equal(one, other)


@pytest.mark.parametrize("settings", EXECUTORS)
def test_native_and_python_transforms_mix(tmp_path: Path, settings: dict[str, Any]) -> None:
    photos = sp.Pipeline(write_photos(tmp_path, 24)).shuffle(seed=1)
    whole = photos.map(sp.RandomResizedCrop(16), sp.RandomHorizontalFlip(), sp.Normalize()).batch(6)
    cut = (
        photos.map(sp.RandomResizedCrop(16))
        .map(lambda image: image, field="image")
        .map(sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(6)
    )
    expected = epoch(whole)
    assert_same(epoch(cut, **settings), expected)
    assert_same(epoch(whole, executor="inline"), expected)


def test_flips_of_two_kernels_draw_apart(tmp_path: Path) -> None:
    photos = sp.Pipeline(write_photos(tmp_path, 24)).map(sp.Resize((8, 8)))
    twice = photos.map(sp.RandomHorizontalFlip(), sp.RandomHorizontalFlip()).batch(24)
    cut = (
        photos.map(sp.RandomHorizontalFlip())
        .map(lambda sample: sample)
        .map(sp.RandomHorizontalFlip())
        .batch(24)
    )
    assert_same(epoch(cut), epoch(twice))


def test_torchvision_gets_pillow_images(tmp_path: Path) -> None:
    resize = v2.Compose([v2.Resize(20), v2.CenterCrop(16), v2.PILToTensor()])
    (batch,) = epoch(sp.Pipeline(write_photos(tmp_path, 6)).map(resize).batch(6))
    for row, path in enumerate(sorted(tmp_path.glob("*.jpg"))):
        expected = resize(Image.open(path).convert("RGB"))
        np.testing.assert_array_equal(batch["image"][row], expected.numpy())


def test_forms_of_an_image(tmp_path: Path) -> None:
    photos = sp.Pipeline(write_photos(tmp_path, 3))
    seen: list[Any] = []

    def look(image: Any) -> Any:
        seen.append(image)
        return image

    cut = photos.map(sp.CenterCrop(10))
    plain = epoch(cut.batch(3))
    for form in ("numpy", "pil", "tensor"):
        assert_same(epoch(cut.map(look, field="image", input_format=form).batch(3)), plain)
    assert {type(image).__name__ for image in seen} == {"ndarray", "Image", "Tensor"}
    assert {tuple(image.shape) for image in seen if not isinstance(image, Image.Image)} == {
        (10, 10, 3),
        (3, 10, 10),
    }


def samples() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    point = namedtuple("point", ["x", "y"])
    yield "tuple", [(np.ones(2), 1)] * 2, {"image": ((2,), "float64"), "label": ((), "int64")}
    yield "named tuple", [point(1, 2.0)] * 2, {"x": ((), "int64"), "y": ((), "float64")}
    yield "dict", [{"a": True, "b": torch.ones(3)}] * 2, {"a": ((), "bool"), "b": ((3,), "float32")}
    yield "value", [Image.new("RGB", (4, 3))] * 2, {"image": ((3, 4, 3), "uint8")}
    yield "grey", [Image.new("L", (4, 3))] * 2, {"image": ((3, 4), "uint8")}


@pytest.mark.parametrize(
    ("items", "fields"), [case[1:] for case in samples()], ids=[case[0] for case in samples()]
)
def test_what_a_sample_may_be(items: list[Any], fields: dict[str, Any]) -> None:
    with sp.Pipeline(sp.MapSource(items)).batch(2, last_batch="drop").loader(executor="thread") as loader:
        next(iter(loader))
        found = {
            name: (spec.shape, spec.dtype.name)
            for name, spec in loader.plan.fields.items()
            if name != "index"
        }
    assert found == fields


def test_what_is_no_array_comes_as_a_list() -> None:
    items = [{"text": "a" * number, "number": number} for number in range(5)]
    pipeline = sp.Pipeline(sp.MapSource(items)).batch(5)
    assert "measured at start" in pipeline.plan().explain()
    with pipeline.loader(executor="thread") as loader:
        (batch,) = loader
        assert "text: a list of 5, outside the slots" in loader.plan.explain()
    assert batch["text"] == ["", "a", "aa", "aaa", "aaaa"]
    np.testing.assert_array_equal(batch["number"], range(5))


class Broken(Squares):
    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index == 5:
            raise KeyError("no such row")
        return super().__getitem__(index)


def fails_on_36(image: np.ndarray) -> np.ndarray:
    assert image[0, 0, 0] != 36, "of all numbers"
    return image


def odd_shape(image: np.ndarray) -> np.ndarray:
    return image[: 6 - (image[0, 0, 0] == 7)]


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize(
    ("dataset", "fn", "index", "kind", "text", "cause"),
    [
        (Broken(), None, 5, sp.SampleError, "the dataset: KeyError: 'no such row'", KeyError),
        (
            Squares(),
            fails_on_36,
            36,
            sp.TransformError,
            "fails_on_36.*AssertionError: of all numbers",
            AssertionError,
        ),
        (
            Squares(),
            odd_shape,
            7,
            sp.SampleError,
            r"'image' is \(5, 6, 3\) uint8, and \(6, 6, 3\) uint8",
            None,
        ),
        (Squares(), lambda image: None, 0, sp.TransformError, "returned None", None),
    ],
    ids=["dataset", "function", "shape", "None"],
)
def test_an_error_names_the_sample(
    dataset: Any,
    fn: Any,
    index: int,
    kind: type[sp.SampleError],
    text: str,
    cause: Any,
    settings: dict[str, Any],
) -> None:
    pipeline = sp.Pipeline(sp.MapSource(dataset))
    pipeline = pipeline if fn is None else pipeline.map(fn, field="image")
    with pipeline.batch(8).loader(**settings) as loader, pytest.raises(kind, match=text) as caught:
        list(loader)
    assert caught.value.index == index
    assert type(caught.value.__cause__) is (cause or type(None))


def test_resumes_in_the_middle(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=9).map(of_rng, field="image").batch(5)
    expected = epoch(pipeline)
    with pipeline.loader(executor="thread", num_workers=2) as loader:
        [*loader.steps(3)]
        state = loader.state_dict()
    with pipeline.loader(executor="inline") as loader:
        loader.load_state_dict(state)
        rest = [{name: np.array(value) for name, value in batch.items()} for batch in loader]
    assert_same(rest, expected[3:])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (sp.MapSource([]), "the dataset is empty"),
        (
            sp.MapSource(iter([1])),
            r"must support dataset\[index\] with a number as index; for a stream use Iterable",
        ),
        (sp.MapSource({1: 2}), r"must support dataset\[index\] with a number as index"),
        (sp.MapSource([1], fields=("a", "a")), "names must be different"),
        (sp.MapSource([1], fields="index"), "names must be different"),
        (sp.MapSource([1], spec={"x": 3}), "a dict with the ArraySpec"),  # type: ignore[dict-item]
    ],
)
def test_sources_that_cannot_work(source: sp.MapSource, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        sp.Pipeline(source).batch(1).plan()


def test_maps_that_cannot_work() -> None:
    source = sp.Pipeline(sp.MapSource(Squares()))
    with pytest.raises(sp.PlanError, match="input_format='jpeg'"):
        source.map(of_rng, input_format="jpeg")  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="Leave them out for standpipe's own"):
        source.map(sp.CenterCrop(3), field="image")
    with pytest.raises(sp.PlanError, match="a dict with the ArraySpec of every field"):
        source.map(of_rng, spec=sp.ArraySpec((), np.dtype(np.int64)))
    with pytest.raises(sp.PlanError, match=r"executor must be .* got 'fibre'"):
        source.batch(2).plan(executor="fibre")  # type: ignore[arg-type]


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Squares(), r"Squares.* is not a source. Write MapSource\(dataset\)"),
        (Stream(), r"For a stream, write IterableSource\(factory\)"),
        (Stream().__iter__, r"For a stream, write IterableSource\(factory\)"),
        ("photos", r"Pipeline\('photos'\) is not a source\. Give a source such as ImageFolder\(path\)"),
        (
            sp.MapSource(Stream()),
            r"len\(dataset\) fails: TypeError.*for a stream use IterableSource\(factory\)",
        ),
    ],
    ids=["dataset", "stream", "factory", "path", "stream as dataset"],
)
def test_what_is_given_as_it_is(given: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        sp.Pipeline(given).batch(2).plan()


def test_fields_have_names() -> None:
    with pytest.raises(sp.SampleError, match="a field 1; fields have names"):
        epoch(sp.Pipeline(sp.MapSource([{1: 2}])).batch(1))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_explain_says_what_python_code_does_and_what_is_not_known_yet(executor: Any) -> None:
    pipeline = (
        sp.Pipeline(sp.MapSource(Squares()))
        .map(sp.RandomResizedCrop(4))
        .map(of_rng, field="image")
        .map(sp.Normalize())
    )
    text = pipeline.batch(4).plan(executor=executor, num_workers=2).explain()
    assert max(map(len, text.splitlines())) <= 80
    who = {"thread": "2 Python threads", "process": "2 worker processes"}[executor]
    for line in (
        f"transform per sample, in {who}",
        "native: RandomResizedCrop + write NHWC uint8",
        "of_rng, field='image'",
        "native: Normalize",
        "all other fields: measured at start",
        "without what is measured at start",
    ):
        assert line in " ".join(text.split())
    assert ("MiB shared, each is replaced above" in text) == (executor == "process")
    assert "decode" not in text.partition("digest")[0]  # behind it are versions, that of the JPEG decoder too


def test_declared_shapes_need_no_measuring() -> None:
    spec = {
        "image": sp.ArraySpec((6, 6, 3), np.dtype(np.uint8)),
        "label": sp.ArraySpec((), np.dtype(np.int64)),
    }
    pipeline = sp.Pipeline(sp.MapSource(Squares(), spec=spec)).map(sp.CenterCrop(4)).batch(4)
    plan = pipeline.plan()
    assert plan.batch.open == ()
    assert plan.fields["image"].shape == (4, 4, 3)
    wrong = sp.Pipeline(sp.MapSource(Squares(), spec={**spec, "label": spec["image"]})).batch(4)
    with pytest.raises(sp.SampleError, match=r"'label' is .* int64, and"):
        epoch(wrong, executor="thread")
    with pytest.raises(sp.PlanError, match=r"declared as .* but it is .* in the first sample"):
        epoch(wrong, executor="process")


class Adds:
    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"Adds{self.numbers}"

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return image + self.numbers[0]


def test_parameters_of_a_callable_are_part_of_the_recipe_and_keep_it_short() -> None:
    def recipe(*numbers: int) -> Any:
        return sp.Pipeline(sp.MapSource(Squares())).map(Adds(*numbers), field="image").batch(2).plan().recipe

    assert recipe(1)["transforms"] != recipe(2)["transforms"]
    assert recipe(*range(200))["transforms"] != recipe(*range(199), 7)["transforms"]
    assert len(recipe(*range(200))["transforms"]) < 300
