"""A Ray cluster on this machine for benchmarks, and what its processes use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from standpipe.cli.bench import SAMPLE_EVERY_S, process_tree, proportional_bytes

STORE_BYTES = 256 << 20  # of each node's object store


@contextmanager
def cluster(*cpus: float) -> Iterator[Any]:
    """Start a cluster with a raylet for each number of CPUs, connect to it, and end it afterwards."""
    small: dict[str, Any] = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], **small})
    try:
        for number in cpus[1:]:
            made.add_node(num_cpus=number, **small)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def store_bytes() -> float:
    """Return the bytes of all nodes' object stores that are in use."""
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources().get(name, 0))


def workers(*names: str) -> list[int]:
    """Return the cluster's worker processes whose work begins with one of ``names``, such as an actor's class.

    Without names, return all of them.
    """
    found = []
    for process in process_tree():
        try:
            title = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if title.startswith(tuple(f"ray::{name}" for name in names or ("",))) and "Agent" not in title:
            found.append(process)
    return found


class Peaks:
    """A thread that notes the most memory of a process and of workers, and the most use of the object store."""

    def __init__(self, trainer: int, *names: str) -> None:
        self._trainer, self._names = trainer, names
        self.trainer = self.workers = self.store = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self) -> None:
        self.trainer = max(self.trainer, _proportional(self._trainer))
        self.workers = max(self.workers, sum(map(_proportional, workers(*self._names))))
        self.store = max(self.store, store_bytes())

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            self.look()

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _proportional(process: int) -> int:
    try:
        return proportional_bytes(process)
    except OSError:  # it has ended
        return 0
