"""One budget of bytes: what a loader takes stays within it, whatever the samples are."""

from __future__ import annotations

import gc
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import WAIT_S, encoded, numbers, picture, write_list
from programs import output, peak_memory, small_container
from standpipe.spec import UInt8Array

MIB = 1 << 20
NUMBER = r"\d+\.\d"


def smooth(height_px: int, width_px: int) -> UInt8Array:
    """A picture that compresses well, (height_px, width_px, 3)."""
    few = picture(height_px, max(height_px // 64, 1), max(width_px // 64, 1))
    return np.asarray(Image.fromarray(few).resize((width_px, height_px)))


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of images of which some need up to 40 MiB at once, among small ones."""
    folder = tmp_path_factory.mktemp("awkward")
    files = {f"{number}.jpg": encoded(picture(number)) for number in range(8)}
    files["progressive.jpg"] = encoded(smooth(2400, 2500), progressive=True, subsampling="4:4:4")
    files["progressive 4:2:0.jpg"] = encoded(smooth(3000, 4000), progressive=True)
    files["large.png"] = encoded(smooth(1800, 2000), "PNG", compress_level=1)
    files["wide.png"] = encoded(smooth(90, 40_000), "PNG", compress_level=1)
    files["high.jpg"] = encoded(smooth(40_000, 30))
    files["point.jpg"] = encoded(smooth(1, 1))
    files["large.webp"] = encoded(smooth(1200, 1600), "WEBP", method=0)
    files["large.tif"] = encoded(smooth(1500, 1700), "TIFF")
    write_list(folder, files)
    return folder / "list.txt"


RUN = """
import json
def darker(image):
    return image >> 1
pipeline = sp.Pipeline(sp.FileList({path!r})).shuffle(seed=1).map(sp.RandomResizedCrop(96))
if {executor!r} != "native":
    pipeline = pipeline.map(darker, field="image")
    settings = {{"executor": {executor!r}}}
else:
    settings = {{}}
sizes = {{"prefetch": 2, "large_image_memory": "46MiB"}}
with pipeline.batch(8).loader(memory="{memory}", num_workers=3, **settings, **sizes) as loader:
    rows = sum(len(batch["index"]) for epoch in range(6) for batch in loader)
    print(json.dumps([rows, loader.plan.forecast.process, loader.plan.memory_bytes]))
"""


@pytest.mark.parametrize(
    ("executor", "memory"), [("native", "80MiB"), pytest.param("thread", "80MiB", marks=pytest.mark.long)]
)
def test_large_frames_stay_within_the_budget(awkward: Path, executor: str, memory: str) -> None:
    """What was freed goes back to the system: the C library alone would keep 64 MiB for every thread."""
    printed, peak = peak_memory(RUN.format(path=str(awkward), executor=executor, memory=memory))
    rows, before, budget = json.loads(printed)
    assert rows == 6 * 16
    assert peak <= 1.05 * (before + budget)


SMALL = """
def darker(image):
    return image >> 1
pipeline = sp.Pipeline(sp.FileList({path!r})).repeat_each(8).shuffle(seed=1).map(sp.RandomResizedCrop(224))
settings = {{}}
if {executor!r} != "native":
    pipeline = pipeline.map(darker, field="image")
    settings = {{"executor": {executor!r}}}
with pipeline.map(sp.Normalize()).batch(64).loader(num_workers=2, large_image_memory="46MiB", **settings) as loader:
    rows = sum(len(batch["index"]) for batch in loader)
    side = loader.memory()["side arena"]
    print(rows, loader.plan.forecast.process, loader.plan.memory_bytes, side.peak, side.most)
"""


@pytest.mark.parametrize("executor", ["native", pytest.param("thread", marks=pytest.mark.long), "process"])
def test_a_container_of_512_mb(awkward: Path, executor: str) -> None:
    """Nothing is killed there, and what all processes have together stays within the budget, whatever the images."""
    with small_container(488) as container:
        program = SMALL.format(path=str(awkward), executor=executor)
        printed, peak = peak_memory(program, first=container.join)
        assert container.kills == 0
    rows, before, budget, side, most_side = map(int, printed.split())
    assert rows == 8 * 16
    assert budget <= 488 * MIB // 2
    assert peak <= 1.05 * (before + budget)
    assert 30 * MIB < side <= most_side == 46 * MIB


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_workers_share_memory_for_whole_frames(tmp_path: Path, executor: str) -> None:
    """An image may have all of it, whatever the number of workers; the others wait."""
    files = [encoded(smooth(1000, 1000 + side), "PNG", compress_level=1) for side in range(8)]
    pipeline = sp.Pipeline(write_list(tmp_path, files)).map(sp.Resize((8, 8))).map(lambda x: x, field="image")
    settings: dict[str, Any] = {"executor": executor, "memory": "256MiB"}
    with pipeline.batch(8).loader(num_workers=4, large_image_memory="12MiB", **settings) as loader:
        (batch,) = loader
        assert batch["image"].any(axis=(1, 2, 3)).all()
        assert 8 * MIB < loader.memory()["side arena"].peak <= 12 * MIB
    with (
        pipeline.batch(8).loader(num_workers=1, large_image_memory="8MiB", **settings) as loader,
        pytest.raises(sp.DecodeError, match=r"more than large_image_memory=8388608"),
    ):
        next(iter(loader))


def test_the_cap_is_that_of_the_plan_with_what_was_measured(tmp_path: Path) -> None:
    """Slots that are only known once a sample was made leave less for whole frames."""
    files = [encoded(smooth(1000, 1400 + side), "PNG", compress_level=1) for side in range(8)]
    pipeline = sp.Pipeline(write_list(tmp_path, files)).map(sp.Resize((400, 400)))
    pipeline = pipeline.map(lambda image: image.astype(np.float64), field="image")
    for executor, workers, memory in (("thread", 4, "150MiB"), ("process", 2, "210MiB")):
        with pipeline.batch(8).loader(num_workers=workers, memory=memory, executor=executor) as loader:
            first = loader.plan.forecast.side
            list(loader)
            side = loader.memory()["side arena"]
        assert side.peak <= side.most == loader.plan.forecast.side < first


def photos(folder: Path, count: int = 24) -> sp.Pipeline:
    """Batches of 4 images, 192 KiB each."""
    files = [encoded(picture(seed), quality=90) for seed in range(count)]
    return sp.Pipeline(write_list(folder, files)).map(sp.RandomResizedCrop(128)).batch(4)


def test_the_ledger_before_during_and_after_a_run(tmp_path: Path) -> None:
    loader = photos(tmp_path).loader(memory="64MiB", num_workers=2, prefetch=2)
    plan, before = loader.plan, loader.memory()
    slot = plan.batch.layout.stride_bytes
    assert before["slots"] == sp.MemoryOwner("slots", plan.forecast.slots, 0, 0, plan.most_slots * slot)
    assert before.forecast == plan.forecast.allocated
    assert before.limit == plan.memory_bytes
    iterator = iter(loader)
    held = [next(iterator) for _ in range(5)]
    during = loader.memory()
    assert during["slots"].now in (5 * slot, 6 * slot)  # one more may be filling
    assert "5 lent" in during["slots"].note
    assert during["read-ahead"].peak > 0
    assert during["decoding threads"].now <= plan.forecast.workers  # as far as the process has grown
    assert during.now == sum(owner.now for owner in during.owners) <= during.peak <= plan.memory_bytes
    del held[1:]
    loader.close()
    after = loader.memory()
    assert after["slots"].now == slot
    assert after["slots"].note == "1 lent"
    assert after["slots"].peak == during["slots"].peak
    assert after["read-ahead"].now == after["decoding threads"].now == after["engine"].now == 0
    del held, iterator
    gc.collect()
    assert loader.memory()["slots"].now == 0


def test_the_ledger_is_a_table_at_80_columns(awkward: Path) -> None:
    pipeline = sp.Pipeline(sp.FileList(awkward)).map(sp.Resize((64, 64))).map(lambda x: x, field="image")
    with pipeline.batch(4).loader(memory="300MiB", executor="process", num_workers=2) as loader:
        next(iter(loader))
        table = str(loader.memory())
    lines = table.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line[:22].strip() for line in lines if line[0] != " "]
    assert names[:2] == ["index", "slots"]
    assert names[-3:] == ["together", "process at start", "growth of this process"]
    with pytest.raises(KeyError):
        loader.memory()["what nobody has"]


def test_whole_frames_are_in_the_ledger(awkward: Path) -> None:
    pipeline = sp.Pipeline(sp.FileList(awkward)).map(sp.Resize((64, 64))).batch(4)
    for settings in ({}, {"executor": "inline"}):
        with pipeline.loader(memory="300MiB", num_workers=2, **settings) as loader:
            for _ in loader:
                pass
            side = loader.memory()["side arena"]
        assert side.peak > 20 * MIB
        assert loader.memory().peak >= side.peak  # nobody looked while it was taken
        assert side.forecast == loader.plan.forecast.whole > 0
        assert loader.memory()["side arena"].now == 0


def test_whole_frames_are_forecast_by_the_headers_of_the_first_samples(tmp_path: Path) -> None:
    def forecast(suffix: str, **settings: Any) -> sp.MemoryForecast:
        listed = tmp_path / f"list-{suffix[1:]}.txt"
        paths = [tmp_path / f"{width}{suffix}" for width in (40, 400, 100)]
        for path in paths:
            Image.new("RGB", (int(path.stem), 300)).save(path)
        listed.write_text("\n".join(map(str, paths)))
        pipeline = sp.Pipeline(sp.FileList(listed)).map(sp.Resize((8, 8))).batch(2)
        return pipeline.plan(memory="300MiB", num_workers=2, **settings).forecast

    png = forecast(".png")
    frame = 9 * 400 * 300 + (tmp_path / "400.png").stat().st_size
    assert png.whole == 2 * frame
    assert png.expected == png.process + png.allocated + png.whole < png.most
    assert forecast(".png", large_image_memory=frame).whole == frame
    assert forecast(".jpg").whole == 0
    (tmp_path / "400.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    assert sp.Pipeline(sp.FileList(tmp_path / "list-png.txt")).map(sp.Resize(8), sp.CenterCrop(8)).batch(
        2
    ).plan(memory="300MiB", num_workers=2).forecast.whole == 2 * (
        9 * 100 * 300 + (tmp_path / "100.png").stat().st_size
    )


@pytest.mark.parametrize(("executor", "measured"), [(None, 0), ("thread", MIB), ("process", 8 * MIB)])
def test_a_budget_below_a_whole_frame_is_refused_with_one_that_works(
    tmp_path: Path, executor: str | None, measured: int
) -> None:
    """``measured``: what workers turn out to take more than a plan knows, at most."""
    files = {f"{seed}.png": encoded(smooth(1000, 1400 + seed), "PNG", compress_level=0) for seed in range(4)}
    pipeline = sp.Pipeline(write_list(tmp_path, files)).map(sp.Resize((64, 64)))
    if executor is not None:
        pipeline = pipeline.map(lambda image: image, field="image")
    settings: dict[str, Any] = {"executor": executor, "num_workers": 1, "prefetch": 1}
    frames = rf"\(a whole frame\).* need memory='{NUMBER}MiB', but the budget is 20\.0MiB. Raise it, "
    with pytest.raises(sp.BudgetError, match=frames) as caught:
        pipeline.batch(2).plan(memory="20MiB", **settings)
    smallest = caught.value.smallest_bytes or 0
    with pipeline.batch(2).loader(memory=smallest + measured, **settings) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 4
    assert pipeline.batch(2).plan(memory="1GiB", **settings).forecast.side == 256 * MIB
    assert pipeline.batch(2).plan(memory="1GiB", large_image_memory="1MiB", **settings).forecast.side == MIB


def test_a_frame_above_the_usual_side_arena_has_room(tmp_path: Path) -> None:
    Image.new("RGB", (6000, 5500)).save(tmp_path / "large.png")
    (tmp_path / "list.txt").write_text("large.png")
    pipeline = sp.Pipeline(sp.FileList(tmp_path / "list.txt")).map(sp.Resize((8, 8))).batch(1)
    side = pipeline.plan(memory="1GiB", num_workers=1).forecast.side
    assert 9 * 6000 * 5500 < side < 10 * 6000 * 5500


def test_what_the_trainer_allocates_is_its_own_growth(tmp_path: Path) -> None:
    with photos(tmp_path).loader(memory="64MiB", num_workers=1) as loader:
        for _ in loader:
            pass
        before = loader.memory()
        ballast = np.ones(300 * MIB, np.uint8)
        after = loader.memory()
        assert after.now - before.now < 9 * MIB  # engine and threads may have grown
        grown = after["growth of this process"].now - before["growth of this process"].now
        assert 270 * MIB < grown <= 301 * MIB
        del ballast
        later = loader.memory()["growth of this process"]
        assert later.now < 10 * MIB + before["growth of this process"].now
        assert later.peak == after["growth of this process"].now


def test_the_index_and_what_the_order_looks_up_count() -> None:
    rows = 400_000
    plain = sp.Pipeline(numbers(rows)).shuffle(seed=1)
    weighted = plain.sample(seed=1, weights=np.arange(1, rows + 1)).batch(2)
    balanced = sp.Pipeline(sp.Arrays(y=np.arange(rows) % 7)).sample(seed=1, balance="y").batch(2)
    marked = sp.Pipeline(sp.Arrays(y=np.arange(rows))).filter("y % 3 != 0").batch(2)
    budgeted = sp.Pipeline(sp.Arrays(y=np.arange(rows) % 50)).batch(budget=200, length_column="y")
    assert plain.batch(2).plan(memory="64MiB").forecast.index < MIB
    for pipeline, least in (
        (weighted, 12 * rows),
        (balanced, 4 * rows),
        (marked, 4 * rows // 3),
        (budgeted, 4 * rows),
    ):
        plan = pipeline.plan(memory="64MiB", num_workers=1)
        assert least <= plan.forecast.index < 8 * MIB
        assert plan.forecast.allocated + plan.forecast.side <= plan.memory_bytes
    with pytest.raises(sp.BudgetError, match=r"4\.\dMiB for the index together need memory") as caught:
        weighted.plan(memory="20MiB", num_workers=1)
    assert weighted.plan(memory=caught.value.smallest_bytes, num_workers=1).slots == 2


def test_values_in_no_slot_are_forecast_from_the_first_sample() -> None:
    class Lists:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": np.zeros((1 + index % 3, 1000)), "text": "x" * 5000, "parts": [b"y" * 3000] * 5}

    pipeline = sp.Pipeline(sp.MapSource(Lists())).batch(10, collate={"x": list})
    with pipeline.loader(memory="64MiB", executor="inline") as loader:
        assert loader.plan.forecast.waiting == 0
        next(iter(loader))
        a_sample = 8000 + 5000 + 5 * 3000
        assert 1 <= loader.plan.forecast.waiting / (loader.plan.slots * 10 * a_sample) < 1.1


class Leaks:
    """Each sample leaves 1 MiB behind, until there are 255: with more its process would be replaced."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Any:
        if len(self.kept) < 255:
            self.kept.append(np.ones(MIB, np.uint8))
        return np.zeros(8)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    return [text.removeprefix("memory runs short: ") for text in said if text.startswith("memory runs short")]


def until_warned(loader: sp.Loader, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Take batches until memory is looked at and found short; what was said."""
    ends = time.monotonic() + WAIT_S
    with caplog.at_level("WARNING", "standpipe"):
        while not warned(caplog):
            assert time.monotonic() < ends, "nobody said anything"
            for _ in loader:
                if warned(caplog):
                    break
    return warned(caplog)


def test_batches_that_are_held_are_named_before_none_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with photos(tmp_path).loader(memory="64MiB", num_workers=1, large_image_memory="8MiB") as loader:
        until = int(0.85 * loader.plan.most_slots)
        held = list(loader.steps(until))
        (text,) = until_warned(loader, caplog)
        assert text.startswith("slots: ")
        assert re.search(
            rf"Your code holds ({until}|{until + 1}) batches, and {loader.plan.most_slots} fit", text
        )
        assert len(held) == until < loader.plan.most_slots


def test_worker_processes_that_grow_are_named(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Leaks())).batch(4)
    with pipeline.loader(
        memory="350MiB", executor="process", num_workers=1, memory_per_worker="280MiB"
    ) as loader:
        assert loader.plan.forecast.allocated < 0.5 * loader.plan.memory_bytes
        (text,) = until_warned(loader, caplog)
    assert text.startswith("worker processes: ")
    assert "your dataset or functions" in text


def test_nobody_is_named_where_all_is_as_forecast(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the budget is just enough."""
    pipeline = photos(tmp_path)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory="1MiB", num_workers=2)
    with (
        caplog.at_level("WARNING", "standpipe"),
        pipeline.loader(memory=caught.value.smallest_bytes, num_workers=2) as loader,
    ):
        ends = time.monotonic() + 2.5  # two looks
        while time.monotonic() < ends:
            for _ in loader:
                pass
    assert warned(caplog) == []


def test_the_trainers_own_growth_is_named_in_a_small_container() -> None:
    with small_container(190) as container:
        said = output(
            """
            import logging
            logging.basicConfig(stream=sys.stdout, format="%(message)s")
            ballast = []
            with make(memory="40MiB", num_workers=1) as loader:
                ends = time.monotonic() + 20
                while time.monotonic() < ends and len(ballast) < 140:
                    for batch in loader.steps(50):
                        del batch
                    ballast.append(np.ones(1 << 20, np.uint8))
                ends = time.monotonic() + 2.5
                while time.monotonic() < ends:
                    for batch in loader.steps(50):
                        del batch
            """,
            first=container.join,
        )
    assert "memory runs short: this process has grown by 1" in said
    assert said.count("memory runs short") == 1
