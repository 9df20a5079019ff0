"""Tensors in shared memory: workers and trainer read what the other one writes."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import standpipe as sp
from preloaded import TORCH
from programs import open_files, output
from standpipe.engine.processes.packing import pack, unpack

ROWS = 32
PROCESSES: dict[str, Any] = {"executor": "process", "memory": "1GiB", "mp_context": TORCH}


class Shares:
    """Sample i is ``level``; ``calls`` counts how often each sample was made.

    kills  "worker" or "server": sample 20 kills that process once
    """

    def __init__(self, kills: str = "") -> None:
        self.level = torch.tensor(1.0).share_memory_()
        self.calls = torch.zeros(ROWS, dtype=torch.int64).share_memory_()
        self.later_half = self.calls[ROWS // 2 :]
        self.killed, self.kills = torch.zeros(1).share_memory_(), kills

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, float]:
        if index == 20 and self.kills and not self.killed:
            self.killed.fill_(1)
            if self.kills == "server":
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls[index] += 1
        return {"level": float(self.level)}


def test_workers_see_what_the_trainer_writes_and_it_what_they_write() -> None:
    dataset = Shares()
    with sp.Pipeline(sp.MapSource(dataset)).batch(1).loader(num_workers=1, prefetch=1, **PROCESSES) as loader:
        batches = iter(loader)
        levels = [float(next(batches)["level"][0])]
        dataset.level.fill_(2)
        levels += [float(batch["level"][0]) for batch in batches]
    assert (levels[0], levels[-1]) == (1, 2)
    assert dataset.calls.min() >= 1
    assert dataset.later_half.min() >= 1


@pytest.mark.parametrize("kills", ["worker", "server"])
def test_a_new_worker_has_the_same_memory(kills: str) -> None:
    dataset = Shares(kills)
    with sp.Pipeline(sp.MapSource(dataset)).batch(4).loader(num_workers=2, **PROCESSES) as loader:
        assert len(list(loader.steps(ROWS // 4))) == ROWS // 4
    assert dataset.killed
    assert dataset.calls.min() >= 1


def test_no_descriptor_is_left() -> None:
    dataset = Shares()

    def epoch() -> int:
        with sp.Pipeline(sp.MapSource(dataset)).batch(8).loader(num_workers=1, **PROCESSES) as loader:
            assert len(list(loader)) == ROWS // 8
        del loader
        gc.collect()
        return len(open_files())

    first = epoch()
    assert max(epoch() for _ in range(20)) <= first


class Many:
    """More descriptors than one message may have."""

    def __init__(self) -> None:
        self.tensors = [torch.zeros(1).share_memory_() for _ in range(260)]

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: int) -> dict[str, int]:
        self.tensors[index].fill_(index)
        return {"x": index}


def test_any_number_of_tensors() -> None:
    dataset = Many()
    with sp.Pipeline(sp.MapSource(dataset)).batch(20).loader(num_workers=1, **PROCESSES) as loader:
        assert len(list(loader)) == 13
    assert [int(each) for each in dataset.tensors] == list(range(260))


def test_what_is_not_shared_is_copied(tmp_path: Path) -> None:
    """A tensor over a file isn't shared memory for torch's reducers, and a short probe must write to nobody's."""
    path = tmp_path / "numbers"
    path.write_bytes(bytes(8000))
    over_file = torch.from_file(str(path), shared=True, size=1000, dtype=torch.int64)
    own = torch.zeros(3)
    shared = torch.zeros(3).share_memory_()
    made = pack((over_file, own, shared), parts={}, pack=True)
    assert len(made.shared.files) == 1
    there = unpack(made.descriptor, os.dup(made.lists.descriptor), list(made.shared.files))
    for tensor in there:
        tensor.fill_(1)
    assert (int(over_file.sum()), int(own.sum()), int(shared.sum())) == (0, 0, 3)
    probed = pack(shared, parts={}, pack=False, most_bytes=1 << 20)
    assert probed.shared.files == []
    probed.close()


@pytest.mark.parametrize(
    ("strategy", "workers"), [("file_descriptor", 2), pytest.param("file_system", 1, marks=pytest.mark.long)]
)
def test_epochs_of_a_stream_reach_workers_that_stay(strategy: str, workers: int) -> None:
    """Hugging Face keeps the epoch of a stream in a shared tensor, from which comes the order."""
    pytest.importorskip("datasets")
    told = output(
        f"""
    import datasets, torch, standpipe.torch
    torch.multiprocessing.set_sharing_strategy({strategy!r})
    numbers = datasets.Dataset.from_dict({{"x": list(range(24))}})
    stream = numbers.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=4)

    def epochs(kind, **more):
        loader = kind(stream, 4, num_workers={workers}, persistent_workers=True, **more)
        for epoch in range(3):
            stream.set_epoch(epoch)
            yield [number for batch in loader for number in batch["x"].tolist()]

    theirs = list(epochs(torch.utils.data.DataLoader))
    ours = list(epochs(standpipe.torch.DataLoader, memory="2GiB", slow_sample_s=60.0))
    print(ours == theirs, ours[0] != ours[1] != ours[2])
    """
    )
    assert told == "True True\n"
