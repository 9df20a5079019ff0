"""Decide how many bytes may be read ahead of decoding."""

from __future__ import annotations

from dataclasses import dataclass

THREADS_PER_WORKER = 32  # hides opens of 20 ms behind decoding of 0.65 ms
THREADS = (16, 128)  # least and most


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Limits for the threads that read files ahead of decoding; they start only if reads are slow.

    limit_bytes  most encoded bytes in memory at once: being read, waiting, and being decoded
    threads      most reads in flight at once
    """

    limit_bytes: int
    threads: int


def read_threads(workers: int) -> int:
    """Return the most reads in flight that keep ``workers`` decoding threads busy on slow storage."""
    low, high = THREADS
    return min(max(workers * THREADS_PER_WORKER, low), high)
