"""What a device has of the host: pinned slots, CPUs that are near, and what a caller says of it."""

from __future__ import annotations

import gc
import logging
import weakref
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
    LateDevice,
    LateStreams,
    Step,
    check_same,
    host,
    images,
    on,
)
from standpipe.torch import streams
from standpipe.torch.device import CudaDevice
from standpipe.torch.numa import cpus_near
from standpipe.torch.sending import Wanted
from standpipe.torch.tensors import Form


def test_slots_are_pinned_once_and_let_go(late: LateStreams) -> None:
    step = Step(late)
    with images(ROWS * 16).loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        step.all()
        assert len(late.pinned) == loader.plan.slots
        assert set(late.pinned.values()) == {loader.plan.batch.layout.stride_bytes}
    assert not late.pinned


def test_slots_that_cant_be_pinned_do_too(caplog: pytest.LogCaptureFixture) -> None:
    late = LateStreams(pins=False)
    step = Step(late)
    with caplog.at_level(logging.WARNING), images().loader(**SETTINGS, device=on(late)) as loader:
        for batch in loader:
            step(batch)
        check_same(step.all(), host(images()))
    late.end()
    assert [record.getMessage() for record in caplog.records] == [
        "slots can't be pinned, so copies to cpu take the host's time: no such thing"
    ]


def test_a_loader_that_is_dropped_lets_go(late: LateStreams) -> None:
    loader = images().loader(**SETTINGS, device=on(late))
    batch = next(iter(loader))
    ended = weakref.ref(loader)
    del loader
    gc.collect()
    assert ended() is None
    assert not late.pinned
    late.wait_here(late.record(late.now))
    check_same([batch], host(images())[:1])


def test_torchs_loader_gives_tensors_of_the_device(
    late: LateStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(self: Form, *, prefetch: int = 1, static_buffers: bool = False) -> LateDevice:
        wanted = Wanted(
            frozenset(("image", "label", "valid")), self.dtype, self.memory_format, static_buffers
        )
        return on(late, wanted, prefetch + 1)

    monkeypatch.setattr(Form, "place", place)
    made = standpipe.torch.loader(
        images(), dtype=torch.bfloat16, fields=("image", "label", "valid"), **SETTINGS
    )
    kept = list(made)
    late.wait_here(late.record(late.now))
    for (image, label, valid), expected in zip(kept, host(images()), strict=True):
        assert torch.equal(image, expected["image"].to(torch.bfloat16))
        assert torch.equal(label, expected["label"])
        assert valid.all()
    made.close()


def test_a_device_that_isnt_there_is_named() -> None:
    if torch.cuda.is_available():
        number = torch.cuda.device_count()
        with pytest.raises(sp.PlanError, match=f"the last GPU that torch sees is cuda:{number - 1}"):
            standpipe.torch.loader(images(), device=f"cuda:{number}")
        return
    with pytest.raises(sp.PlanError, match=r"device='cuda:1' can't be used: torch .* Use device='cpu'"):
        standpipe.torch.loader(images(), device="cuda:1")


@pytest.mark.parametrize("slots", [-1, 0, 64, True, "two", 1.0])
def test_slots_of_the_device_are_checked(slots: Any) -> None:
    with pytest.raises(sp.PlanError, match="device_prefetch must be an integer from 1 to 63"):
        standpipe.torch.loader(images(), device_prefetch=slots)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"device": 1.5}, r"device must be 'cpu', 'cuda', .* or a torch\.device, got 1\.5"),
        ({"device": None}, "device must be 'cpu', .* got None"),
        ({"device": "gpu"}, "device='gpu': .*cuda"),
        ({"device": "cuda:x"}, "device='cuda:x': "),
        ({"static_buffers": "yes"}, "static_buffers must be True or False, got 'yes'"),
    ],
)
def test_what_is_no_device_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(sp.PlanError, match=words):
        standpipe.torch.loader(images(), **wrong)


@pytest.mark.parametrize("device", ["cuda", 0, CudaDevice, torch.device("cpu")])
def test_a_name_is_no_device_of_a_plan(device: Any) -> None:
    with pytest.raises(sp.PlanError, match=r"standpipe\.torch\.loader"):
        images().plan(device=device)


def test_the_plan_says_what_crosses() -> None:
    late = LateStreams()
    wanted = Wanted(frozenset(("image", "label")), torch.bfloat16, torch.channels_last, False)
    text = images().plan(**SETTINGS, device=replace(on(late, wanted), slots=3)).explain()
    late.end()
    assert "cuda: image, label, copied 2 batches ahead" in text
    assert "image as bytes, made bfloat16 there" in text


def test_cpus_near_a_device(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    for node, cpus in ((0, "0-3,8\n"), (1, "4-7,9,11-12\n")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    assert cpus_near("0000:3b:00.0", tmp_path) == frozenset((4, 5, 6, 7, 9, 11, 12))
    assert cpus_near("0000:af:00.0", tmp_path) is None
    assert cpus_near(None, tmp_path) is None
    (device / "numa_node").write_text("-1\n")
    assert cpus_near("0000:3b:00.0", tmp_path) is None


def test_workers_are_where_the_device_is(late: LateStreams) -> None:
    """They run on one CPU where the device is near one; whoever starts them, where he did."""
    import os

    usable = os.sched_getaffinity(0)
    one = frozenset(sorted(usable)[:1])

    class Near(LateDevice):
        def cpus(self) -> frozenset[int] | None:
            return one

    seen: list[set[int]] = []

    def look(image: Any) -> Any:
        seen.append(os.sched_getaffinity(0))
        return image * np.float32(1)

    device = Near(torch.device("cuda"), EVERYTHING, 2, late)
    pipeline = images().map(look, field="image", spec=sp.ArraySpec((3, 9, 7), np.dtype(np.float32)))
    assert pipeline.plan(memory="256MiB", device=device).num_workers == 1
    with pipeline.loader(**SETTINGS, device=device) as loader:
        for _ in loader:
            pass
    assert {frozenset(cpus) for cpus in seen} == {one}
    assert os.sched_getaffinity(0) == usable


def test_what_a_thread_asks_is_no_part_of_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode is the driver's relaxed one meanwhile, and then what it was."""
    modes = [0]  # of this thread: global

    class Driver:
        def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
            modes.append(mode._obj.value)
            mode._obj.value = modes[-2]

    monkeypatch.setattr(streams, "_driver", Driver)
    with streams.beside_captures():
        assert modes[-1] == streams.RELAXED
    assert modes == [0, streams.RELAXED, 0]
