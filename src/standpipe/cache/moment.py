"""Times of last use, by a clock that can't be set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that can be compared with now, even if the wall clock is set.

    boot     the kernel's name for the time since the machine's last start
    since_s  seconds since that start, including sleep
    wall_s   seconds since 1970, for people: nothing depends on them
    """

    boot: str
    since_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Moment:
        """Return the present time."""
        return cls(boot_id(), time.clock_gettime(_CLOCK), time.time())

    @property
    def ago_s(self) -> float:
        """Seconds that have passed since this time; after a restart of the machine, those since the restart."""
        passed = time.clock_gettime(_CLOCK)
        return max(passed - self.since_s, 0.0) if self.boot == boot_id() else passed


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@cache
def boot_id() -> str:
    """Return the kernel's name for the time since the machine's last start; empty if it has none."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
