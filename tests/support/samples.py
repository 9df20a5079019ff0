"""A dataset of what a function gives, for tests of samples of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Samples:
    """Sample i is ``sample(i)``."""

    sample: Callable[[int], Any]
    length: int = 8

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)
