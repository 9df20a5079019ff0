"""The actor: one process of the cluster that makes batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cloudpickle
import ray

import standpipe as sp
from standpipe.carried import Held


class RayMaker:
    """The code of an actor. It starts its workers at the first ``hello``, so that what fails there has a message.

    number    the actor's number
    version   standpipe's version in the trainer
    settings  arguments of ``Pipeline.plan``
    folder    the trainer's working directory, to which relative paths refer
    """

    def __init__(self, number: int, version: str, settings: Mapping[str, Any], folder: str) -> None:
        self._number, self._version, self._settings, self._folder = number, version, settings, folder
        self._warning = ""
        self._maker: Any = None
        self._lock = threading.Lock()

    def hello(self, packed: tuple[bytes, bytes]) -> tuple[str, Mapping[str, Any] | Exception]:
        """Start the workers if they aren't running. Return the actor's name, and its facts or why it can't work.

        packed  the trainer's settings and values, ``Carried``, and the pipeline, each pickled
        """
        node: Any = ray.util
        name = f"actor {self._number} on node {node.get_node_ip_address()} (process {os.getpid()})"
        try:
            with self._lock:
                if self._maker is None:
                    self._maker = self._started(*packed)
                return name, {**self._maker.facts(), "warning": self._warning}
        except sp.BudgetError as error:
            return name, sp.PlanError(f"{name}: {error}. An actor's budget is memory_per_actor=")
        except Exception as error:
            return name, sp.PlanError(f"{name}: {error}")

    def _started(self, carried: bytes, pipeline: bytes) -> Any:
        if self._version != sp.__version__:
            raise sp.PlanError(
                f"it has standpipe {sp.__version__}, and the trainer has {self._version}. Install the same version"
            )
        if os.path.isdir(self._folder):  # noqa: PTH112 (any text)
            os.chdir(self._folder)
        held = Held(cloudpickle.loads(carried))
        described: sp.Pipeline = cloudpickle.loads(pipeline)
        held.set_settings()
        self._warning = held.report.warning
        # The trainer knows which fields it delivers, and whether they fit the image.
        return replace(described, delivered=frozenset()).maker(**self._settings)

    def make(self, task: Any) -> Any:
        """Return the answer to a task; None if Ray has started this actor again and nobody has greeted it since."""
        return None if self._maker is None else self._maker.make(task)

    def alive(self) -> bool:
        """Return True, also while batches are made."""
        return True
