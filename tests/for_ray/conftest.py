"""One cluster for all tests of a process. Ray is imported by what uses it: without Ray these tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import standpipe as sp
from fleets import of_batch
from photos import write_photos

STORE = 80 << 20


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """A cluster of one node, to which tests add others."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, **small})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> sp.Pipeline:
    """12 batches an epoch."""
    photos = write_photos(tmp_path_factory.mktemp("photos"), 48)
    crop = sp.RandomResizedCrop(32)
    return sp.Pipeline(photos).shuffle(seed=3).map(crop, sp.RandomHorizontalFlip(), sp.Normalize()).batch(4)


@pytest.fixture(scope="session")
def actors(nodes: Any, pipeline: sp.Pipeline) -> Iterator[Any]:
    """Eight actors, for all tests that let them live or come back."""
    import standpipe.ray

    with standpipe.ray.start(
        pipeline, 8, fallback="wait", cpus_per_actor=0.25, memory_per_actor="150MiB"
    ) as started:
        yield started


@pytest.fixture(scope="session")
def expected(pipeline: sp.Pipeline) -> list[str]:
    """The batches of two epochs, made here."""
    with pipeline.loader(num_workers=1) as loader:
        return [of_batch(batch) for _ in range(2) for batch in loader]
