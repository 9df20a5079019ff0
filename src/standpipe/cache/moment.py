"""Times of last use, by a clock that can't be set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that can be compared with now, whatever is done to the wall clock.

    boot     the kernel's name for this run of the machine
    since_s  seconds since it started, with those that it slept
    wall_s   seconds since 1970, for people: nothing depends on them
    """

    boot: str
    since_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Moment:
        """This one."""
        return cls(boot_id(), time.clock_gettime(_CLOCK), time.time())

    @property
    def ago_s(self) -> float:
        """Seconds that passed since then; if the machine was started anew, those since its start, which is less."""
        passed = time.clock_gettime(_CLOCK)
        return max(passed - self.since_s, 0.0) if self.boot == boot_id() else passed


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@cache
def boot_id() -> str:
    """The kernel's name for this run of the machine; empty where it has none."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
