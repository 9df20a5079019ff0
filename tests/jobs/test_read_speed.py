"""What ``measure_reads`` says of storage, and that nothing can keep it for ever."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output
from photos import encoded, picture, write_list
from standpipe import _native

JPEGS = [encoded(picture(seed)) for seed in range(8)]


def plan_of(folder: Path) -> sp.Plan:
    pipeline = sp.Pipeline(sp.FileList(folder / "list.txt")).shuffle(seed=1).map(sp.CenterCrop(8)).batch(2)
    return pipeline.plan(memory="64MiB", num_workers=1)


def test_every_file_is_read_as_often_as_the_others(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    figures = sp.measure_reads(plan_of(tmp_path), seconds=0.2, threads=3)
    assert figures.threads == 3
    assert figures.files > len(JPEGS)
    mean = sum(map(len, JPEGS)) / len(JPEGS)
    assert figures.bytes == pytest.approx(figures.files * mean, rel=len(JPEGS) / figures.files)
    assert 0 < figures.p50_s <= figures.p99_s <= figures.slowest_s < figures.seconds
    assert figures.files_per_s == figures.files / figures.seconds
    assert figures.bytes_per_s == figures.bytes / figures.seconds
    assert figures.failed == 0


def test_however_little_time_there_is_a_file_is_read(tmp_path: Path) -> None:
    """Also on a machine where a thread starts late."""
    write_list(tmp_path, JPEGS)
    assert sp.measure_reads(plan_of(tmp_path), seconds=1e-9).files >= 1


def test_all_files_of_a_record_are_read(tmp_path: Path) -> None:
    images = write_list(tmp_path, JPEGS)
    (tmp_path / "small").write_bytes(encoded(picture(0, 40, 56)[..., 0], "PNG"))
    (tmp_path / "masks.txt").write_text("small\n" * len(JPEGS))
    pipeline = (
        sp.Pipeline(sp.FileList(images.path, mask=tmp_path / "masks.txt")).map(sp.CenterCrop(8)).batch(2)
    )
    figures = sp.measure_reads(pipeline.plan(memory="64MiB", num_workers=1), seconds=0.2, threads=1)
    of_record = sum(map(len, JPEGS)) / len(JPEGS) + (tmp_path / "small").stat().st_size
    assert figures.bytes == pytest.approx(figures.files / 2 * of_record, rel=2 * len(JPEGS) / figures.files)


def test_files_that_cant_be_read_are_counted(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    (tmp_path / "003.jpg").unlink()
    figures = sp.measure_reads(plan_of(tmp_path), seconds=0.2, threads=1)
    assert figures.failed == pytest.approx(figures.files / (len(JPEGS) - 1), abs=1)


def test_more_rows_than_are_handed_over_at_once(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    lines = (tmp_path / "list.txt").read_text()
    (tmp_path / "list.txt").write_text(2000 * lines)
    figures = sp.measure_reads(plan_of(tmp_path), seconds=0.5)
    assert figures.files > 0


def test_reads_that_hang_are_waited_for_a_while_and_given_up(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    key = _native.fault_key(os.fsencode(tmp_path / "003.jpg"))
    text = f"""
plan = sp.Pipeline(sp.FileList({str(tmp_path / "list.txt")!r})).map(sp.CenterCrop(8)).batch(2).plan()
figures = sp.measure_reads(plan, seconds=0.2, threads=4)
print(figures.failed, figures.files > 0, figures.seconds < 20)
"""
    faults = {"STANDPIPE_FAULTS": f"read.pread=delay:25s@#{key}"}
    failed, *others = output(text, environment=faults).split()
    assert 1 <= int(failed) <= 4
    assert others == ["True", "True"]


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    pipe = tmp_path / "faults.pipe"
    text = f"""
def interrupt_when_it_reads():
    with open({str(pipe)!r}) as lines:
        lines.readline()
    interrupt()
os.mkfifo({str(pipe)!r})
threading.Thread(target=interrupt_when_it_reads, daemon=True).start()
plan = sp.Pipeline(sp.FileList({str(tmp_path / "list.txt")!r})).map(sp.CenterCrop(8)).batch(2).plan()
begin = time.monotonic()
try:
    sp.measure_reads(plan, seconds=60, threads=1)
except KeyboardInterrupt:
    print(time.monotonic() - begin < 10, [each.name for each in threading.enumerate() if "standpipe" in each.name])
"""
    assert output(text, environment={"STANDPIPE_FAULTS": f"read.pread=delay:25s;log={pipe}"}) == "True []\n"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"seconds": 0}, "seconds must be above 0"),
        ({"seconds": float("nan")}, "seconds must be above 0"),
        ({"threads": 0}, "threads must be an integer from 1 to 4096"),
        ({"threads": 5000}, "threads must be an integer from 1 to 4096"),
    ],
)
def test_what_cant_be_asked(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    write_list(tmp_path, JPEGS)
    with pytest.raises(sp.PlanError, match=says):
        sp.measure_reads(plan_of(tmp_path), **settings)


def test_pictures_in_no_files() -> None:
    source = sp.Arrays(image=np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(sp.PlanError, match="aren't in files"):
        sp.measure_reads(sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).plan())


def test_nothing_that_can_be_read(tmp_path: Path) -> None:
    write_list(tmp_path, JPEGS)
    plan = plan_of(tmp_path)
    for number in range(len(JPEGS)):
        (tmp_path / f"{number:03d}.jpg").unlink()
    with pytest.raises(sp.StandpipeError, match="none of the files could be read: can't be opened: No such"):
        sp.measure_reads(plan, seconds=0.1)
