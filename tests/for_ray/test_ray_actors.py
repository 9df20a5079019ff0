"""Batches of a Ray cluster of two nodes: the same bytes, whatever is killed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S, write_photos

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

import standpipe.ray  # noqa: E402

STORE = 80 << 20
ACTOR = {"cpus_per_actor": 0.5, "memory_per_actor": "150MiB"}
MEMORY = "400MiB"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    small = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, **small})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> sp.Pipeline:
    photos = write_photos(tmp_path_factory.mktemp("photos"), 48)
    crop = sp.RandomResizedCrop(32)
    return sp.Pipeline(photos).shuffle(seed=3).map(crop, sp.RandomHorizontalFlip(), sp.Normalize()).batch(4)


@pytest.fixture(scope="module")
def actors(nodes: Any, pipeline: sp.Pipeline) -> Iterator[standpipe.ray.Actors]:
    """Three actors, for all tests that let them live or come back."""
    with standpipe.ray.start(pipeline, 3, fallback="wait", **ACTOR) as started:
        yield started


def of_batch(batch: dict[str, Any]) -> str:
    return blake2b(repr([(name, batch[name].tobytes()) for name in sorted(batch)]).encode()).hexdigest()


@pytest.fixture(scope="module")
def expected(pipeline: sp.Pipeline) -> list[str]:
    """The batches of two epochs, made here."""
    with pipeline.loader(num_workers=1) as loader:
        return [of_batch(batch) for _ in range(2) for batch in loader]


def processes(actors: standpipe.ray.Actors) -> list[int]:
    """The processes of all actors."""
    hellos = [handle.hello.options(max_task_retries=-1) for handle in actors.handles]
    greeted = ray.get([hello.remote(actors.pipeline) for hello in hellos])
    return [int(re.search(r"process (\d+)", name)[1]) for name, _ in greeted]  # type: ignore[index]


def has_ended(process: int) -> bool:
    """Wait for the end of a process, which isn't a child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    ended = bool(waiting.poll(WAIT_S * 1000))
    os.close(descriptor)
    return ended


def test_batches_are_those_of_this_process(
    actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    with standpipe.ray.loader(pipeline, actors, memory=MEMORY) as loader:
        found = [of_batch(batch) for _ in range(2) for batch in loader]
        assert "3 Ray actors with 0.5 CPUs and memory='150MiB' each" in loader.plan.explain()
    assert found == expected


@pytest.mark.parametrize("killed", [1, 3])
def test_nothing_is_lost_or_repeated_when_actors_are_killed(
    killed: int, actors: standpipe.ray.Actors, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    found, running = [], processes(actors)
    with standpipe.ray.loader(pipeline, actors, memory=MEMORY) as loader:
        for epoch in range(2):
            for batch in loader:
                found.append(of_batch(batch))
                if epoch == 0 and len(found) == 11:
                    for process in running[:killed]:
                        os.kill(process, signal.SIGKILL)
        if killed == 3:  # the others may make all the rest before Ray has found that one is dead
            assert loader.stats().deaths >= 1
    assert found == expected


def test_ranks_share_actors_also_from_tasks_of_the_cluster(
    actors: standpipe.ray.Actors, pipeline: sp.Pipeline
) -> None:
    @ray.remote(num_cpus=0.1)
    def train(rank: int, shared: standpipe.ray.Actors, of_all: sp.Pipeline) -> list[int]:
        with standpipe.ray.loader(of_all.shard(rank, 2), shared, memory="400MiB") as loader:
            return [int(index) for batch in loader for index in batch["index"]]

    indices = ray.get([train.remote(rank, actors, pipeline) for rank in range(2)])
    with pipeline.shard(1, 2).loader(num_workers=1) as loader:
        assert indices[1] == [int(index) for batch in loader for index in batch["index"]]
    assert sorted(indices[0] + indices[1]) == list(range(48))


class Missing:
    """A source whose files only one process sees."""

    def __init__(self, source: Any, process: int) -> None:
        self._source, self._process = source, process

    def describe(self) -> str:
        return str(self._source.describe())

    def open(self) -> Any:
        if os.getpid() != self._process:
            raise sp.PlanError("there is no folder '/photos'")
        return self._source.open()


def test_a_path_that_a_node_lacks_is_an_error_at_the_start(nodes: Any) -> None:
    source: Any = Missing(sp.Arrays(x=np.arange(8)), os.getpid())
    with (
        standpipe.ray.loader(sp.Pipeline(source).batch(2), 1, memory=MEMORY, **ACTOR) as loader,
        pytest.raises(
            sp.PlanError, match=r"actor 0 on node [\d.]+ \(process \d+\): there is no folder '/photos'"
        ),
    ):
        iter(loader)


def test_actors_end_with_a_trainer_that_is_killed(nodes: Any, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import os, re, signal, numpy as np, ray, standpipe as sp, standpipe.ray
        ray.init(address={nodes.address!r}, log_to_driver=False)
        pipeline = sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4)
        loader = standpipe.ray.loader(pipeline, 1, memory="300MiB", cpus_per_actor=0.5, memory_per_actor="150MiB")
        next(iter(loader))
        print(re.search(r"process ([0-9]+)", loader.stats().workers[0].name)[1], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert has_ended(int(done.stdout.split()[-1]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"actors": 0}, "actors must be an integer from 1"),
        ({"cpus_per_actor": 0}, "cpus_per_actor must be a number above 0"),
        ({"memory_per_actor": "much"}, "memory"),
        ({"fallback": "none"}, "fallback must be 'local', 'wait' or 'raise'"),
    ],
)
def test_invalid_arguments_are_refused(nodes: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        standpipe.ray.loader(sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2), **arguments)


# The last one: for some seconds Ray still offers the killed node to new actors.
def test_a_run_goes_on_when_a_node_is_killed_with_its_actors(
    nodes: Any, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    goes = nodes.add_node(num_cpus=1, resources={"goes": 1}, object_store_memory=STORE)
    options = {"resources": {"goes": 0.5}}
    found = []
    with standpipe.ray.loader(
        pipeline, 1, ray_options=options, memory=MEMORY, num_workers=1, **ACTOR
    ) as loader:
        for batch in loader:
            found.append(of_batch(batch))
            if len(found) == 2:
                nodes.remove_node(goes, allow_graceful=False)
        found += [of_batch(batch) for batch in loader]
    assert found == expected
