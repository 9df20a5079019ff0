"""A loader is observed while it runs, and only then; nothing that goes wrong there reaches the training loop."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from pathlib import Path

import pytest

import standpipe as sp
from forked import output
from photos import numbers
from standpipe.observe import History, loaders

pytestmark = pytest.mark.usefixtures("no_garbage")


def make(rows: int = 64, batch: int = 8) -> sp.Loader:
    return sp.Pipeline(numbers(rows)).batch(batch).loader(memory="64MiB", num_workers=1)


def observers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "standpipe-observe"]


def test_a_snapshot_says_where_the_loader_stands() -> None:
    with make() as loader:
        before = loader.snapshot()
        assert (before.epoch, before.step, before.steps_per_epoch, before.stats.step.steps) == (0, 0, 8, 0)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        now = loader.snapshot()
        assert (now.pid, now.epoch, now.step, now.stats.step.rows) == (os.getpid(), 0, 3, 24)
        assert now.run_s > 0
        assert now.limit == 64 << 20
        assert 0 < now.memory < now.limit
        assert now.recent.rows == 24
        assert str(now).startswith("epoch 0, step 3/8, ")


def test_the_history_has_the_whole_run_once_it_is_closed() -> None:
    with make() as loader:
        for _ in range(3):
            for _batch in loader:
                pass
    assert sum(moment.rows for moment in loader.history.moments) == pytest.approx(3 * 64)
    assert loader.history.moments[-1].epoch == 3
    assert loader.snapshot().stats.step.rows == 3 * 64  # whoever asks later is told


def test_it_begins_with_the_first_epoch_and_ends_with_the_loader() -> None:
    others = len(observers())
    loader = make()
    loader.snapshot()
    assert len(observers()) == others
    iterator = iter(loader)
    assert len(observers()) == others + 1
    del iterator
    loader.close()
    loader.close()
    assert len(observers()) == others
    assert [found for found in loaders() if found.pid == os.getpid()] == []


def test_it_keeps_no_loader_alive() -> None:
    others = len(observers())
    loader = make()
    gone = weakref.ref(loader)
    next(iter(loader))
    del loader
    gc.collect()
    assert gone() is None
    assert len(observers()) == others


def test_other_processes_find_it() -> None:
    with make() as train, make(32) as valid:
        for loader in (train, valid):
            next(iter(loader))
            loader.snapshot()
        found = [each.snapshot for each in loaders() if each.pid == os.getpid()]
        assert sorted(now.steps_per_epoch for now in found if now.steps_per_epoch) == [4, 8]
        assert {now.step for now in found} == {1}
        assert all(each.age_s < 60 and not each.stale for each in loaders() if each.pid == os.getpid())


def test_without_a_folder_for_its_file_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    with make() as loader:
        assert sum(len(batch["x"]) for batch in loader) == 64
        assert [each for each in loaders() if each.pid == os.getpid()] == []
    assert sum(moment.rows for moment in loader.history.moments) == pytest.approx(64)


@pytest.mark.parametrize("fault", ["stats", "memory"])
def test_what_fails_in_it_is_only_logged(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    from standpipe.observe.sampler import Sampler, Where

    class Broken:
        """A run one of whose questions fails."""

        def __init__(self, loader: sp.Loader) -> None:
            self.plan = loader.plan

        def stats(self) -> sp.Stats:
            assert fault != "stats", "broken"
            return sp.Stats()

        def memory(self) -> sp.MemoryLedger:
            raise AssertionError("broken")

    caplog.set_level(logging.DEBUG, "standpipe")
    history = History()
    sampler = Sampler(1, history)
    sampler.begin(Broken(make()), lambda: Where(0, 0, None))
    sampler.close()
    assert "the observer has ended" in caplog.text
    assert len(history) == 0


def test_the_more_it_costs_the_less_often_it_looks() -> None:
    from standpipe.observe.sampler import pause_s

    assert [pause_s(spent_s, 0) for spent_s in (0, 0.03, 0.032, 1)] == pytest.approx([1, 1, 4, 10])
    assert [pause_s(0.1, after_s) for after_s in (0, 137, 200)] == pytest.approx([10, 3, 1])


def test_a_forked_childs_close_leaves_it_alone() -> None:
    text = output("""
loader = make()
next(iter(loader))
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    child = os.fork()
if child == 0:
    loader.close()
    os._exit(0)
print(os.waitpid(child, 0)[1], sum(thread.name == "standpipe-observe" for thread in threading.enumerate()))
loader.close()
""")
    assert text == "0 1\n"
