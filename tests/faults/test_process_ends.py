"""Loaders that end, side by side, inside one another and in processes of all kinds: nothing hangs or stays behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output
from photos import numbers
from programs import census, check_nothing_is_left, children
from standpipe.system.machine import anonymous_bytes

WARM, TIMES = 300, 1000  # of those, the first make room that is used again
GROWTH_BYTES = 1 << 20


class Tiny:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(2, index)}


@pytest.mark.parametrize("executor", ["native", "inline", "thread", "process"])
def test_break_out_of_the_loop_and_iterate_1000_times(executor: Any) -> None:
    """Nothing grows: no memory, thread, file or process."""
    settings: dict[str, Any] = {} if executor == "native" else {"executor": executor}
    settings["check_generators"] = False  # whose process grows while it starts, and ends by itself
    pipeline = (
        sp.Pipeline(numbers(8) if executor == "native" else sp.MapSource(Tiny())).shuffle(seed=1).batch(2)
    )
    begin = census()
    with pipeline.loader(num_workers=2, memory="512MiB", **settings) as loader:
        for time in range(TIMES):
            if time == WARM:
                before, bytes_before = census(), memory()
            for batch in loader:  # noqa: B007 (held, as most loops do)
                break
        check_nothing_is_left(before)
        grown = {who: now - bytes_before[who] for who, now in memory().items()}
        assert max(grown.values()) < GROWTH_BYTES, grown
        assert loader.epoch == TIMES - 1
    del loader, batch
    check_nothing_is_left(begin)


def memory() -> dict[int | str, int]:
    """Bytes that no file is behind, of this process and those it started."""
    processes: list[int | str] = ["self", *children()]
    return {process: anonymous_bytes(process) for process in processes}


NESTED = """
sys.setswitchinterval(1e-6)  # threads come in between at every chance

def draw(x, rng):
    return x + [rng.random() for _ in range(30)][-1]

class Numbers:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return np.full(3, index)

def pipeline(dataset, seed):
    return sp.Pipeline(sp.MapSource(dataset, fields="x"), seed=seed).map(draw, field="x")

def rows(pipeline, rows=10, **settings):
    with pipeline.batch(rows).loader(memory="512MiB", num_workers=1, **settings) as loader:
        return np.concatenate([batch["x"] for batch in loader])

inner = pipeline(Numbers(), seed=3)
EXPECTED = rows(inner, executor="inline")

class Through(Numbers):
    '''Looks at what another loader gives.'''
    batches = None
    def __init__(self, reads):
        self.reads = reads
    def __len__(self):
        return 100
    def start(self):
        self.batches = iter(inner.batch(1).loader(memory="256MiB", num_workers=2, executor="thread"))
    def __getitem__(self, index):
        if self.reads:
            if self.batches is None:
                self.start()
            batch = next(self.batches)
            np.testing.assert_array_equal(batch["x"], EXPECTED[batch["index"]])
        return np.full(3, index)

alone = rows(pipeline(Through(False), seed=1), executor="inline")
dataset = Through(True)
"""


@pytest.mark.parametrize(
    ("executor", "started"),  # a loader that runs goes to no other process
    [
        ("thread", "inside"),
        ("thread", "before"),
        ("inline", "inside"),
        ("inline", "before"),
        ("process", "inside"),
    ],
)
def test_a_loader_inside_a_worker(executor: str, started: str) -> None:
    """Both give what each gives alone, also where functions of both draw."""
    start = "dataset.start()" if started == "before" else ""
    text = output(
        NESTED
        + f"""
{start}
got = rows(pipeline(dataset, seed=1), executor="{executor}")
print(np.array_equal(got, alone))
"""
    )
    assert text == "True\n"


FORKED = """
import multiprocessing

class Numbers:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return np.full(3, index)

def loader():
    return sp.Pipeline(sp.MapSource(Numbers())).batch(10).loader(memory="512MiB", num_workers=2, executor={executor!r})

def child(running, iterator):
    for attempt in (lambda: next(iterator), lambda: iter(running)):
        try:
            attempt()
        except sp.StandpipeError as error:
            print("Make a new loader" in str(error), flush=True)
    running.close()
    with loader() as own:
        print(sum(len(batch["index"]) for batch in own), flush=True)

with loader() as running:
    iterator = iter(running)
    seen = next(iterator)["index"].tolist()
    process = multiprocessing.get_context("fork").Process(target=child, args=(running, iterator))
    process.start()
    process.join()
    print(process.exitcode, flush=True)
    for batch in iterator:
        seen += batch["index"].tolist()
print(seen == list(range(100)))
"""


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_child_of_multiprocessing_while_a_loader_runs(executor: str) -> None:
    """It can't use that loader, and is told so; it makes its own; and does no harm to its parent's."""
    assert output(FORKED.format(executor=executor)) == "True\nTrue\n100\n0\nTrue\n"
