"""What can't work is refused by name before anything starts, and what will happen is said."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, numbers, picture, write_photos
from programs import census, what_is_more
from standpipe.plan import build
from standpipe.units import parse_bytes

MIB = 1 << 20
CROP = sp.CenterCrop(8)


@pytest.fixture
def photos(tmp_path: Path) -> sp.Pipeline:
    return sp.Pipeline(write_photos(tmp_path, 12))


def classes(folder: Path, rows: int) -> sp.ImageFolder:
    """Photos in two class folders."""
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number in range(rows // 2):
            (folder / name / f"{number}.jpg").write_bytes(encoded(picture(number)))
    return sp.ImageFolder(folder)


@pytest.mark.parametrize(
    ("transforms", "says"),
    [
        ([], "size isn't fixed at .batch: add RandomResizedCrop"),
        ([sp.RandomHorizontalFlip()], "size isn't fixed"),
        (
            [sp.Resize(8)],
            r'Or deliver them in a list, \.batch\(…, collate=\{"image": list\}\), or padded, '
            r'collate=\{"image": sp.Pad\(max_shape=',
        ),
        ([sp.RandomResize(8, 9)], r"CenterCrop\(size\) or RandomCrop\(size\) after RandomResize$"),
        ([CROP, sp.Normalize(), sp.ToDtype("uint8")], "Normalize gives floats"),
        (
            [CROP, sp.Normalize(), sp.RandomHorizontalFlip()],
            "RandomHorizontalFlip.* must come before Normalize",
        ),
        ([sp.ToLayout("NCHW"), CROP], "CenterCrop.* must come before ToLayout"),
        ([CROP, sp.Normalize(), sp.Normalize()], "has Normalize twice"),
        ([CROP, "flip"], "'flip' isn't a transform that standpipe knows"),
        ([[CROP]], "one by one"),
        ([sp.RandomHorizontalFlip], r"write RandomHorizontalFlip\(…\)"),
        ([CROP, sp.RandomHorizontalFlip(None)], r"RandomHorizontalFlip\(p=None\)"),
        ([CROP, sp.RandomHorizontalFlip(math.nan)], "a probability"),
        ([CROP, sp.Normalize(0.5, 0.5)], "one to four numbers"),
        ([CROP, sp.Normalize(mean=(0.5, 0.5, "0.5"))], "one to four numbers"),
        ([sp.CenterCrop(0)], "CenterCrop"),
        ([sp.RandomResizedCrop(8, scale=(2.0, 1.0))], "scale"),
        ([CROP, sp.ToDtype("float8")], "float8"),
        ([CROP, sp.ToLayout("HWCN")], "HWCN"),
        ([CROP, sp.Normalize(std=(0.0, 1.0, 1.0))], "std"),
        ([CROP, sp.Normalize(mean=((1, 2), 3, 4))], "one to four numbers"),
        ([CROP, sp.Normalize(mean=(10**400, 0, 0))], "one to four numbers"),
        ([CROP, sp.Normalize(mean=(1e300, 0, 0))], r"mean=\(1e\+300, 0, 0\).*beyond float32.*255 is 1"),
        ([CROP, sp.Normalize(std=(1e-60, 1, 1))], "beyond float32"),
        ([CROP, sp.Normalize(mean=(1, 0, 0), std=(1e-40, 1, 1))], "beyond float32"),
        *(
            (
                [sp.Resize(20, max_size=value), CROP],
                "max_size=.*an integer, larger than .*size=20, at most",
            )
            for value in (20, 0, -1, 300.5, 10**12, 65536, math.inf, math.nan, "a", True)
        ),
    ],
)
def test_transforms_that_cannot_work(photos: sp.Pipeline, transforms: list, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        photos.map(*transforms).batch(2).plan()


def test_a_pipeline_without_batch(photos: sp.Pipeline) -> None:
    with pytest.raises(sp.PlanError, match=r"Add \.batch\(batch_size\)"):
        photos.map(CROP).plan()
    with pytest.raises(sp.PlanError, match=r"Add \.batch\(batch_size\)"):
        photos.map(CROP).loader()


@pytest.mark.parametrize("rows", [0, -1, 2.5, "4", True, 1 << 40])
def test_batches_of_no_size(photos: sp.Pipeline, rows: object) -> None:
    with pytest.raises(sp.PlanError, match="batch"):
        photos.map(CROP).batch(rows).plan()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.batch(2, last_batch="keep"), "'drop', 'pad' or 'partial'"),
        (
            lambda p: p.batch(13, last_batch="drop"),
            r'fill no step of 13 rows.*a batch of at most 12 or last_batch="pad"',
        ),
        (lambda p: p.batch(4, last_batch="partial").shard(0, 2), 'last_batch="partial" with world_size=2'),
        (lambda p: p.batch(2).shard(2, 2), "got rank=2 and world_size=2"),
        (lambda p: p.batch(2).shard(-1, 2), "rank"),
        (lambda p: p.batch(2).shard(0, 0), "world_size"),
        (lambda p: p.batch(2).shuffle(seed=-1), "seed"),
        (lambda p: p.batch(2).shuffle(seed="7"), "seed"),
        (lambda p: p.batch(2).decode("quick"), "'exact' or 'fast'"),
        (lambda p: p.batch(2).decode(limits=100), "DecodeLimits"),
        (lambda p: p.batch(2).decode(limits=sp.DecodeLimits(max_pixels=0)), "max_pixels must be .* got 0"),
        (lambda p: p.batch(2).decode(limits=sp.DecodeLimits(max_scans=1.5)), "max_scans must be .* got 1.5"),
    ],
)
def test_descriptions_that_cannot_work(photos: sp.Pipeline, change, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(sp.PlanError, match=says):
        change(photos.map(CROP)).plan()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *(
            ({"num_workers": value}, "num_workers must be 'auto' or an integer from 1 to 4096")
            for value in (0, -1, 1.5, True, "two", 4097, 1 << 70)
        ),
        *(
            ({"prefetch": value}, "prefetch must be 'auto' or an integer from 1 to 65536")
            for value in (0, -3, "3", 2.5, True, 65537, 1 << 70)
        ),
        *(
            ({"memory": value}, "memory=.* isn't a size. Give a number of bytes above 0, or text")
            for value in (0, -1, True, 2e9, "", "2 XB", "GiB", "0", "-2GiB", "1e9", "2GiB 3", [1])
        ),
        ({"large_image_memory": "much"}, "large_image_memory='much'"),
        *(
            ({name: value}, rf"{name}=.*above 2\^60 bytes, more than any machine has")
            for name in ("memory", "large_image_memory")
            for value in (1 << 70, (1 << 60) + 1, "99999999999999999999GiB", "9" * 400)
        ),
        *(
            (
                {"batch_release_timeout_s": value},
                "batch_release_timeout_s must be a number of seconds from 0 on",
            )
            for value in (-1, math.nan, "5")
        ),
        *(({"reads": value}, r"reads must be ReadOptions\(retries=") for value in (None, 3, sp.ReadOptions)),
        *(
            ({"reads": sp.ReadOptions(retries=value)}, "retries must be an integer from 0 to 1000")
            for value in (-1, 1001, 1.0, True, "3", None)
        ),
        *(
            ({"reads": sp.ReadOptions(backoff_s=value)}, "backoff_s must be a number of seconds from 0 on")
            for value in (-1, math.nan, math.inf, "1", None, True)
        ),
        *(
            (
                {"reads": sp.ReadOptions(hedge_after_s=value)},
                "hedge_after_s must be a number of seconds above 0",
            )
            for value in (0, -1, math.nan, math.inf, "1", True)
        ),
    ],
)
def test_settings_that_cannot_work(photos: sp.Pipeline, settings: dict[str, object], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        photos.map(CROP).batch(2).plan(**settings)


def test_a_setting_that_is_none(photos: sp.Pipeline) -> None:
    with pytest.raises(TypeError, match="takes no memroy=: did you mean memory="):
        photos.map(CROP).batch(2).loader(memroy="2GiB")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 * MIB),
        ("64 mib", 64 * MIB),
        ("0.5GiB", 512 * MIB),
        ("100MB", 100_000_000),
        ("90000000", 90_000_000),
        ("90000000b", 90_000_000),
        ("99999kB", 99_999_000),
        (70 * MIB, 70 * MIB),
    ],
)
def test_ways_to_write_a_size(text: int | str, size: int) -> None:
    assert sp.Pipeline(numbers(4)).batch(2).plan(memory=text, num_workers=1).memory_bytes == size


def test_sources_that_cannot_work() -> None:
    text = sp.Pipeline(numbers(4)).map(CROP).batch(2)
    with pytest.raises(sp.PlanError, match=r"CenterCrop.* needs the field 'image'; the fields are x"):
        text.plan()
    for image in (np.zeros((4, 8), np.uint8), np.zeros((4, 8, 8, 5), np.uint8), np.zeros((4, 8, 8, 3))):
        with pytest.raises(
            sp.PlanError, match=r"CenterCrop.* can't take the field 'image', .* \(H, W, C\) uint8 with 1 to 4"
        ):
            sp.Pipeline(sp.Arrays(image=image)).map(CROP).batch(2).plan()
    with pytest.raises(sp.PlanError, match="'valid', and padding adds"):
        sp.Pipeline(sp.Arrays(valid=np.ones(4))).batch(3, last_batch="pad").plan()
    sp.Pipeline(sp.Arrays(valid=np.ones(4))).batch(3, last_batch="drop").plan()
    with pytest.raises(sp.PlanError, match="no fields"):
        sp.Pipeline(sp.Arrays()).batch(1).plan()


@pytest.mark.parametrize("source", [sp.ImageFolder, sp.FileList, sp.Arrays])
def test_a_class_where_a_source_belongs(source: type) -> None:
    with pytest.raises(sp.PlanError, match=rf"{source.__name__}\) got a class. Write {source.__name__}\(…\)"):
        sp.Pipeline(source).map(CROP).batch(2).plan()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (sp.ImageFolder(3), "ImageFolder's root must be a path: .*got 3"),  # type: ignore[arg-type]
        (sp.ImageFolder(None), "ImageFolder's root must be a path: .*got None"),  # type: ignore[arg-type]
        (sp.FileList(3), "FileList's path must be a path: .*got 3"),  # type: ignore[arg-type]
        (sp.FileList("list.txt", root=3), "FileList's root must be a path: .*got 3"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_path(source: sp.ImageFolder | sp.FileList, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(source).map(CROP).batch(2).plan()


SETTINGS: list[dict[str, object]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 5},
    {"num_workers": 2, "prefetch": 1},
    {"prefetch": 8},
    {"large_image_memory": "1MiB"},
    {"large_image_memory": "100MiB", "num_workers": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_budget_error_names_the_smallest_budget_that_works(settings: dict[str, object]) -> None:
    image = np.zeros((16, 64, 64, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=image)).map(sp.Normalize()).batch(7)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory="1MiB", **settings)
    error = caught.value
    assert error.budget_bytes == MIB
    assert error.asked_bytes == error.smallest_bytes
    named = re.search(r"need memory='([^']+)'", str(error))
    assert named is not None
    pipeline.plan(memory=named[1], **settings)
    smallest = error.smallest_bytes
    assert smallest is not None
    with pytest.raises(sp.BudgetError):
        pipeline.plan(memory=smallest - 1, **settings)
    with pipeline.loader(memory=smallest, **settings) as loader:
        assert len(list(loader.plan.explain())) > 0
        for batch in loader:
            assert batch["image"].shape == (7, 3, 64, 64)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, ""),
        ({"num_workers": 1, "prefetch": 1, "large_image_memory": "8MiB"}, ""),
        ({"large_image_memory": "10GiB"}, "lower large_image_memory=, "),
        ({"prefetch": 4999}, "lower prefetch=, "),
        ({"num_workers": 1000}, "lower num_workers=, "),
        (
            {"num_workers": 100, "prefetch": 99, "large_image_memory": "10GiB"},
            "lower large_image_memory=, lower num_workers=, lower prefetch=, ",
        ),
    ],
)
def test_a_budget_error_names_what_the_caller_fixed_too_large(
    settings: dict[str, object], advice: str
) -> None:
    image = np.zeros((16, 64, 64, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=image)).map(sp.Normalize()).batch(2)
    memory = "200MiB" if advice else "1MiB"
    with pytest.raises(sp.BudgetError, match=f". Raise it, {advice}or use a smaller batch or uint8$"):
        pipeline.plan(memory=memory, **settings)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("memory", ["140MiB", "200MiB", "1GiB", "20GiB"])
def test_what_is_planned_fits_the_budget(settings: dict[str, object], memory: str) -> None:
    image = np.zeros((16, 64, 64, 3), np.uint8)
    plan = sp.Pipeline(sp.Arrays(image=image)).map(sp.Normalize()).batch(7).plan(memory=memory, **settings)
    forecast, slot = plan.forecast, plan.batch.layout.stride_bytes
    at_most = forecast.allocated + forecast.side + (plan.most_slots - plan.slots) * slot
    assert plan.memory_bytes - slot < at_most <= plan.memory_bytes
    assert forecast.slots == plan.slots * slot
    assert plan.slots >= 2
    if "num_workers" in settings:
        assert plan.num_workers == settings["num_workers"]
    if "prefetch" in settings:
        assert plan.prefetch == settings["prefetch"]


def test_workers_are_as_many_as_cpus_and_fewer_in_a_small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.machine, "cpu_count", lambda **_: 48)
    pipeline = sp.Pipeline(numbers(4096)).batch(256)
    assert pipeline.plan(memory="1GiB").num_workers == 48
    few = pipeline.plan(memory="40MiB").num_workers
    assert 1 < few < 48
    with pytest.raises(sp.BudgetError, match="48 workers"):
        pipeline.plan(memory="40MiB", num_workers=48)


def test_a_plan_without_memory_takes_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.machine, "memory_left", lambda *_: {0: 600 * MIB})
    assert sp.Pipeline(numbers(4)).batch(2).plan(num_workers=1).memory_bytes == 300 * MIB


def test_explain_says_every_place_and_every_byte(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(classes(tmp_path, 64)).shuffle(seed=7)
    pipeline = pipeline.map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.Normalize())
    plan = pipeline.shard(1, 3).batch(10, last_batch="pad").plan(memory="3GiB", num_workers=4)
    text = plan.explain()
    assert "rank 1 of 3 data ranks" in text
    for place in ("source", "order", "read", "transform", "batch", "device", "memory", "recipe"):
        assert re.search(rf"^  {place} ", text, re.MULTILINE)
    for field in ("image: (10, 3, 32, 32) float32", "label: (10,) int64", "index: (10,) int64"):
        assert field in text
    assert re.search(r"valid: \(10,\) bool", text)
    assert "64 records, 2 classes" in text
    assert "seed=7" in text
    assert "4 workers" in text
    assert plan.digest in text
    for transform in pipeline.transforms:
        assert type(transform).__name__ in text
    sizes = re.findall(r"(process so far|slots|workers|read-ahead|engine|forecast) +([\d.]+[KMG]iB)", text)
    owners = {name: parse_bytes(name, size) for name, size in sizes}
    assert len(owners) == 6
    assert 2 * owners["forecast"] == pytest.approx(sum(owners.values()), abs=MIB)
    assert re.search(r"ceiling +3\.0GiB", text)


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        (sp.ReadOptions(), "a read that fails is tried again, up to 3 times, first after 0.05 s"),
        (
            sp.ReadOptions(retries=1, backoff_s=2),
            "a read that fails is tried again, up to once, first after 2 s",
        ),
        (sp.ReadOptions(retries=0), "a read that fails isn't tried again"),
        (sp.ReadOptions(hedge_after_s=0.5), "first after 0.05 s; a second read starts after 0.5 s"),
    ],
)
def test_explain_says_how_files_are_read(photos: sp.Pipeline, reads: sp.ReadOptions, says: str) -> None:
    for pipeline in (photos.map(CROP), photos.map(CROP).map(lambda sample: sample)):
        text = pipeline.batch(2).plan(reads=reads).explain()
        assert says in " ".join(text.split())


def test_explain_fits_100_columns() -> None:
    image = np.zeros((3000, 40, 50, 3), np.uint8)
    normalize = sp.Normalize(
        mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
    )
    crop = sp.RandomResizedCrop(32, scale=(0.123456789, 0.987654321), ratio=(0.123456789, 9.87654321))
    pipeline = sp.Pipeline(sp.Arrays(image=image, label=np.zeros(3000))).shuffle(seed=2**63)
    pipeline = pipeline.map(crop, sp.CenterCrop(31), normalize, sp.ToDtype("float16"), sp.ToLayout("NHWC"))
    text = pipeline.shard(1023, 1024).batch(2, last_batch="pad").plan(memory="3GiB").explain()
    assert max(map(len, text.splitlines())) <= 100


def test_facts_are_plain_and_say_the_same_as_the_plan(photos: sp.Pipeline) -> None:
    plan = (
        photos.map(CROP, sp.Normalize())
        .shuffle(seed=3)
        .shard(1, 2)
        .batch(5)
        .plan(memory="64MiB", num_workers=2)
    )
    facts = plan.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["records"] == 12
    assert facts["fields"] == {
        "image": {"shape": [5, 3, 8, 8], "dtype": "float32"},
        "label": {"shape": [5], "dtype": "int64"},
        "index": {"shape": [5], "dtype": "int64"},
    }
    assert (facts["rank"], facts["world_size"], facts["steps_per_epoch"]) == (1, 2, 1)
    assert facts["dropped_per_epoch"] == 2
    assert (facts["workers"], facts["slots"], facts["memory"]) == (2, plan.slots, 64 * MIB)
    assert facts["digest"] == plan.digest


def test_a_plan_reads_no_sample_and_starts_nothing(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(classes(tmp_path, 8)).map(CROP).batch(2)
    for path in tmp_path.glob("*/*.jpg"):
        path.write_bytes(b"")
    before = census()
    loader = pipeline.loader(memory="64MiB", num_workers=1)
    index = "memfd:standpipe index (deleted)"
    promise, *others = what_is_more(census(), before)  # the first tells other loaders of this one
    assert (str(promise).startswith("loader-"), others) == (True, [index])
    for path in tmp_path.glob("*/*.jpg"):
        path.unlink()
    with loader, pytest.raises(sp.ReadError, match="No such file"):
        next(iter(loader))


def test_a_pipeline_is_a_value(photos: sp.Pipeline) -> None:
    changed = photos.shuffle(seed=1).map(CROP).batch(2).shard(0, 2).decode("fast")
    assert photos.transforms == ()
    assert photos.batch_rows is None
    assert not photos.shuffled
    assert changed == photos.shuffle(seed=1).map(CROP).batch(2).shard(0, 2).decode("fast")


def test_a_seed_may_be_a_number_of_numpys() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(2)
    for seed in (7, 2**63):
        digest = pipeline.shuffle(seed=seed).plan(memory="64MiB").digest
        assert pipeline.shuffle(seed=np.uint64(seed)).plan(memory="64MiB").digest == digest  # type: ignore[arg-type]


def test_the_digest_is_of_the_recipe_and_of_nothing_else(photos: sp.Pipeline) -> None:
    pipeline = photos.map(CROP).shuffle(seed=1)
    digest = pipeline.batch(2).plan(memory="64MiB", num_workers=1).digest
    other = (
        pipeline.shard(1, 3)
        .batch(4, last_batch="pad")
        .plan(memory="1GiB", num_workers=3, prefetch=3, large_image_memory="9MiB")
    )
    assert other.digest == digest
    different = {
        pipeline.shuffle(seed=2).batch(2).plan().digest,
        photos.map(sp.CenterCrop(9)).shuffle(seed=1).batch(2).plan().digest,
        photos.map(CROP).batch(2).plan().digest,
        pipeline.decode("fast").batch(2).plan().digest,
        pipeline.map(sp.Normalize()).batch(2).plan().digest,
    }
    assert len({digest, *different}) == 6
