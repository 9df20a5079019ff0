"""Several views of each image from one decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from draws import Sample
from standpipe import Views

CROP = [sp.RandomResizedCrop(24), sp.RandomHorizontalFlip(), sp.Normalize()]
SMALL = [sp.RandomResizedCrop(12, scale=(0.05, 0.4)), sp.ColorJitter(0.4, 0.4, 0.4, 0.1), sp.Normalize()]
DINO = Views(a=CROP, b=CROP, small=sp.Repeat(3, SMALL))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> sp.ImageFolder:
    """Photos in three formats, among them odd sizes, grey, and a progressive JPEG."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("photos") / "all"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number, (width, height) in enumerate([(97, 61), (33, 120), (160, 100), (50, 50), (1, 40), (64, 17)]):
        rough = rng.integers(0, 256, (4, 5, 3), np.uint8)
        image = Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)
        options: dict[str, Any] = {"quality": 90, "subsampling": number % 3, "progressive": number == 2}
        if number == 3:
            image = image.convert("L")
        image.save(folder / f"{number}.jpg", **options)
    Image.fromarray(rng.integers(0, 256, (45, 70, 3), np.uint8)).save(folder / "7.png")
    return sp.ImageFolder(folder.parent)


def batch(source: Any, *transforms: Any, decode: Any = "exact", **options: Any) -> dict[str, Any]:
    pipeline = sp.Pipeline(source).shuffle(seed=3).decode(decode).map(*transforms).batch(7)
    with pipeline.loader(**options) as loader:
        return {name: np.array(values) for name, values in next(iter(loader)).items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_each_view_has_a_field_and_random_numbers_of_its_own(photos: sp.ImageFolder) -> None:
    views = batch(photos, DINO)
    assert {name: values.shape for name, values in views.items()} == {
        "a": (7, 3, 24, 24),
        "b": (7, 3, 24, 24),
        "small": (7, 3, 3, 12, 12),
        "label": (7,),
        "index": (7,),
    }
    assert not np.array_equal(views["a"], views["b"])
    assert not np.array_equal(views["small"][:, 0], views["small"][:, 1])


def test_a_view_does_not_depend_on_the_others(photos: sp.ImageFolder) -> None:
    views = batch(photos, DINO)
    assert np.array_equal(batch(photos, Views(a=CROP))["a"], views["a"])
    fewer = batch(photos, Views(small=sp.Repeat(2, SMALL), c=CROP))
    assert np.array_equal(fewer["small"], views["small"][:, :2])
    assert not np.array_equal(fewer["c"], views["b"])


@pytest.mark.parametrize("size", [(1, 1), (13, 40), (90, 90)])
def test_the_pixels_are_those_of_the_transforms_alone(photos: sp.ImageFolder, size: tuple[int, int]) -> None:
    window = [sp.CenterCrop(size)]
    whole = [
        sp.Resize(size, interpolation="bicubic"),
        sp.RandomAdjustSharpness(2, p=1),
        sp.ToDtype("float16"),
    ]
    views = batch(photos, Views(window=window, whole=sp.Repeat(2, whole), again=window))
    assert np.array_equal(views["window"], batch(photos, *window)["image"])
    assert np.array_equal(views["again"], views["window"])
    for number in range(2):
        assert np.array_equal(views["whole"][:, number], batch(photos, *whole)["image"])


def test_the_random_numbers_are_keyed_by_the_name_and_the_number_of_a_view() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 64, 1, 1).repeat(3, axis=3)
    flip = [sp.RandomVerticalFlip()]
    pipeline = sp.Pipeline(sp.Arrays(image=pixels.repeat(20, axis=0)), seed=9).map(
        Views(a=flip, b=sp.Repeat(2, flip))
    )
    with pipeline.batch(20).loader() as loader:
        views = {name: np.array(values) for name, values in next(iter(loader)).items()}
    for name, place, got in (("a", 0, views["a"]), ("b", 1, views["b"][:, 1])):
        keys = [Sample(9, 0, position).view(name, place) for position in range(20)]
        flipped = [key.draws(sp.RandomVerticalFlip.draw_kind << 16).uniform() < 0.5 for key in keys]
        assert (got[:, 0, 0, 0] == 63).tolist() == flipped
        assert len(set(flipped)) == 2


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_python_workers_make_the_same_views(photos: sp.ImageFolder, executor: str) -> None:
    assert same(batch(photos, DINO, executor=executor, num_workers=1), batch(photos, DINO))


def test_python_code_before_and_behind_views(photos: sp.ImageFolder) -> None:
    def copied(image: Any) -> Any:
        return image.copy()

    def halved(values: Any) -> Any:
        return values / 2

    half = sp.ArraySpec((3, 24, 24), np.dtype(np.float32))
    pipeline = sp.Pipeline(photos).shuffle(seed=3).map(copied, field="image").map(DINO)
    pipeline = pipeline.map(halved, field="a", spec=half)
    with pipeline.batch(7).loader(executor="thread", num_workers=1) as loader:
        made = {name: np.array(values) for name, values in next(iter(loader)).items()}
    views = batch(photos, DINO)
    assert np.array_equal(made["a"], views["a"] / 2)
    assert np.array_equal(made["small"], views["small"])


def test_arrays_and_every_instruction_set_give_the_same_views() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 40, 30, 3), np.uint8)
    source = sp.Arrays(image=pixels, label=np.arange(7))
    assert same(batch(source, DINO), batch(source, DINO, executor="inline"))


def test_a_shared_transform_comes_before_views(photos: sp.ImageFolder) -> None:
    shared = batch(photos, sp.Resize((30, 30)), DINO)
    assert same(
        shared,
        batch(
            photos,
            Views(
                a=[sp.Resize((30, 30)), *CROP],
                b=[sp.Resize((30, 30)), *CROP],
                small=sp.Repeat(3, [sp.Resize((30, 30)), *SMALL]),
            ),
        ),
    )


