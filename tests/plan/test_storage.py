"""What ``explain()`` says of an order on storage that is slow to read anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import standpipe as sp
from parts import write_parts
from photos import encoded, picture, write_photos
from standpipe.plan.storage import is_spinning, storage_costs


def devices(folder: Path, *, rotational: str, vendor: str, partition: bool = False) -> Path:
    """A folder that describes the device of ``folder`` as the kernel does."""
    number = folder.stat().st_dev
    disk = folder / "devices" / "block" / "sda"
    for name, text in (("queue/rotational", rotational), ("device/vendor", vendor)):
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(f"{text}\n")
    place = disk / "sda1" if partition else disk
    place.mkdir(exist_ok=True)
    (folder / f"{os.major(number)}:{os.minor(number)}").symlink_to(place)
    return folder


@pytest.mark.parametrize("partition", [False, True])
@pytest.mark.parametrize(
    ("rotational", "vendor", "spins"),
    [("1", "ATA     ", True), ("0", "ATA", False), ("1", "0x1af4", False), ("1", "QEMU", False)],
)
def test_a_spinning_disk_is_one_that_is_no_virtual_one(
    tmp_path: Path, rotational: str, vendor: str, spins: bool, partition: bool
) -> None:
    known = devices(tmp_path, rotational=rotational, vendor=vendor, partition=partition)
    assert is_spinning(str(tmp_path), known) == spins


def test_of_an_unknown_device_nothing_is_said(tmp_path: Path) -> None:
    assert not is_spinning(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("parts", "scattered", "lines"), [(False, True, 2), (False, False, 1), (True, True, 1), (True, False, 0)]
)
def test_a_shuffle_over_all_of_a_spinning_disk_is_said_to_seek(
    tmp_path: Path, parts: bool, scattered: bool, lines: int
) -> None:
    (tmp_path / "known").mkdir()
    known = devices(tmp_path / "known", rotational="1", vendor="ATA")
    source: sp.FileList | object = (
        write_parts(tmp_path, [encoded(picture(0))]) if parts else write_photos(tmp_path, 2)
    )
    text = storage_costs(source.open(), scattered=scattered, devices=known)  # type: ignore[attr-defined]
    assert len(text) == lines
    assert any("shuffle(block=" in line for line in text) == scattered
    assert any("opened anew" in line for line in text) == (not parts)


@pytest.mark.parametrize("shuffled", [lambda pipeline: pipeline, lambda pipeline: pipeline.shuffle(seed=1)])
def test_memory_is_quick_in_any_order(tmp_path: Path, shuffled: Callable[[sp.Pipeline], sp.Pipeline]) -> None:
    write_photos(tmp_path, 2)
    plan = shuffled(sp.Pipeline(sp.FileList(tmp_path / "list.txt"))).map(sp.CenterCrop(8)).batch(2).plan()
    assert "seek" not in plan.explain()
