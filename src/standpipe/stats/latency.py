"""The distribution of durations, counted in buckets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

PARTS = 8  # steps of a doubling: a duration is known within 6%
LEAST_NS = 1 << 10  # what is shorter counts as that
BUCKETS = 26 * PARTS + 1  # up to 69 s, and all that is longer


@dataclass(frozen=True, slots=True, repr=False)
class Latency:
    """The distribution of durations, as counts by duration.

    Attributes
    ----------
    counts : tuple of int
        (209,) Counts from 1 µs on, in steps of an eighth of a doubling. The last one counts everything from
        69 s on. Empty if nothing was timed.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5)
    >>> with pipeline.loader() as loader:
    ...     batches = list(loader)
    ...     waits = loader.stats().step.wait
    >>> waits.count, waits.p50 <= waits.p99
    (4, True)
    """

    counts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """The number of durations that were counted."""
        return sum(self.counts)

    @property
    def p50(self) -> float:
        """The median, in seconds; 0 when nothing was timed."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float:
        """The 90th percentile, in seconds; 0 when nothing was timed."""
        return self.quantile(0.9)

    @property
    def p99(self) -> float:
        """The 99th percentile, in seconds; 0 when nothing was timed."""
        return self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """Return a quantile of the durations, in seconds, accurate to 6%; 0 when nothing was timed.

        ``share`` is the fraction of durations that are at most this long: 0 < share <= 1. 0.5 is the median.
        """
        wanted = share * self.count
        if wanted <= 0:
            return 0.0
        return next(
            edges(number)[1] for number, so_far in enumerate(accumulate(self.counts)) if so_far >= wanted
        )

    def __repr__(self) -> str:
        return f"Latency(count={self.count}, p50={self.p50:.3g}, p90={self.p90:.3g}, p99={self.p99:.3g})"

    def __add__(self, other: Latency) -> Latency:
        return _joined(self, other, 1)

    def __sub__(self, before: Latency) -> Latency:
        return _joined(self, before, -1)


def _joined(one: Latency, other: Latency, sign: int) -> Latency:
    if not other.counts:
        return one
    mine = one.counts or (0,) * len(other.counts)
    return Latency(tuple(a + sign * b for a, b in zip(mine, other.counts, strict=True)))


def edges(bucket: int) -> tuple[float, float]:
    """Return the lower and upper limit of bucket number ``bucket`` of ``Latency.counts``, in seconds.

    native/system/latency.h counts with the same limits.
    """
    doubling, part = divmod(bucket, PARTS)
    begin = LEAST_NS * (1 << doubling)
    width = begin / PARTS
    return (begin + part * width) / 1e9, (begin + (part + 1) * width) / 1e9


UNTIMED = Latency()