@pytest.mark.parametrize("executor", [None, "thread"])
@pytest.mark.parametrize("resized", [False, True])
def test_a_cache_before_views_changes_nothing(
    photos: sp.ImageFolder, tmp_path: Path, resized: bool, executor: Any
) -> None:
    before = [sp.Resize((30, 30))] if resized else []
    cache = sp.Cache("views", memory="16MiB", directory=tmp_path)
    plain = sp.Pipeline(photos).shuffle(seed=3).map(*before)
    for _ in range(2):
        with plain.cache(cache).map(DINO).batch(7).loader(executor=executor, num_workers=1) as loader:
            got = [{name: np.array(values) for name, values in next(iter(loader)).items()} for _ in range(2)]
        with plain.map(DINO).batch(7).loader() as loader:
            want = [{name: np.array(values) for name, values in next(iter(loader)).items()} for _ in range(2)]
        assert all(map(same, got, want))


def test_fast_decoding_reads_at_the_smallest_reduction_of_all_views(photos: sp.ImageFolder) -> None:
    small, large = [sp.Resize((10, 10))], [sp.Resize((60, 60))]
    fast = batch(photos, Views(small=small, large=large), decode="fast")
    exact = batch(photos, Views(small=small, large=large))
    assert np.array_equal(fast["small"], exact["small"])  # the large view needs whole images
    assert not np.array_equal(batch(photos, Views(small=small), decode="fast")["small"], exact["small"])


def test_a_bad_image_is_replaced_in_all_views(tmp_path: Path, photos: sp.ImageFolder) -> None:
    from PIL import Image

    (tmp_path / "all").mkdir()
    Image.new("RGB", (20, 20), (200, 0, 0)).save(tmp_path / "all" / "good.jpg")
    (tmp_path / "all" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    views = Views(a=[sp.CenterCrop(8)], b=sp.Repeat(2, [sp.CenterCrop(4)]))
    pipeline = sp.Pipeline(sp.ImageFolder(tmp_path)).map(views).on_error(sp.Replace(at_most=1)).batch(2)
    with pipeline.loader() as loader:
        made = next(iter(loader))
        for name in ("a", "b"):
            assert np.array_equal(made[name][0], made[name][1])
            assert made[name][..., 0].min() > 150


def test_digests_do_not_depend_on_workers_ranks_resumes_or_batch_size(photos: sp.ImageFolder) -> None:
    pipeline = sp.Pipeline(photos).shuffle(seed=3).map(DINO)
    pad = {"last_batch": "pad"}
    digest = sp.digest_epoch(pipeline.batch(2, **pad), num_workers=1).sha256
    assert sp.digest_epoch(pipeline.batch(3, **pad), num_workers=2, ranks=2).sha256 == digest
    assert sp.digest_epoch(pipeline.batch(2, **pad), num_workers=1, stop_at=[2]).sha256 == digest
    assert sp.digest_epoch(pipeline.batch(7), executor="process", num_workers=1).sha256 == digest


@pytest.mark.parametrize(
    ("transforms", "said"),
    [
        ([Views()], "Views() has no view"),
        ([Views(a=sp.CenterCrop(8))], "give it a list of transforms"),
        ([Views(a=sp.Repeat(0, CROP))], "integer from 1 to 64"),
        ([Views(a=sp.Repeat(65, CROP))], "integer from 1 to 64"),
        ([Views(a=CROP, b=[sp.RandomHorizontalFlip()])], "Views, b: the images' size isn't fixed"),
        ([Views(a=[sp.CenterCrop(0)])], "Views, a: "),
        ([Views(a=[Views(a=CROP)])], "Views can't be in a view"),
        ([Views(a=CROP), sp.Normalize()], "put Normalize into the list of each view"),
        ([Views(a=CROP), Views(b=CROP)], "put Views into the list of each view"),
        ([sp.RandomHorizontalFlip(), Views(a=CROP)], "can't come before Views, as it is random"),
        ([sp.CenterCrop(30), sp.Normalize(), Views(a=[sp.CenterCrop(8)])], "must come before Normalize"),
        ([Views(a=[sp.CenterCrop(sp.Schedule({0: 8}))])], "Leave Schedule and PerStep out"),
        ([Views(label=CROP)], "'label' already; give the view another name"),
        ([Views(index=CROP)], "'index'"),
    ],
)
def test_impossible_views_are_refused(photos: sp.ImageFolder, transforms: Any, said: str) -> None:
    with pytest.raises(sp.PlanError) as refused:
        sp.Pipeline(photos).map(*transforms).batch(2).plan()
    assert said in str(refused.value)


def test_a_cache_behind_views_is_refused(photos: sp.ImageFolder) -> None:
    pipeline = sp.Pipeline(photos).map(Views(a=[sp.CenterCrop(8)])).cache(sp.Cache("views", memory="1MiB"))
    with pytest.raises(sp.PlanError, match="can't come after Views"):
        pipeline.batch(2).plan()


def test_explain_and_digest_name_the_views(photos: sp.ImageFolder) -> None:
    pipeline = sp.Pipeline(photos).map(DINO).batch(2)
    text = pipeline.plan().explain()
    assert "one kernel of 5 views" in text
    assert "small: (2, 3, 3, 12, 12) float32" in text
    other = replace(pipeline, transforms=(Views(a=CROP, b=CROP, small=sp.Repeat(2, SMALL)),))
    assert other.plan().digest != pipeline.plan().digest
    assert Views(a=CROP, b=CROP, small=sp.Repeat(3, SMALL)) == DINO
    assert Views(a=CROP) != DINO
