"""Worker processes of the drop-in DataLoader: where they come from, how long they stay, and what they leave."""

from __future__ import annotations

import gc
import os
import textwrap
from typing import Any

import pytest

import standpipe as sp
import standpipe.torch
from faults.test_environment import can_unshare, run_in
from programs import Census, census, check_nothing_is_left, output, started_since
from standpipe.system.machine import own_memory_bytes
from torchs import MEMORY, Of

FORKS = """
import torch
import standpipe.torch

class Held:
    def __init__(self): self.lock, self.rows = threading.Lock(), 6
    def __len__(self): return self.rows
    def __getitem__(self, index):
        with self.lock:
            return index, os.getpid()

held = Held()
def loader(**more):
    return standpipe.torch.DataLoader(
        held, 3, num_workers=2, multiprocessing_context="fork", memory="1GiB", **more)
"""


@pytest.fixture(autouse=True)
def no_other_loaders() -> None:
    """They share the process that workers come from, which begins here in each test."""
    sp.ForkServer.shared().close()


def test_epochs_after_the_first_fork_from_what_has_imported() -> None:
    before = census()
    dataset = Of(list(range(8)))
    loader = standpipe.torch.DataLoader(dataset, 4, num_workers=2, **MEMORY)
    homes = []
    for epoch in range(3):
        dataset.samples = [
            epoch * 10 + index for index in range(8)
        ]  # each epoch has the dataset as it is then
        assert [batch.tolist() for batch in loader] == [dataset.samples[:4], dataset.samples[4:]]
        homes.append(started_since(before))
    for batch in loader:  # one that is left
        del batch
        break
    gc.collect()
    homes.append(started_since(before))
    other = standpipe.torch.DataLoader(dataset, 4, num_workers=1, **MEMORY)
    assert len(list(other)) == 2
    homes.append(started_since(before))
    assert homes == [homes[0]] * 5
    assert len(homes[0]) == 1
    del loader, other
    gc.collect()
    assert started_since(before) == homes[0]
    sp.ForkServer.shared().close()
    check_nothing_is_left(before)


def test_two_epochs_at_once_and_what_a_copy_of_the_loader_has() -> None:
    before = census()
    loader = standpipe.torch.DataLoader(Of(list(range(8))), 4, num_workers=1, **MEMORY)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([4, 5, 6, 7], [4, 5, 6, 7]),
    ]
    assert len(started_since(before)) == 1
    del loader
    sp.ForkServer.shared().close()
    check_nothing_is_left(before)


def test_more_of_an_epoch_that_changes_kind_comes_from_the_same_process() -> None:
    """Batches of several shapes are made by other workers than rows of one."""
    parents: set[int] = set()
    made: Any = Of(lambda index: [0.0] * (1 + index // 4) + [os.getppid()])
    before = census()
    loader = standpipe.torch.DataLoader(made, 4, num_workers=1, **MEMORY)
    batches = iter(loader)
    parents = {int(next(batches)[-1][0]) for _ in range(3)}
    assert len(parents) == 2
    assert len(started_since(before)) == 1 + 2
    del batches, loader
    sp.ForkServer.shared().close()
    check_nothing_is_left(before)


def test_fork_gives_workers_this_processs_memory() -> None:
    told = output(
        FORKS
        + """
for rows in (6, 3):
    held.rows = rows
    print([batch[0].tolist() for batch in loader()])
batches = iter(loader())
try:
    iter(loader())
except sp.PlanError as error:
    print(error)
"""
    )
    first, second, refused = told.splitlines()
    assert (first, second) == ("[[0, 1, 2], [3, 4, 5]]", "[[0, 1, 2]]")
    assert "can't be forks of this process" in refused


class Texts:
    """A list of strings, which Python counts references of."""

    def __init__(self) -> None:
        self.texts = [f"{index:060d}" for index in range(200_000)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> int:
        return len(self.texts[index])


def test_workers_do_not_grow_over_a_list_of_strings() -> None:
    """20 MB of it: forks that look at them all copy them all."""

    def own_mib(before: Census) -> float:
        return sum(own_memory_bytes(process, 1) for process in started_since(before)) / (1 << 20)

    before = census()
    loader = standpipe.torch.DataLoader(
        Texts(), 500, shuffle=True, num_workers=2, persistent_workers=True, **MEMORY
    )
    batches = iter(loader)
    for _ in range(20):
        next(batches)
    begin = own_mib(before)
    assert sum(1 for _ in batches) == 380
    assert own_mib(before) - begin < 8


@pytest.mark.skipif(not can_unshare("-m"), reason="needs a mount namespace")
def test_a_full_dev_shm_makes_no_difference() -> None:
    mount = "mount -t tmpfs -o size=1m none /dev/shm && head -c 1048576 /dev/zero > /dev/shm/full"
    program = """
    import torch
    import standpipe.torch

    class Large:
        def __len__(self): return 8
        def __getitem__(self, index): return torch.full((1 << 20,), index)

    for collate in (None, torch.utils.data.default_collate):
        loader = standpipe.torch.DataLoader(
            Large(), 4, num_workers=2, collate_fn=collate, memory="1GiB", slow_sample_s=60.0)
        print([batch[:, 0].tolist() for batch in loader], os.listdir("/dev/shm"))
    """
    assert run_in(["-m"], mount, textwrap.dedent(program)) == "[[0, 1, 2, 3], [4, 5, 6, 7]] ['full']\n" * 2
