"""Random numbers of Python code: keyed in worker processes, the code's own elsewhere; the trainer's stay its own."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
from preloaded import TORCH

PROCESSES: dict[str, Any] = {"executor": "process", "mp_context": TORCH}
EXECUTORS: dict[str, dict[str, Any]] = {
    "inline": {"executor": "inline"},
    "thread": {"executor": "thread", "num_workers": 4},
    "process": {**PROCESSES, "num_workers": 2},
}
RUNS = 3
LENGTH = 96


class Records:
    """Numbers, and what a function makes of each."""

    def __init__(self, make: Callable[[int], Any] = float, length: int = LENGTH) -> None:
        self.make, self.length = make, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.make(index)}


def drawn() -> tuple[float, float, float]:
    """One number of each global generator."""
    return random.gauss(0, 1), float(np.random.randn()), float(torch.randn(1))  # noqa: NPY002


def seed_all(seed: int) -> None:
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)  # noqa: NPY002


def keyed(x: float, rng: np.random.Generator) -> float:
    return x + rng.random()


def keyed_by_torch(x: float, rng: torch.Generator) -> float:
    return x + float(torch.rand(1, generator=rng, device="cpu"))


def of_all(index: int) -> np.ndarray:
    """Draws from all three, also an odd count of normal numbers, and as many as fill a state: 624 words."""
    return np.array(
        [
            random.gauss(0, 1),
            *np.random.randn(3),  # noqa: NPY002
            *torch.randn(3),
            float(torch.rand(3, 52, 52).sum()),
            float(torch.rand(3, 416, 416)[0, 0, 0]) if index % 16 == 0 else index,
            *torch.randn(1),
            random.random(),
        ]
    )


def multiples_of_a_state(index: int) -> float:
    """Leaves torch's generator at the same place of another state, and keeps no number."""
    return float(torch.rand(3, 52, 52)[0, 0, 0])


def kept_normal(index: int) -> float:
    """Half of the calls return the second number of a pair, which moves no state."""
    return float(torch.randn(1)) + random.gauss(0, 1) + float(np.random.randn())  # noqa: NPY002


def now_and_then(index: int) -> float:
    return random.random() + float(np.random.rand()) if index % 11 == 3 else float(index)  # noqa: NPY002


def states(index: int) -> np.ndarray:
    """Reads states and moves none."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return np.array([random.getstate()[1][0], numpy[1][0], numpy[2], torch.initial_seed() % 1_000_003])


def states_and_draws(index: int) -> np.ndarray:
    """Reads them always, and draws now and then, also from a generator that it hasn't read."""
    if index % 5 == 0:
        torch.rand(1)
    if index % 7 == 0:
        np.random.rand()  # noqa: NPY002
    return states(index)


def coins(index: int) -> float:
    """Draws for about half of all samples."""
    return random.random() if index * 2654435761 % 65536 < 32768 else float(index)


def once(index: int) -> float:
    """Draws for the last sample alone."""
    return random.random() if index == LENGTH - 1 else float(index)


def given_back(index: int) -> np.ndarray:
    """Draws from all three, and sets their states back, so that no sample moves one."""
    before: Any = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        numbers = np.array(drawn())
    random.setstate(before[0]), np.random.set_state(before[1])  # noqa: NPY002
    return numbers


DRAWING = [
    of_all,
    multiples_of_a_state,
    kept_normal,
    now_and_then,
    states,
    states_and_draws,
    coins,
    once,
    given_back,
]


def pipeline(make: Callable[[int], Any], rows: int = 32) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(Records(make))).shuffle(seed=3).batch(rows)


def by_epoch(loader: sp.Loader, epochs: int = 2) -> list[bytes]:
    """The bytes of each sample, in order."""
    return [row.tobytes() for _ in range(epochs) for batch in loader for row in batch["x"]]


def bytes_of(made: sp.Pipeline, **settings: Any) -> list[bytes]:
    with made.loader(**{"memory": "2GiB", **PROCESSES, **settings}) as loader:
        return by_epoch(loader)


@cache
def bytes_of_one_worker(make: Callable[[int], Any]) -> list[bytes]:
    """Make two epochs in one worker, once: other numbers of workers and resumed runs are compared with them."""
    return bytes_of(pipeline(make), num_workers=1)


CODE = {
    "no draws": lambda: pipeline(float),
    "rng": lambda: pipeline(float).map(keyed, field="x"),
    "torch rng": lambda: pipeline(float).map(keyed_by_torch, field="x"),
    "global": lambda: pipeline(of_all),
}


