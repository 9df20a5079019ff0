"""Train from an object store: batches are those of local shards, whatever the store and the machine do."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from object_store import CREDENTIALS, FaultProxy, ObjectStore, fault_proxy
from photos import encoded, picture
from tars import shard

SHARDS, RECORDS = 3, 40  # of each shard
BATCH = 8
FAULTS = ("503", "429", "500", "200", "shifted", "flip", "short", "long", "reset", "stall")


@pytest.fixture
def local(tmp_path: Path) -> sp.TarShards:
    """Shards whose index has checksums."""
    for number in range(SHARDS):
        members = [
            (f"{number}{each:03}.jpg", encoded(picture(number * RECORDS + each))) for each in range(RECORDS)
        ]
        shard(tmp_path / f"train-{number}.tar", members)
    source = sp.TarShards(tmp_path / "train-{0..2}.tar", index=tmp_path / "index")
    sp.build_index(source, checksums=True)
    return source


@pytest.fixture
def proxy(seaweed: ObjectStore) -> Iterator[FaultProxy]:
    with fault_proxy(seaweed.port) as proxy:
        yield proxy


@pytest.fixture
def remote(
    local: sp.TarShards,
    proxy: FaultProxy,
    seaweed: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> sp.TarShards:
    """Return a source of these shards in the store, behind a proxy."""
    pytest.importorskip("obstore")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for number in range(SHARDS):
        seaweed.put(f"{tmp_path.name}/train-{number}.tar", (tmp_path / f"train-{number}.tar").read_bytes())
    store = sp.Store(endpoint=proxy.endpoint, region="us-east-1", path_style=True)
    return sp.TarShards(f"s3://bucket/{tmp_path.name}/train-{{0..2}}.tar", index=local.index, store=store)


def inverted(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 255 - image


def made(source: sp.TarShards, *, functions: bool = False) -> sp.Pipeline:
    pipeline = sp.Pipeline(source).shuffle(seed=7).map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip())
    return (pipeline.map(inverted, field="image") if functions else pipeline).batch(BATCH)


def digest(
    pipeline: sp.Pipeline, each: Callable[[], object] = lambda: None, *, epochs: int = 1, **options: Any
) -> tuple[str, sp.Stats]:
    """Return a digest of all batches, and the counters; ``each`` is called after each batch."""
    found = hashlib.sha256()
    with pipeline.loader(memory="512MiB", **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                found.update(batch["index"].tobytes() + batch["image"].tobytes())
                each()
        return found.hexdigest(), loader.stats()


def text_of(path: Path) -> str:
    """The text of a file under /proc; empty if the task has just ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return path.read_text(errors="replace")
    return ""


def fetch_processes(trainer: int | str = "self") -> list[int]:
    """The numbers of a trainer's fetch processes."""
    lists = Path(f"/proc/{trainer}/task").glob("*/children")
    children = [child for each in lists for child in text_of(each).split()]
    return [
        int(each) for each in children if "standpipe.fetch.process" in text_of(Path(f"/proc/{each}/cmdline"))
    ]


def kill_fetch_process() -> int:
    """Kill the fetch processes of this process; return how many there were."""
    killed = 0
    for each in fetch_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
            killed += 1
    return killed


@pytest.mark.parametrize(
    ("functions", "options"),
    [
        (False, {"num_workers": 2}),
        (False, {"executor": "inline"}),
        (True, {"num_workers": 2, "executor": "thread"}),
        (True, {"num_workers": 2, "executor": "process"}),
    ],
    ids=["native", "inline", "threads", "processes"],
)
def test_batches_are_those_of_local_shards(
    local: sp.TarShards, remote: sp.TarShards, functions: bool, options: dict[str, Any]
) -> None:
    ours, _ = digest(made(local, functions=functions), **options)
    theirs, stats = digest(made(remote, functions=functions), **options)
    assert theirs == ours
    assert stats.fetch.requests >= SHARDS * RECORDS / BATCH
    assert stats.fetch.bytes > 0
    assert stats.fetch.retries == 0


