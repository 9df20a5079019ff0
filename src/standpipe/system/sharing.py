"""Share CPUs and memory among this user's loaders on one machine.

Each loader publishes a small file: the bytes that it may still allocate, and its CPUs if it could use more of them.
A loader that can't have a file sees no other loader.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from standpipe.system.published import Published, published_messages

KIND = "loader"


class Claim:
    """One loader's published claim to CPUs and memory, and its view of other loaders' claims.

    cpus   numbers of the CPUs that the loader runs on; loaders on other CPUs don't compete with it
    pools  numbers of the pools that its memory comes from, by ``machine.memory_pools``

    The claim ends when it is closed or garbage collected.
    """

    def __init__(self, cpus: Collection[int] = (0,), pools: Collection[int] = (0,)) -> None:
        self._cpus, self._pools = frozenset(cpus), sorted(pools)
        self._promised, self._is_hungry = 0, False
        self._file = Published(KIND)
        weakref.finalize(self, self._file.close)
        self._tell()

    def promise(self, memory: int) -> None:
        """Publish how many bytes this loader may still allocate, beyond those that it has. Negative counts as 0."""
        self._promised = max(memory, 0)
        self._tell()

    def hungry(self, is_so: bool) -> None:
        """Publish whether the training loop waits for this loader, so that it could use more CPU time.

        is_so  True if the training loop waits
        """
        if is_so != self._is_hungry:
            self._is_hungry = is_so
            self._tell()

    def hungry_others(self) -> int:
        """Return the number of other loaders on these processors whose training loops wait for them."""
        return sum(not self._cpus.isdisjoint(other["hungry"]) for other in self._others())

    def close(self) -> None:
        """End the claim: remove the loader's published file."""
        self._file.close()

    def _tell(self) -> None:
        hungry = sorted(self._cpus) if self._is_hungry else []
        told = {"promised": self._promised, "pools": self._pools, "hungry": hungry}
        self._file.write(json.dumps(told).encode())

    def _others(self) -> Iterator[dict[str, Any]]:
        return _told(without=self._file.name) if self._file.name is not None else iter(())


def promised(pool: int = 0) -> int:
    """Return the bytes of a memory pool that all running loaders of this user may still allocate."""
    return sum(told["promised"] for told in _told() if pool in told["pools"])


def _told(without: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the published claims of all running loaders, except that in the file named ``without``."""
    for name, message in published_messages(KIND):
        if name != without:
            yield json.loads(message)
