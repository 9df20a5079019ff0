"""Times of last use, by a clock that nobody can set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class TimeOfUse:
    """A time whose distance from now is right even if somebody sets the wall clock.

    boot     the kernel's random id, new at each start of the machine
    since_s  seconds since that start, including sleep
    wall_s   seconds since 1970, to show to people; no decision depends on this value
    """

    boot: str
    since_s: float
    wall_s: float

    @classmethod
    def now(cls) -> TimeOfUse:
        """Return the present time."""
        return cls(boot_id(), time.clock_gettime(_CLOCK), time.time())

    @property
    def ago_s(self) -> float:
        """Seconds from this time until now; if the machine has restarted, seconds since its restart."""
        passed = time.clock_gettime(_CLOCK)
        return max(passed - self.since_s, 0.0) if self.boot == boot_id() else passed


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@cache
def boot_id() -> str:
    """Return the kernel's random id, new at each start of the machine; empty if the kernel has none."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
