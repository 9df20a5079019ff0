"""Code in threads and inline that draws from global generators is found in a process of its own, and said once."""

import random
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
import standpipe.torch
from programs import children, output
from standpipe.engine.probe import drawing

MEMORY = "512MiB"
EXECUTORS: list[Any] = ["thread", "inline"]


class Drawing:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(np.random.rand())  # noqa: NPY002


def of_python(x: float) -> float:
    return x + random.random()


def of_torch(x: float) -> float:
    return x + float(torch.rand(1))


def keyed(x: float, rng: np.random.Generator) -> float:
    return x + rng.random()


def plain(x: float) -> float:
    return x + 1


def of_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "x": batch["x"] + random.random()}


def of_samples(samples: list[Any]) -> dict[str, Any]:
    return {"x": np.array(samples) + random.random()}


def quiet_stream() -> Iterator[float]:
    yield from map(float, range(8))


def drawing_stream() -> Iterator[float]:
    for _ in range(8):
        yield random.random()


def numbers(fn: Callable[..., Any] | None = None) -> sp.Pipeline:
    made = sp.Pipeline(sp.MapSource([float(number) for number in range(8)], fields="x"))
    return (made if fn is None else made.map(fn, field="x")).batch(4)


DRAWS = [
    pytest.param(sp.Pipeline(sp.MapSource(Drawing())).batch(4), "the dataset (numpy.random)", id="dataset"),
    pytest.param(
        sp.Pipeline(sp.IterableSource(drawing_stream)).batch(4), "the dataset (random)", id="stream"
    ),
    pytest.param(numbers(of_python), "of_python, field='x' (random)", id="function"),
    pytest.param(numbers(of_torch), "of_torch, field='x' (torch)", id="torch"),
    pytest.param(numbers().map_batch(of_batch), "of_batch) (random)", id="batch"),
    pytest.param(numbers().batch(4, collate_fn=of_samples), "of_samples (random)", id="samples"),
]
QUIET = [numbers(), numbers(keyed), numbers(plain), sp.Pipeline(sp.IterableSource(quiet_stream)).batch(4)]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("pipeline", "name"), DRAWS)
def test_what_draws_is_named(pipeline: sp.Pipeline, name: str, executor: Any) -> None:
    (found,) = drawing(pipeline.plan(executor=executor, memory=MEMORY))
    assert found.endswith(name)


def test_what_draws_nothing_or_where_it_is_keyed_is_not() -> None:
    for pipeline in QUIET:
        assert drawing(pipeline.plan(executor="thread", memory=MEMORY)) == ()
    assert drawing(numbers(of_python).map_batch(of_batch).plan(executor="process", memory="2GiB")) == ()


def test_what_cannot_travel_is_not_looked_at() -> None:
    lock = threading.Lock()

    def locked(x: float) -> float:
        with lock:
            return x + random.random()

    assert drawing(numbers(locked).plan(executor="thread", memory=MEMORY)) is None
    audit = numbers(locked).audit(executor="thread")
    assert audit.drawing is None
    assert "not checked" in str(audit)


def test_a_large_dataset_is_not_copied() -> None:
    class Large(Drawing):
        def __init__(self) -> None:
            self.array = np.zeros(100 << 20, np.uint8)

    assert drawing(sp.Pipeline(sp.MapSource(Large())).batch(4).plan(executor="thread", memory=MEMORY)) is None


@pytest.mark.parametrize("executor", ["thread", pytest.param("inline", marks=pytest.mark.long)])
def test_the_loader_warns_once_and_explains(executor: Any) -> None:
    with numbers(of_python).loader(executor=executor, memory=MEMORY) as loader:
        assert "not reproducible" not in loader.explain()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            while not loader.plan.drawing:  # it is known after some epochs
                list(loader)
        assert len(told) == 1
        assert re.search(r"of_python.*Take a parameter rng.*executor='process'", str(told[0].message))
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(loader)
        assert "not reproducible" in loader.explain()


WAYS: dict[str, Callable[[sp.Loader], Iterator[Any]]] = {
    "iter": iter,
    "steps": lambda loader: loader.steps(8),
}


def check_place(batches: Iterator[Any]) -> None:
    """The warning points to the file that asks for the next batch, once the probe has ended."""
    next(batches)
    wait_for_probe()
    with pytest.warns(UserWarning, match="not reproducible") as told:
        next(batches)
    assert [each.filename for each in told] == [__file__]


