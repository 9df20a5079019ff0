"""Compare 100,000 random results of a transform with the distribution that they should have.

A pipeline transforms one picture again and again: random numbers depend on the position, not on the record. Seeds are
fixed, so a test passes always or never. Limits are those that a right distribution exceeds once in about 10,000 seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

import standpipe as sp
from standpipe.spec import AnyArray, UInt8Array

COUNT = 100_000
LIMIT = 3.7  # standard deviations
KOLMOGOROV = 2.2  # divided by the root of the number of values

Law = Iterable[tuple[float, Hashable]]  # (probability, outcome); outcomes may come several times


def transformed(picture: UInt8Array, *transforms: Any, field: str = "image") -> Iterator[AnyArray]:
    """Yield batches of ``COUNT`` results of one (H, W, 3) picture."""
    same = sp.Pipeline(sp.Arrays(image=picture[None])).select(np.zeros(COUNT, np.int64))
    with same.map(*transforms).batch(4000).loader(memory="1GiB", num_workers=2) as loader:
        for batch in loader:
            yield batch[field]


def pictures(picture: UInt8Array, *transforms: Any) -> Counter[Hashable]:
    """Count the results of a picture, by their bytes."""
    return Counter(row.tobytes() for batch in transformed(picture, *transforms) for row in batch)


def values(picture: UInt8Array, read: Callable[[AnyArray], AnyArray], *transforms: Any) -> AnyArray:
    """Return what ``read`` finds in each result: (rows, H, W, 3) becomes (rows,)."""
    return np.concatenate([read(batch.astype(int)) for batch in transformed(picture, *transforms)])


def check_counts(seen: Counter[Hashable], law: Law) -> None:
    """Fail if outcomes come more or less often than ``law`` says, by a chi-squared test."""
    expected: Counter[Hashable] = Counter()
    for probability, outcome in law:
        expected[outcome] += probability  # type: ignore[assignment]  # a float
    total = seen.total()
    assert math.isclose(sum(expected.values()), 1), "the probabilities aren't those of a law"
    strange = {outcome: count for outcome, count in seen.items() if not expected[outcome]}
    assert not strange, f"{sum(strange.values())} results are none of the {len(expected)} that can be"
    frequent = [outcome for outcome, part in expected.items() if part * total >= 10]
    pairs = [(seen[outcome], expected[outcome] * total) for outcome in frequent]
    rest = total - sum(count for count, _ in pairs), total - sum(wanted for _, wanted in pairs)
    if rest[1] >= 1:
        pairs.append(rest)
    freedom = len(pairs) - 1
    ratio = sum((count - wanted) ** 2 / wanted for count, wanted in pairs) / freedom
    spread = 2 / (9 * freedom)
    away = (ratio ** (1 / 3) - (1 - spread)) / math.sqrt(spread)  # Wilson and Hilferty
    assert away < LIMIT, f"{away:.1f} standard deviations from the law of {len(expected)} outcomes"


def check_alike(ours: AnyArray, theirs: AnyArray, levels: int = 5) -> None:
    """Fail if two sets of numbers have different distributions, by Kolmogorov's and Smirnov's test.

    levels  different numbers that there must be: fewer say little about a distribution
    """
    steps = np.unique(theirs)
    assert len(steps) >= levels, f"there are only {len(steps)} different numbers"
    below = [np.searchsorted(np.sort(each), steps, "right") / len(each) for each in (ours, theirs)]
    away = float(np.abs(below[0] - below[1]).max())
    limit = KOLMOGOROV * math.sqrt(1 / len(ours) + 1 / len(theirs))
    assert away < limit, f"distributions are {away:.4f} apart, more than {limit:.4f}"
