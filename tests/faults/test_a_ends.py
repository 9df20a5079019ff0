"""Loaders that end, side by side, inside one another and in processes of all kinds: nothing hangs or stays behind."""

from __future__ import annotations

import pytest

from programs import output

NESTED = """
import random
sys.setswitchinterval(1e-6)  # threads come in between at every chance

def draw(x):
    return x + [random.random() for _ in range(30)][-1] + np.random.random()

class Numbers:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return np.full(3, index)

def pipeline(dataset, seed):
    return ps.Pipeline(ps.Indexed(dataset, fields="x"), seed=seed).map(draw, field="x")

def rows(pipeline, rows=10, **settings):
    with pipeline.batch(rows).loader(memory="512MiB", workers=1, **settings) as loader:
        return np.concatenate([batch["x"] for batch in loader])

inner = pipeline(Numbers(), seed=3)
EXPECTED = rows(inner, executor="inline")

class Through(Numbers):
    '''Draws, and before that looks at what another loader gives.'''
    batches = None
    def __init__(self, reads):
        self.reads = reads
    def __len__(self):
        return 100
    def start(self):
        self.batches = iter(inner.batch(1).loader(memory="256MiB", workers=2, executor="thread"))
    def __getitem__(self, index):
        if self.reads:
            if self.batches is None:
                self.start()
            batch = next(self.batches)
            np.testing.assert_array_equal(batch["x"], EXPECTED[batch["index"]])
        return draw(np.full(3, index))

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
    """Both give what each gives alone, also where functions of both draw from the process's generators."""
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
