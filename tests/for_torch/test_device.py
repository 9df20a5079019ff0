"""Batches on a device: the host's bits, ordered by nothing but streams and events, in memory that comes back."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
import standpipe.torch
from late_device import (
    EVERYTHING,
    ROWS,
    SETTINGS,
    STEPS,
    TABLES,
    LateStreams,
    Step,
    Stream,
    check_same,
    host,
    images,
    on,
)
from painted import painted
from photos import encoded, picture
from standpipe.torch.finishing import Finisher
from standpipe.torch.sending import Wanted


@pytest.mark.parametrize(
    ("dtype", "memory_format", "static_buffers"),
    [
        (None, None, False),
        (None, torch.channels_last, True),
        (torch.float16, torch.channels_last, False),
        (torch.bfloat16, None, True),
        (torch.bfloat16, torch.channels_last, False),
    ],
)
def test_batches_are_the_hosts_to_the_bit(
    late: LateStreams, dtype: Any, memory_format: Any, static_buffers: bool
) -> None:
    step = Step(late)
    with images().loader(
        **SETTINGS, device=on(late, Wanted(None, dtype, memory_format, static_buffers))
    ) as loader:
        places = set()
        for _ in range(2):
            for batch in loader:
                step(batch)
                image = batch["image"]
                assert image.shape == (ROWS, 3, 9, 7)
                assert image.dtype == (dtype or torch.float32)
                assert image.is_contiguous(memory_format=memory_format or torch.contiguous_format)
                places.add(image.data_ptr())
        check_same(step.all(), host(images(), 2))
    assert (len(places) == 1) == static_buffers or not static_buffers


def test_boxes_keep_their_dtype(late: LateStreams, tmp_path: Path) -> None:
    padded = {"image": sp.Pad(max_shape=(3, 120, 120))}
    pipeline = sp.Pipeline(painted(tmp_path, 6)).map(sp.Normalize()).batch(4, collate=padded)
    (expected, *_) = host(pipeline)
    with pipeline.loader(**SETTINGS, device=on(late, Wanted(None, torch.bfloat16, None, False))) as loader:
        batch = next(iter(loader))
        late.wait_here(late.record(late.now))
    assert batch["image"].dtype == torch.bfloat16
    for name in ("boxes", "to_original"):
        assert batch[name].dtype == expected[name].dtype
        assert torch.equal(batch[name], expected[name])


@pytest.mark.parametrize(
    "transforms",
    [
        (sp.Normalize(), sp.ToDtype("float16")),
        (sp.Normalize(), sp.ToLayout("NHWC")),
        (sp.ToDtype("float32"),),
        (sp.ToDtype("uint8"),),
        (sp.ToDtype("uint8"), sp.ToLayout("NCHW")),
        (sp.Resize((5, 6)), sp.RandomHorizontalFlip(), sp.Normalize(mean=(0.1, 0.2, 0.3))),
    ],
)
def test_whatever_the_kernel_would_have_written(late: LateStreams, transforms: Any) -> None:
    step = Step(late)
    with images(ROWS * STEPS, *transforms).loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        check_same(step.all(), host(images(ROWS * STEPS, *transforms)))


def test_bytes_cross_and_the_recipe_stays(late: LateStreams) -> None:
    there, here = images().plan(**SETTINGS, device=on(late)), images().plan(**SETTINGS)
    assert there.fields["image"] == sp.ArraySpec((9, 7, 3), np.dtype(np.uint8))
    assert there.batch.layout.slot_bytes < here.batch.layout.slot_bytes / 2
    assert (there.digest, there.recipe) == (here.digest, here.recipe)


def test_a_batch_that_is_dropped_at_once_is_whole(late: LateStreams) -> None:
    """The device lags far behind; slots are filled again meanwhile."""
    step = Step(late)
    pipeline = images(ROWS * 60)
    with pipeline.loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
            del batch
        check_same(step.all(), host(pipeline))


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_whoever_makes_the_rows(late: LateStreams, executor: str) -> None:
    pipeline = images().map(_darker, field="image")
    step = Step(late)
    with pipeline.loader(**{**SETTINGS, "executor": executor}, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        check_same(step.all(), host(pipeline))


def _darker(image: Any) -> Any:
    return image * np.float32(0.5)


def test_static_buffers_cant_follow_a_schedule(late: LateStreams) -> None:
    static = on(late, replace(EVERYTHING, static_buffers=True))
    sizes: Any = sp.Schedule({0: 4, 1: 7})
    with pytest.raises(sp.PlanError, match="static_buffers=True needs batches of one shape"):
        images(ROWS, sp.CenterCrop(sizes)).plan(**SETTINGS, device=static)
    drawn: Any = sp.PerStep([4, 7], multiple_of=1)
    with pytest.raises(sp.PlanError, match="static_buffers=True needs batches of one shape"):
        images(ROWS, sp.CenterCrop(drawn)).plan(**SETTINGS, device=static)
    chances: Any = sp.Schedule({0: 0.0, 1: 0.5})
    assert images(ROWS, sp.RandomHorizontalFlip(chances)).plan(**SETTINGS, device=static).segments


def test_images_that_grow_are_finished_on_the_device(late: LateStreams) -> None:
    sizes: Any = sp.Schedule({0: 4, 1: 7})
    pipeline = images(ROWS * STEPS, sp.CenterCrop(sizes), sp.Normalize())
    step = Step(late)
    with pipeline.loader(**SETTINGS, device=on(late)) as loader:
        shapes = []
        for _ in range(2):
            for batch in loader:
                step(batch)
                shapes.append(tuple(batch["image"].shape))
        check_same(step.all(), host(pipeline, 2))
    assert shapes == [(ROWS, 3, 4, 4)] * STEPS + [(ROWS, 3, 7, 7)] * STEPS
    means: Any = sp.Schedule({0: (0.5, 0.5, 0.5), 1: (0.0, 0.0, 0.0)})
    with pytest.raises(sp.PlanError, match="Normalize can't have a Schedule where the device normalizes"):
        images(ROWS, sp.Normalize(mean=means)).plan(**SETTINGS, device=on(late))


def test_sizes_of_steps_are_finished_on_the_device(late: LateStreams) -> None:
    sizes: Any = sp.PerStep([4, 7], multiple_of=1)
    pipeline = images(ROWS * STEPS, sp.CenterCrop(sizes), sp.Normalize())
    step = Step(late)
    with pipeline.loader(**SETTINGS, device=on(late)) as loader:
        shapes = []
        for batch in loader:
            step(batch)
            shapes.append(tuple(batch["image"].shape))
        check_same(step.all(), host(pipeline))
    assert set(shapes) == {(ROWS, 3, 4, 4), (ROWS, 3, 7, 7)}


@pytest.mark.parametrize("static_buffers", [False, True])
def test_a_caller_in_inference_mode_gets_them_too(late: LateStreams, static_buffers: bool) -> None:
    step = Step(late)
    with images().loader(
        **SETTINGS, device=on(late, replace(EVERYTHING, static_buffers=static_buffers))
    ) as loader:
        with torch.inference_mode():
            for batch in loader:
                step(batch)
        for batch in loader:
            step(batch)
        check_same(step.all(), host(images(), 2))


def test_fields_of_any_kind(late: LateStreams) -> None:
    samples = [
        {"points": np.full((1 + i % 3, 2), i, np.float32), "name": f"n{i}", "weight": np.float64(i) / 3}
        for i in range(ROWS * STEPS)
    ]
    pipeline = sp.Pipeline(sp.MapSource(samples)).batch(ROWS, collate={"points": sp.Pad(max_shape=(4, 2))})
    step = Step(late)
    with pipeline.loader(**SETTINGS, device=on(late, Wanted(None, torch.float16, None, False))) as loader:
        for batch in loader:
            step(batch)
        seen = step.all()
    check_same(seen, host(pipeline))
    assert seen[0]["weight"].dtype == torch.float16
    assert seen[0]["name"] == ["n0", "n1", "n2", "n3"]


def test_what_functions_make_of_a_batch(late: LateStreams) -> None:
    def shares(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "shares": np.eye(ROWS, dtype=np.float32)}

    pipeline = images().map_batch(shares)
    step = Step(late)
    with pipeline.loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        check_same(step.all(), host(pipeline))


def test_one_place_for_all_batches_whatever_stream_the_step_is_on(late: LateStreams) -> None:
    one, other, step = late.now, Stream(3), Step(late)
    reads = threading.Event()
    with images().loader(**SETTINGS, device=on(late, replace(EVERYTHING, static_buffers=True))) as loader:
        batches = iter(loader)
        batch = next(batches)
        late.on(one, reads.wait)
        step(batch)
        late.now = other
        next(batches)
        late.record(other).wait(0.2)  # it has been written now, if nothing keeps it
        reads.set()
        late.now = one
        check_same(step.all(), host(images())[:1])
        for late.now in (other, one, other, one):
            step(next(batches))
        for late.now in (other, one):
            seen = step.all()
        check_same(seen[1:], host(images())[2:])
    other.end()


@pytest.mark.parametrize("mixes", [(), (sp.MixUp(0.4, 30),)])
def test_a_look_is_the_batch_in_memory_of_its_own(late: LateStreams, mixes: Any) -> None:
    step, expected = Step(late), host(images().map_batch(*mixes), 2)
    with images().map_batch(*mixes).loader(**SETTINGS, device=on(late)) as loader:
        step(loader.peek())
        iterator = iter(loader)
        for number in range(STEPS):
            step(loader.peek())
            step(next(iterator))
            if number == STEPS - 1:
                step(loader.peek())  # the first of the next epoch
        for batch in loader:
            step(batch)
        twice = [each for each in expected[:STEPS] for _ in range(2)]
        check_same(step.all(), [expected[0], *twice, expected[STEPS], *expected[STEPS:]])


def test_a_look_keeps_no_memory_of_the_device(late: LateStreams) -> None:
    with images().loader(**SETTINGS, device=on(late)) as loader:
        step = Step(late)
        step(loader.peek())
        step.all()
        del step
        gc.collect()
        assert late.held() == TABLES


def test_static_buffers_have_no_place_for_a_look(late: LateStreams) -> None:
    with (
        images().loader(**SETTINGS, device=on(late, replace(EVERYTHING, static_buffers=True))) as loader,
        pytest.raises(sp.PlanError, match="static_buffers=True has memory for one"),
    ):
        loader.peek()


MIXES = [(sp.MixUp(0.4, 30),), (sp.CutMix(1.0, 30),), (sp.MixUp(0.8, 30), sp.CutMix(1.0, 30))]


@pytest.mark.parametrize(
    ("transforms", "dtype", "mixes"),
    [
        ((sp.Normalize(),), None, MIXES[0]),
        ((sp.Normalize(),), torch.bfloat16, MIXES[1]),
        ((sp.Normalize(), sp.ToDtype("float16")), torch.bfloat16, MIXES[2]),
        ((sp.ToDtype("uint8"),), torch.float16, MIXES[2]),
    ],
)
def test_mixing_is_the_hosts_to_the_bit(
    late: LateStreams, mixes: Any, dtype: Any, transforms: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "standpipe.torch.mixing.PIECE_BYTES", 3 * 4 * 9 * 7 * 3
    )  # three rows at once, then one
    pipeline = images(ROWS * STEPS, *transforms).map_batch(*mixes)
    step = Step(late)
    wanted = Wanted(None, dtype, torch.channels_last, static_buffers=False)
    with pipeline.loader(**SETTINGS, device=on(late, wanted)) as loader:
        assert loader.plan.samples.kernel is not None
        assert loader.plan.digest == pipeline.plan(**SETTINGS).digest
        for _ in range(2):
            for batch in loader:
                step(batch)
        check_same(step.all(), host(pipeline, 2))


def test_labels_that_cant_be_mixed_are_named_as_on_the_host(late: LateStreams) -> None:
    said = []
    for settings in ({}, {"device": on(late)}):
        pipeline = images().map_batch(sp.MixUp(0.4, 20))
        with (
            pipeline.loader(**{**SETTINGS, **settings}) as loader,
            pytest.raises(sp.TransformError) as raised,
        ):
            list(loader)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "classes go from 0 to 19" in said[0]


def test_only_fields_that_are_wanted_cross(late: LateStreams) -> None:
    wanted = Wanted(frozenset(("label",)), None, None, False)
    with images().loader(**SETTINGS, device=on(late, wanted)) as loader:
        batch = next(iter(loader))
        assert list(batch) == ["index", "label"]
        assert isinstance(batch["index"], np.ndarray)
    assert max(late.sizes) == 256


def test_the_next_batch_comes_while_nobody_asks(late: LateStreams) -> None:
    with images().loader(**SETTINGS, device=on(late)) as loader:
        batches = iter(loader)
        fields = len(next(batches))
        for _ in range(2 + 2 * fields):  # the tables, the first batch, and the second
            assert late.copies.acquire(timeout=20)


def test_how_long_copies_take_beside_the_host_is_counted(late: LateStreams) -> None:
    with images().loader(**SETTINGS, device=on(late)) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        late.wait_here(late.record(late.side))
        next(batches)  # looks whether copies are over
        device = loader.stats().device
    assert device.rows == 4 * ROWS
    assert device.busy_s - device.cpu_s > 0 < device.cpu_s


def test_slots_are_filled_again_while_nobody_asks(late: LateStreams) -> None:
    """A step may take long, and its batches have left their slots meanwhile."""
    goes_on = threading.Event()
    with images(ROWS * 20).loader(**SETTINGS, prefetch=3, device=on(late)) as loader:
        batches = iter(loader)
        late.on(late.side, goes_on.wait)
        for _ in range(4):
            next(batches)
        goes_on.set()
        run: Any = loader._run
        ends = time.monotonic() + 20
        while len(run._queue.ready) < 4 and time.monotonic() < ends:
            time.sleep(0.001)
        assert len(run._queue.ready) == 4


def test_the_last_batch_of_an_epoch_is_followed_by_nothing(late: LateStreams) -> None:
    """A loader that rests holds none of the device's memory, so another one can have it."""
    step = Step(late)
    with images().loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        del batch
        step.all()
        step.seen.clear()
        gc.collect()
        assert late.held() == TABLES


