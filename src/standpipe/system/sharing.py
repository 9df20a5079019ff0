"""Share processors, memory, and the turn to try another setting among this user's loaders on a machine.

Each loader has a small file (``published``) with the memory that it may still take, and the processors of
which it could use more. A loader that can't have a file sees no other loader.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from standpipe.system.published import Published, published

KIND = "loader"


class Claim:
    """The claim of one loader. It ends when it is closed or garbage collected.

    cpus   numbers of the processors that it runs on: loaders on other processors don't compete with it
    pools  pools that its memory comes from, by ``machine.memory_pools``
    """

    def __init__(self, cpus: Collection[int] = (0,), pools: Collection[int] = (0,)) -> None:
        self._cpus, self._pools = frozenset(cpus), sorted(pools)
        self._promised, self._is_hungry = 0, False
        self._file = Published(KIND)
        weakref.finalize(self, self._file.close)
        self._tell()

    def promise(self, memory: int) -> None:
        """Tell other loaders how many bytes this one may use beyond those that it has."""
        self._promised = max(memory, 0)
        self._tell()

    def hungry(self, is_so: bool) -> None:
        """Tell other loaders whether the training loop waits for this one.

        If it does, this loader can use its part of the processors.
        """
        if is_so != self._is_hungry:
            self._is_hungry = is_so
            self._tell()

    def turn(self, wanted: bool) -> bool:
        """Take the turn, or give it back. Return True if this loader has it; one that is alone always does."""
        return self._file.turn(wanted)

    def rest(self) -> None:
        """Leave processors and the turn to others, since there is nothing to make for now."""
        self.hungry(False)
        self.turn(False)

    def hungry_others(self) -> int:
        """Return the number of other loaders on these processors whose training loops wait for them."""
        return sum(not self._cpus.isdisjoint(other["hungry"]) for other in self._others())

    def promised_others(self, pool: int = 0) -> int:
        """Return the bytes of a pool's memory that other loaders may still take."""
        return sum(other["promised"] for other in self._others() if pool in other["pools"])

    def close(self) -> None:
        """End the claim, and leave everything to others."""
        self._file.close()

    def _tell(self) -> None:
        hungry = sorted(self._cpus) if self._is_hungry else []
        told = {"promised": self._promised, "pools": self._pools, "hungry": hungry}
        self._file.write(json.dumps(told).encode())

    def _others(self) -> Iterator[dict[str, Any]]:
        return _told(without=self._file.name) if self._file.name is not None else iter(())


def promised(pool: int = 0) -> int:
    """Return the bytes of a pool's memory that the loaders of this user may still take."""
    return sum(told["promised"] for told in _told() if pool in told["pools"])


def _told(without: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the claims of all loaders, except the one named ``without``."""
    for name, message in published(KIND):
        if name != without:
            yield json.loads(message)