@pytest.mark.parametrize(
    ("code", "executor"),
    [
        *((code, executor) for code in CODE for executor in EXECUTORS if code != "global"),
        ("global", "process"),  # elsewhere such draws are the trainer's own
    ],
)
def test_the_trainers_streams_are_those_without_a_loader(code: str, executor: str) -> None:
    made = CODE[code]()
    for run in range(RUNS):
        seed_all(run)
        expected = [drawn() for _ in range(14)]
        seed_all(run)
        got = [drawn()]
        with made.loader(memory="2GiB", **EXECUTORS[executor]) as loader:
            got.append(drawn())
            for _ in range(2):
                for _batch in loader:
                    got += [drawn(), drawn()][: 14 - len(got)]
        got += [drawn() for _ in range(14 - len(got))]
        assert got == expected


def test_code_in_the_trainer_draws_from_its_streams() -> None:
    seed_all(1)
    with pipeline(lambda _: drawn()[0], rows=LENGTH).loader(memory="1GiB", executor="inline") as loader:
        (batch,) = loader
    seed_all(1)
    first = [drawn()[0] for _ in range(LENGTH + 1)]
    assert batch["x"].tolist() in (first[:-1], first[1:])  # one may have been measured before


@pytest.mark.parametrize("make", DRAWING, ids=lambda make: make.__name__)
def test_worker_processes_give_the_same_batches_whatever_their_number(make: Callable[[int], Any]) -> None:
    expected = bytes_of_one_worker(make)
    assert len(set(expected)) > 1
    assert bytes_of(pipeline(make, rows=8), num_workers=5) == expected  # tasks are cut otherwise


