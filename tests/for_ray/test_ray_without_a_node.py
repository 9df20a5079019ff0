"""A node is killed. This is the last test on the cluster: for some seconds Ray still offers the node to new actors."""

from __future__ import annotations

from typing import Any

import pytest

import standpipe as sp
from fleets import of_batch

pytest.importorskip("ray")

import standpipe.ray


def test_a_run_goes_on_when_a_node_is_killed_with_its_actors(
    nodes: Any, pipeline: sp.Pipeline, expected: list[str]
) -> None:
    goes = nodes.add_node(num_cpus=1, resources={"goes": 1}, object_store_memory=80 << 20)
    options = {"resources": {"goes": 0.5}}
    found = []
    with standpipe.ray.loader(
        pipeline,
        1,
        cpus_per_actor=0.25,
        memory_per_actor="150MiB",
        ray_options=options,
        memory="400MiB",
        num_workers=1,
    ) as loader:
        for batch in loader:
            found.append(of_batch(batch))
            if len(found) == 2:
                nodes.remove_node(goes, allow_graceful=False)
        found += [of_batch(batch) for batch in loader]
    assert found == expected
