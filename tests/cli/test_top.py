"""``standpipe top`` shows the loaders that run, within 80 columns, and nothing of others."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

import standpipe as sp
from observed import shown, small_plan
from photos import numbers
from standpipe.cli import main
from standpipe.cli.top import text
from standpipe.observe import Found

pytestmark = pytest.mark.usefixtures("no_garbage")

NOW = replace(shown(small_plan()), pid=4711)
FOUND = Found(0.4, NOW)


@pytest.fixture
def running() -> Iterator[sp.Loader]:
    with sp.Pipeline(numbers(64)).batch(4).loader(memory="64MiB", num_workers=1) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        loader.snapshot()
        yield loader


def mine(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.split()[:1] == [str(os.getpid())]]


def test_it_shows_a_loader_that_runs(running: sp.Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 0  # no terminal: once
    (line,) = mine(capsys.readouterr().out)
    assert " 3/16 " in line
    assert main(["top", str(os.getpid())]) == 0
    detail = capsys.readouterr().out
    assert "epoch 0, step 3 of 16" in detail
    assert "transform" in detail
    running.close()
    assert main(["top", "--once"]) == 0
    assert mine(capsys.readouterr().out) == []


def test_its_json_has_the_facts(running: sp.Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json", str(os.getpid())]) == 0
    (found,) = json.loads(capsys.readouterr().out)["loaders"]
    assert (found["step"], found["steps_per_epoch"], found["stats"]["step"]["rows"]) == (3, 16, 12)
    assert found["age_s"] >= 0


def test_a_process_without_a_loader_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "1"]) == 1
    assert "process 1 has no running loader" in capsys.readouterr().err


def test_a_table_of_any_loaders_has_80_columns() -> None:
    large = replace(
        NOW,
        pid=4_000_000,
        script="a_script_of_some_length\x1b[2J.py",
        rank=1023,
        world_size=1024,
        epoch=12345,
        step=1_234_567,
        steps_per_epoch=9_999_999,
        recent=replace(NOW.recent, rows=10**9),
        stats=replace(NOW.stats, bad=10**7, workers=tuple(sp.WorkerStats(f"worker {n}") for n in range(40))),
    )
    found = [
        FOUND,
        Found(99.0, large),
        Found(0.0, replace(NOW, pid=1, diagnosis=None, steps_per_epoch=None)),
    ]
    for shown_text in (text(found, None), text(found, 4711)):
        assert max(map(len, shown_text.splitlines())) <= 80
        assert "\x1b" not in shown_text
    rows = text(found, None).splitlines()
    assert rows[1].split()[0] == "4711"
    assert rows[1].endswith("transform")
    assert rows[2].endswith("99 s old")
    assert "stands still since 99 s" in text(found, 4_000_000)


def test_a_detail_has_bars_as_long_as_their_loads() -> None:
    lines = text([FOUND], 4711).splitlines()
    bars = {line.split()[0]: line.count("█") for line in lines if "█" in line or "·" in line}
    assert (bars["order"], bars["read"], bars["transform"]) == (1, 6, 19)


def test_a_detail_leaves_out_workers_that_are_idle() -> None:
    makers = [sp.WorkerStats(f"decoder thread {number}", 64, 2.0) for number in range(2)]
    readers = [sp.WorkerStats(f"reading thread {number}", 0, 0.0) for number in range(64)]
    some = replace(NOW, stats=replace(NOW.stats, workers=(*makers, *readers)))
    shown_text = text([Found(0.4, some)], 4711)
    assert len(re.findall(r"decoder thread \d +2\.0 s +50%", shown_text)) == 2
    assert "reading thread" not in shown_text
    assert "    and 54 more" not in shown_text.splitlines()
    none = replace(NOW, stats=replace(NOW.stats, workers=tuple(readers)))
    assert "  workers" not in text([Found(0.4, none)], 4711).splitlines()


def test_at_a_terminal_it_goes_on_until_ctrl_c(running: sp.Loader) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "TERM": "xterm",
        "COLUMNS": "80",
        "LINES": "24",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "standpipe", "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            watch_until_ctrl_c(process, ours)
        finally:
            process.kill()
            os.close(ours)


def watch_until_ctrl_c(process: subprocess.Popen[bytes], ours: int) -> None:
    seen = ""
    while len(re.findall(rf"\b{os.getpid()}\b", seen)) < 2:  # it was shown again
        assert select.select([ours], [], [], 60)[0], seen
        seen += os.read(ours, 1 << 16).decode(errors="replace")
    process.send_signal(2)
    while True:
        try:
            seen += os.read(ours, 1 << 16).decode(errors="replace")
        except OSError:
            break
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert "\x1b[?1049l" in seen  # back from the other screen