def test_an_epoch_that_is_left_gives_its_memory_back(late: LateStreams) -> None:
    with images().loader(**SETTINGS, device=on(late)) as loader:
        for _ in loader:
            break
        late.wait_here(late.record(late.now))
        late.wait_here(late.record(late.side))
        del _
        gc.collect()
        assert late.held() == TABLES
        step = Step(late)
        for batch in loader:
            step(batch)
        check_same(step.all(), host(images(), 2)[STEPS:])


def test_memory_is_that_of_the_plan(late: LateStreams) -> None:
    device = on(late, Wanted(frozenset(("image", "label")), torch.bfloat16, None, False))
    with images(ROWS * 12).loader(**SETTINGS, device=device) as loader:
        coming, held = device.memory(loader.plan.batch.layout.in_slot, loader.plan.samples.finish)
        for batch in loader:
            late.wait_here(late.record(late.now))
            del batch
    assert held == ROWS * (9 * 7 * 3 * 2 + 8)
    assert late.most <= coming + 2 * held + TABLES + 768 * 2  # those of the dtype


def test_batches_may_be_held(late: LateStreams) -> None:
    with images(ROWS * 16).loader(**SETTINGS, device=on(late)) as loader:
        batches = list(loader)
        late.wait_here(late.record(late.now))
        check_same(batches, host(images(ROWS * 16)))


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_more_may_come_ahead(late: LateStreams, slots: int) -> None:
    step = Step(late)
    with images(ROWS * 12).loader(**SETTINGS, prefetch=5, device=on(late, slots=slots)) as loader:
        for batch in loader:
            step(batch)
        check_same(step.all(), host(images(ROWS * 12)))


