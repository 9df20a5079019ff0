"""What worker processes make beside the slots: large arrays come without a copy, and nothing of them stays."""

import gc
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output

ROWS = 60


class Uneven:
    """Arrays of 80 to 480 kB that differ in shape, and what a test wants to happen at one of them."""

    def __init__(self, killed_at: int = -1) -> None:
        self.killed_at = killed_at

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": np.full((1 + index % 6, 10_000), index, np.float64), "few": np.full(index % 3, index)}


class FewDescriptors(Uneven):
    """In a worker that may open no more files, once it has seen the slots."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index > 0:
            with suppress(OSError):
                os.close(free := os.dup(0))
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
            with pytest.raises(OSError, match="Too many open files"):
                os.dup(0)
        return super().__getitem__(index)


def joined(samples: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}


PIPELINES = {
    "list": lambda data: sp.Pipeline(data).batch(6, collate={"x": list, "few": list}),
    "pad": lambda data: sp.Pipeline(data).batch(
        6, collate={"x": sp.Pad(max_shape=(6, 10_000)), "few": sp.Pad(max_shape=(2,))}
    ),
    "ragged": lambda data: sp.Pipeline(data).batch(6, collate={"x": sp.Ragged(max_values=36), "few": list}),
    "collate_fn": lambda data: sp.Pipeline(data).batch(6, collate_fn=joined),
}


def batches(how: str, dataset: Any, **settings: Any) -> Iterator[dict[str, Any]]:
    settings = {"executor": "process", "num_workers": 2, "memory": "2GiB", **settings}
    with PIPELINES[how](sp.MapSource(dataset)).loader(**settings) as loader:
        yield from loader


def plain(value: Any) -> Any:
    return [each.tolist() for each in value] if isinstance(value, list) else value.tolist()


@contextmanager
def nothing_stays() -> Iterator[None]:
    """Neither descriptors nor mappings are left behind."""
    gc.collect()  # an error's traceback holds what its frames held, here and in tests before
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() <= before
    assert answers_mapped() == 0


def descriptors() -> int:
    """How many stay open: for a moment a file of /proc is, too."""
    return min(len(list(Path("/proc/self/fd").iterdir())) for _ in range(50))


def answers_mapped() -> int:
    return Path("/proc/self/maps").read_text().count("standpipe-answer")


@pytest.mark.parametrize("how", PIPELINES)
def test_batches_are_those_of_threads(how: str) -> None:
    with nothing_stays():
        in_processes = [{name: plain(batch[name]) for name in batch} for batch in batches(how, Uneven())]
        in_threads = batches(how, Uneven(), executor="thread")
        for mine, other in zip(in_processes, in_threads, strict=True):
            assert mine == {name: plain(other[name]) for name in other}
        del other


def test_arrays_can_be_written_and_outlive_the_loader() -> None:
    with nothing_stays():
        held = list(batches("list", Uneven()))
        assert answers_mapped() > 0
        before = descriptors()
        for batch in held:
            for index, array in zip(batch["index"], batch["x"], strict=True):
                assert array.ctypes.data % 64 == 0
                assert (array == index).all()
                array += 1
                assert (array == index + 1).all()
        del array, batch
        assert descriptors() == before
        last = held[-1]["x"][-1]
        held.clear()
        assert answers_mapped() == 1
        assert (last == ROWS).all()
        del last


def test_batches_that_are_held_hold_no_descriptors() -> None:
    counts = []
    held = []
    for batch in batches("list", Uneven()):
        held.append(batch)
        counts.append(descriptors())
    assert max(counts) <= counts[0] + 2  # one for each worker whose answer is just being received


def test_a_worker_without_descriptors_sends_everything() -> None:
    for number, batch in enumerate(batches("list", FewDescriptors())):
        assert number == 0 or answers_mapped() == 0
        for index, array in zip(batch["index"], batch["x"], strict=True):
            assert (array == index).all()


def test_a_worker_that_dies_leaves_nothing() -> None:
    with nothing_stays():
        settings: Any = {"executor": "process", "num_workers": 2, "memory": "2GiB"}
        with PIPELINES["list"](sp.MapSource(Uneven(killed_at=32))).loader(**settings) as loader:
            iterator = iter(loader)
            for _ in range(5):
                next(iterator)
            with pytest.raises(sp.WorkerDiedError):
                next(iterator)
            loader.skip_steps(1)
            assert [int(batch["x"][0][0, 0]) for batch in loader.steps(4)] == [36, 42, 48, 54]
        del iterator, loader


def test_a_trainer_without_descriptors_is_told() -> None:
    said = output("""
        import resource
        class Large:
            def __len__(self): return 40
            def __getitem__(self, index): return np.full((1 + index % 2, 20_000), index, np.float64)
        pipeline = sp.Pipeline(sp.MapSource(Large(), fields="x")).batch(4, collate={"x": list})
        with pipeline.loader(executor="process", num_workers=1, memory="1GiB") as loader:
            iterator = iter(loader)
            next(iterator)
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            seen = [0]
            try:
                while True:
                    seen.append(int(next(iterator)["x"][0][0, 0]))
            except sp.SampleError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            seen += [int(batch["x"][0][0, 0]) for batch in iterator]
            print(seen == list(range(0, 40, 4)))
    """)
    assert "raise the limit, ulimit -n" in said
    assert said.endswith("True\n")
