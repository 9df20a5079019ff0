"""Loaders of one user on this machine share processors, memory, and the turn to try another setting.

Each loader has a small file (``published``) that says how much memory it may take yet, and which processors it could
use more of. A loader that can't have one is alone.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from standpipe.system.published import Published, published

KIND = "loader"


class Claim:
    """One loader's part. It ends when it is closed, or when nobody has it any more.

    cpus   numbers of the processors that it runs on: loaders on other processors take none of its part
    pools  where its memory comes from, by ``machine.memory_pools``
    """

    def __init__(self, cpus: Collection[int] = (0,), pools: Collection[int] = (0,)) -> None:
        self._cpus, self._pools = frozenset(cpus), sorted(pools)
        self._promised, self._is_hungry = 0, False
        self._file = Published(KIND)
        weakref.finalize(self, self._file.close)
        self._tell()

    def promise(self, memory: int) -> None:
        """Tell other loaders how many bytes this one may use beyond what it has."""
        self._promised = max(memory, 0)
        self._tell()

    def hungry(self, is_so: bool) -> None:
        """Tell others whether the training loop waits for this loader: then it can use its part of the processors."""
        if is_so != self._is_hungry:
            self._is_hungry = is_so
            self._tell()

    def turn(self, wanted: bool) -> bool:
        """Take the turn, or give it back. Say whether this loader has it; one that is alone always does."""
        return self._file.turn(wanted)

    def rest(self) -> None:
        """Leave processors and the turn to others: there is nothing to make for now."""
        self.hungry(False)
        self.turn(False)

    def hungry_others(self) -> int:
        """Count the other loaders on some of its processors whose training loops wait for them."""
        return sum(not self._cpus.isdisjoint(other["hungry"]) for other in self._others())

    def promised_others(self, pool: int = 0) -> int:
        """Return how many bytes of a pool's memory others may take yet."""
        return sum(other["promised"] for other in self._others() if pool in other["pools"])

    def close(self) -> None:
        """Leave everything to others."""
        self._file.close()

    def _tell(self) -> None:
        hungry = sorted(self._cpus) if self._is_hungry else []
        told = {"promised": self._promised, "pools": self._pools, "hungry": hungry}
        self._file.write(json.dumps(told).encode())

    def _others(self) -> Iterator[dict[str, Any]]:
        return _told(without=self._file.name) if self._file.name is not None else iter(())


def promised(pool: int = 0) -> int:
    """Return how many bytes of a pool's memory the loaders of this user may take yet."""
    return sum(told["promised"] for told in _told() if pool in told["pools"])


def _told(without: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield what each loader says of itself."""
    for name, message in published(KIND):
        if name != without:
            yield json.loads(message)