def wait_for_probe() -> None:
    for thread in threading.enumerate():
        if thread.name == "standpipe-probe":
            thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_the_warning_points_to_who_asks_for_a_batch(way: str) -> None:
    with numbers(of_python).loader(executor="thread", memory=MEMORY) as loader:
        check_place(WAYS[way](loader))


def test_the_warning_points_to_who_names_the_batches() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Drawing())).batch(4, batch_sampler=True)
    with pipeline.loader(executor="thread", memory=MEMORY) as loader:
        check_place(loader.from_batches([[0], [1], [2]]))


def test_the_warning_points_behind_torchs_loader() -> None:
    loader = standpipe.torch.loader(numbers(of_python), fields="x", executor="thread", memory=MEMORY)
    check_place(iter(loader))


def test_the_process_ends_with_the_loader() -> None:
    before = set(children())
    with numbers(of_python).loader(executor="thread", memory=MEMORY) as loader:
        next(iter(loader))
    assert set(children()) <= before


def test_what_cannot_travel_starts_no_thread() -> None:
    lock = threading.Lock()

    def locked(x: float) -> float:
        with lock:
            return x

    for fn, begun in ((plain, True), (locked, False)):
        names = set()
        threading.setprofile(lambda *_, names=names: names.add(threading.current_thread().name))
        try:
            with numbers(fn).loader(executor="thread", memory=MEMORY) as loader:
                list(loader), list(loader)
        finally:
            threading.setprofile(None)
        assert ("standpipe-probe" in names) == begun


def test_who_asks_for_no_probe_has_none() -> None:
    before = set(children())
    with numbers(of_python).loader(executor="thread", memory=MEMORY, check_generators=False) as loader:
        list(loader), list(loader)
        assert set(children()) <= before
        assert not any(thread.name == "standpipe-probe" for thread in threading.enumerate())


def test_the_audit_fails() -> None:
    audit = numbers(of_python).audit(executor="thread")
    assert not audit.ok
    assert audit.once
    assert "not reproducible" in str(audit)
    assert audit.facts()["drawing"] == list(audit.drawing) != []
    assert numbers(of_python).audit().ok
    assert numbers(keyed).audit(executor="thread").ok


class Closes(Drawing):
    """Closes its file to be pickled, as those do that hold one of h5py or lmdb."""

    file: Any = None

    def __getstate__(self) -> dict[str, Any]:
        if self.file is not None:
            self.file.close()
        return {}

    def __getitem__(self, index: int) -> float:
        self.file = self.file or Path("/dev/zero").open("rb")  # noqa: SIM115 (it stays open, like theirs)
        self.file.read(1)
        return float(index)


def test_a_dataset_is_not_pickled_while_it_is_used() -> None:
    dataset = Closes()
    with sp.Pipeline(sp.MapSource(dataset)).batch(1).loader(executor="thread", memory=MEMORY) as loader:
        begun = iter(loader)
        next(begun)
        used = dataset.file
        wait_for_probe()
        assert len(list(begun)) == 7
        assert not used.closed
    used.close()


def test_what_is_given_is_looked_at_too() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Drawing())).batch(4, batch_sampler=True)
    (found,) = drawing(pipeline.plan(executor="thread", memory=MEMORY))
    assert found == "the dataset (numpy.random)"


IMPORTS = """
import importlib.abc

class Seen(importlib.abc.MetaPathFinder):
    names = []
    def find_spec(self, name, path, target=None):
        if threading.current_thread().name.startswith("standpipe"):
            self.names.append(name)

class Dataset:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return np.full(3, index)

sys.meta_path.insert(0, Seen())
for executor in ("inline", "thread", "process"):
    pipeline = sp.Pipeline(sp.MapSource(Dataset())).batch(4)
    with pipeline.loader(memory="512MiB", num_workers=1, executor=executor) as made:
        for _ in made:
            pass
        for thread in threading.enumerate():
            if thread.name == "standpipe-probe":
                thread.join()
print(Seen.names)
"""


def test_threads_of_a_run_import_nothing() -> None:
    """A child that is forked while a thread imports would wait for that import for ever, at its own one."""
    assert output(IMPORTS) == "[]\n"