def test_seeking_brings_other_batches(late: LateStreams) -> None:
    step = Step(late)
    expected = host(images(), 3)
    with images().loader(**SETTINGS, device=on(late)) as loader:
        batches = iter(loader)
        step(next(batches))
        loader.skip_steps(2)
        step(next(batches))
        state = loader.state_dict()
        loader.set_epoch(2)
        step(next(iter(loader)))
        loader.load_state_dict(state)
        for batch in loader:
            step(batch)
        check_same(step.all(), [expected[0], expected[3], expected[2 * STEPS], *expected[4:STEPS]])


def test_a_bad_sample_raises_and_the_rest_comes(late: LateStreams, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(3 * ROWS):
        data = encoded(picture(number))
        (tmp_path / "a" / f"{number:02d}.jpg").write_bytes(data[:300] if number == ROWS else data)
    pipeline = sp.Pipeline(sp.ImageFolder(tmp_path)).map(sp.CenterCrop(8), sp.Normalize()).batch(ROWS)
    step = Step(late)
    with pipeline.loader(**SETTINGS, device=on(late)) as loader:
        batches = iter(loader)
        step(next(batches))
        with pytest.raises(sp.DecodeError, match=r"04\.jpg"):
            next(batches)
        loader.skip_steps(1)
        step(next(batches))
        assert [batch["index"].tolist() for batch in step.all()] == [[0, 1, 2, 3], [8, 9, 10, 11]]


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_bytes_become_numbers_in_pieces(planar: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standpipe.torch.finishing.CHUNK_BYTES", 2 * 4 * 3 * 11 * 6)  # two rows at once
    table = torch.from_numpy(sp.Normalize().table())
    pixels = torch.randint(0, 256, (rows, 11, 6, 3), dtype=torch.uint8)
    expected = torch.stack(
        [table[channel][pixels[..., channel].long()] for channel in range(3)], 1 if planar else -1
    )
    finisher = Finisher(table, table.dtype, planar=planar)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        out = torch.empty(finisher.shape(tuple(pixels.shape)), memory_format=memory_format)
        finisher.finish(pixels, out)
        assert torch.equal(out, expected)