@pytest.mark.parametrize("make", DRAWING, ids=lambda make: make.__name__)
def test_the_rest_is_the_same_after_a_resume(make: Callable[[int], Any]) -> None:
    with pipeline(make).loader(memory="2GiB", **PROCESSES, num_workers=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with pipeline(make, rows=16).loader(memory="2GiB", **PROCESSES, num_workers=1) as loader:
        loader.load_state_dict(state)
        assert by_epoch(loader) == bytes_of_one_worker(make)[32:]


def test_epochs_and_seeds_draw_apart() -> None:
    made = bytes_of(pipeline(multiples_of_a_state))
    assert len(set(made)) == 2 * LENGTH
    other = sp.Pipeline(sp.MapSource(Records(multiples_of_a_state))).shuffle(seed=4).batch(32)
    assert not {*made} & {*bytes_of(other)}


class Stream:
    """Shuffles itself at its beginning, and draws for every sample."""

    def __init__(self) -> None:
        self.order = random.sample(range(LENGTH), LENGTH)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in self.order:
            yield {"x": of_all(number)}


def test_a_stream_draws_the_same_after_a_resume() -> None:
    made = sp.Pipeline(sp.IterableSource(Stream, length=LENGTH)).batch(16)
    with made.loader(memory="2GiB", **PROCESSES) as loader:
        expected = by_epoch(loader)
    with made.loader(memory="2GiB", **PROCESSES) as loader:
        epoch = iter(loader)
        next(epoch), next(epoch)
        state = loader.state_dict()
    with made.loader(memory="2GiB", **PROCESSES) as loader:
        loader.load_state_dict(state)
        assert by_epoch(loader) == expected[32:]
    assert len(set(expected)) == 2 * LENGTH


def shifted(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Writes into the batch, so that its rows have to be made again when it is called again."""
    batch["x"] += np.random.rand()  # noqa: NPY002
    return batch


def joined(samples: list[dict[str, Any]]) -> dict[str, Any]:
    for sample in samples:
        sample["x"] += float(torch.rand(1))
    return {"x": np.array([sample["x"] for sample in samples])}


@pytest.mark.parametrize("make", [float, multiples_of_a_state], ids=["no draws", "draws"])
@pytest.mark.parametrize("samples", [False, True], ids=["batch", "samples"])
def test_functions_of_a_batch_draw_by_its_first_row(make: Callable[[int], Any], samples: bool) -> None:
    made = pipeline(make, rows=8)
    made = made.batch(8, collate_fn=joined) if samples else made.map_batch(shifted)
    expected = bytes_of(made, num_workers=1)
    assert bytes_of(made, num_workers=3) == expected
    assert len(set(expected)) == 2 * LENGTH


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rows_of_arrays_are_read_only(executor: str) -> None:
    """A function may be called twice, and the second time it would get what it wrote."""

    def doubled(x: np.ndarray) -> np.ndarray:
        x *= 2
        return x

    spec = sp.ArraySpec((3,), np.dtype(np.float64))
    made = sp.Pipeline(sp.Arrays(x=np.ones((LENGTH, 3)))).map(doubled, field="x", spec=spec).batch(32)
    with pytest.raises(sp.TransformError, match="read-only"):
        bytes_of(made, **{"mp_context": "spawn", **EXECUTORS[executor]})


LATE = """
class Late:
    def __len__(self):
        return 96

    def __getitem__(self, index):
        import sys

        was_there = "torch" in sys.modules
        import torch

        return {"x": float(torch.rand(1)), "was there": was_there}
"""


def test_torch_that_a_sample_imports_is_keyed_too() -> None:
    """In workers that have no torch before."""
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(LATE, main)  # what is of the main module goes by value, so nothing of this module is imported
    made = sp.Pipeline(sp.MapSource(main["Late"]())).batch(32)
    expected = bytes_of(made, num_workers=1, mp_context="spawn")
    assert bytes_of(made, num_workers=2, mp_context="spawn") == expected
    assert len(set(expected)) == 2 * LENGTH


def test_a_sample_that_raises_after_a_draw_is_the_same_one_everywhere() -> None:
    def fails(index: int) -> float:
        if random.random() < 0.1:
            raise ValueError("unlucky")
        return float(index)

    made = pipeline(fails).on_error(sp.Replace(at_most=LENGTH))
    expected = bytes_of(made, num_workers=1)
    assert bytes_of(made, num_workers=3) == expected


def default_device(index: int) -> float:
    torch.set_default_device("meta")
    try:
        return float(torch.rand(1, device="cpu")) + torch.rand(3).ndim
    finally:
        torch.set_default_device(None)


def stays_on_meta(index: int) -> float:
    torch.set_default_device("meta")  # and stays so for the samples after it
    return float(torch.rand(1, device="cpu")) + torch.rand(3).ndim


@pytest.mark.parametrize("make", [default_device, stays_on_meta], ids=lambda make: make.__name__)
def test_a_default_device_of_torchs_is_no_matter(make: Callable[[int], Any]) -> None:
    assert bytes_of(pipeline(make), num_workers=1) == bytes_of(pipeline(make), num_workers=2)


def test_a_default_device_of_the_trainers_is_no_matter() -> None:
    expected = bytes_of(pipeline(float).map(keyed_by_torch, field="x"))
    torch.set_default_device("meta")
    try:
        for settings in EXECUTORS.values():
            assert bytes_of(pipeline(float).map(keyed_by_torch, field="x"), **settings) == expected
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rng_is_the_same_everywhere(executor: str) -> None:
    for fn in (keyed, keyed_by_torch):
        made = pipeline(float).map(fn, field="x")
        settings = {"mp_context": "spawn", **EXECUTORS[executor]}
        assert bytes_of(made, **settings) == bytes_of(made, num_workers=1)


def test_the_kind_of_rng_is_read_from_its_annotation() -> None:
    def plain(x: float, rng) -> float:  # type: ignore[no-untyped-def]
        assert isinstance(rng, np.random.Generator)
        return x

    def by_name(x: float, rng: "torch.Generator | None" = None) -> float:
        assert isinstance(rng, torch.Generator)
        return x

    def unknown(x: float, rng: "Nowhere") -> float:  # type: ignore[name-defined] # noqa: F821
        assert isinstance(rng, np.random.Generator)
        return x

    made = pipeline(float).map(plain, field="x").map(by_name, field="x").map(unknown, field="x")
    assert len(bytes_of(made, executor="thread", num_workers=1, mp_context="spawn")) == 2 * LENGTH


def test_python_code_runs_in_processes_by_default() -> None:
    made = pipeline(float)
    assert made.plan().pool.executor.value == "process"
    assert "worker process" in made.plan().explain()
    with made.loader(memory="2GiB", num_workers=2) as loader:
        next(iter(loader))
        assert all(worker.name.startswith("worker ") for worker in loader.stats().workers)


def of_another_bit_generator(index: int) -> float:
    """Chooses what ``numpy.random`` draws from, as it documents, and draws from it now and then."""
    if index == 5:
        np.random.set_bit_generator(np.random.PCG64(0))
    return float(np.random.rand()) if index % 3 else 1.0  # noqa: NPY002


def test_code_that_chooses_another_bit_generator_goes_on() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Records(of_another_bit_generator)), seed=3).batch(8)
    with pipeline.loader(memory="2GiB", num_workers=1, **PROCESSES) as loader:
        epochs = [np.concatenate([batch["x"] for batch in loader]) for _ in range(2)]
    # Two thirds of each epoch, of which record 5 is the same in both, since it has a seed of its own; and 1.0.
    assert len(np.unique(np.concatenate(epochs))) == 2 * LENGTH * 2 // 3