def test_faults_of_the_store_change_no_batch(
    local: sp.TarShards, remote: sp.TarShards, proxy: FaultProxy
) -> None:
    proxy.faults.extend(FAULTS)
    theirs, stats = digest(made(remote), epochs=3, num_workers=1)
    assert theirs == digest(made(local), epochs=3, num_workers=1)[0]
    assert stats.fetch.causes == {
        **dict.fromkeys(("503", "429", "500", "200", "checksum", "reset", "timeout"), 1),
        "range": 2,
        "short": 1,
    }


def test_nothing_is_lost_when_the_fetch_process_is_killed(
    local: sp.TarShards, remote: sp.TarShards, proxy: FaultProxy
) -> None:
    proxy.latency_s = 0.005
    killed = 0

    def kill() -> None:
        nonlocal killed
        killed += kill_fetch_process()

    theirs, stats = digest(made(remote), kill, epochs=2, num_workers=1)
    assert theirs == digest(made(local), epochs=2, num_workers=1)[0]
    assert killed > 5
    assert stats.fetch.deaths > 5


def test_a_record_that_cant_be_got_is_a_read_error(remote: sp.TarShards, proxy: FaultProxy) -> None:
    proxy.faults.extend(["404"] * 1000)
    with pytest.raises(sp.ReadError, match=r"no such object \(404\).*s3://bucket/.*tar") as error:
        digest(made(remote), num_workers=1)
    assert "secret" not in str(error.value)


def test_records_that_cant_be_got_are_replaced(
    local: sp.TarShards, remote: sp.TarShards, proxy: FaultProxy
) -> None:
    proxy.faults.append("404")
    with made(remote).on_error(sp.Replace(at_most=BATCH)).loader(memory="512MiB", num_workers=1) as loader:
        rows = sum(len(batch["index"]) for batch in loader)
        assert rows == SHARDS * RECORDS
        bad = loader.bad_samples
    assert {each.place for each in bad} == {"read"}
    assert all(str(each.path).startswith("s3://bucket/") for each in bad)
    assert bad


def test_a_store_that_stalls_is_given_up(remote: sp.TarShards, proxy: FaultProxy) -> None:
    proxy.faults.extend(["stall"] * 1000)
    reads = sp.ReadOptions(retries=100)
    with pytest.raises(sp.ReadError, match="the store didn't answer in time"):
        digest(made(remote), num_workers=1, stall_timeout_s=0.5, reads=reads)


def test_redirects_arent_followed(remote: sp.TarShards, proxy: FaultProxy) -> None:
    proxy.faults.extend(["redirect"] * 1000)
    with pytest.raises(sp.ReadError, match="redirect, which isn't followed"):
        digest(made(remote), num_workers=1)
    assert proxy.stolen == []


def test_a_loader_leaves_no_process(remote: sp.TarShards) -> None:
    with made(remote).loader(memory="512MiB", num_workers=1) as loader:
        next(iter(loader))
    assert kill_fetch_process() == 0


def test_the_fetch_process_of_a_killed_trainer_ends(remote: sp.TarShards) -> None:
    program = (
        "import sys, standpipe as sp\n"
        f"source = sp.TarShards({remote.shards!r}, index={str(remote.index)!r}, store=sp.Store(\n"
        f"    endpoint={remote.store.endpoint!r}, region='us-east-1', path_style=True))\n"  # type: ignore[union-attr]
        "with sp.Pipeline(source).map(sp.Resize((32, 32))).batch(4).loader(memory='512MiB') as loader:\n"
        "    next(iter(loader)); print('here', flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "here\n"
        (process,) = fetch_processes(trainer.pid)
        ended = os.pidfd_open(process)
        trainer.kill()
    try:
        assert select.select([ended], [], [], 30)[0]  # readable once the process has ended
    finally:
        os.close(ended)


def test_a_source_with_a_store_of_its_own_isnt_remote() -> None:
    class Stored:
        store = "bucket"

        def describe(self) -> str:
            return "Stored()"

        def open(self) -> Any:
            return self

        def __init__(self) -> None:
            self._opened = sp.Arrays(image=np.zeros((4, 8, 8, 3), np.uint8)).open()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._opened, name)

    with sp.Pipeline(Stored()).batch(2).loader(memory="256MiB") as loader:
        assert len(list(loader)) == 2
    assert loader.plan.memory.forecast.fetch == 0
