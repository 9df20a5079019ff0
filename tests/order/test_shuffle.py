"""A shuffle must look like a permutation drawn evenly from all n!.

Every statistical test also runs on NumPy's permutations with the same threshold: that shows the threshold is
right. All seeds are fixed, so a test passes always or never.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from standpipe.errors import PlanError
from standpipe.order import Shuffled
from standpipe.spec import AnyArray, Int64Array

LIMIT = 4.5  # standard deviations: 1 in 150,000 for one test of a fair shuffle
Draw = Callable[[int, int], Int64Array]


def over_seeds(n: int, count: int) -> Int64Array:
    """(count, n): first epochs of consecutive seeds."""
    return np.stack([Shuffled(n, seed).indices(0, 0, n) for seed in range(count)])


def over_epochs(n: int, count: int) -> Int64Array:
    """(count, n): consecutive epochs of one seed."""
    order = Shuffled(n, seed=7)
    return np.stack([order.indices(epoch, 0, n) for epoch in range(count)])


def by_numpy(n: int, count: int) -> Int64Array:
    """(count, n): the reference."""
    return np.random.default_rng(1).permuted(np.tile(np.arange(n), (count, 1)), axis=1)


drawn = pytest.mark.parametrize("draw", [over_seeds, over_epochs, by_numpy])


def chi_square_z(counts: AnyArray, lost_freedom: int = 1) -> float:
    """How far counts are from equal, in standard deviations (Wilson and Hilferty's approximation)."""
    observed = counts.astype(float)
    expected = observed.mean()
    assert expected >= 5
    freedom = counts.size - lost_freedom
    ratio = float(((observed - expected) ** 2 / expected).sum()) / freedom
    spread = 2 / (9 * freedom)
    return (ratio ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def mean_z(values: AnyArray, expected: float) -> float:
    """How far the mean of independent values is from what it should be, in standard deviations."""
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


def poisson_z(count: float, expected: float) -> float:
    return (count - expected) / math.sqrt(expected)


# One order


@drawn
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_permutations_are_equally_likely(draw: Draw, n: int) -> None:
    orders = draw(n, 40 * math.factorial(n))
    _, counts = np.unique(orders @ n ** np.arange(n), return_counts=True)
    assert len(counts) == math.factorial(n)
    assert abs(chi_square_z(counts)) < LIMIT


@drawn
@pytest.mark.parametrize("n", [2, 7, 16, 60])
def test_every_record_is_equally_likely_at_every_position(draw: Draw, n: int) -> None:
    orders = draw(n, 6000)
    counts = np.stack([np.bincount(column, minlength=n) for column in orders.T])
    assert abs(chi_square_z(counts, lost_freedom=2 * n - 1)) < LIMIT


@drawn
@pytest.mark.parametrize("n", [1025])
def test_every_record_is_equally_likely_at_a_few_positions_of_many(draw: Draw, n: int) -> None:
    orders = draw(n, 5 * n)
    for position in (0, 1, 33, n // 2, n - 1):
        assert abs(chi_square_z(np.bincount(orders[:, position], minlength=n))) < LIMIT


@drawn
@pytest.mark.parametrize("n", [100, 1000, 1025, 5000])
def test_neighbours_are_independent(draw: Draw, n: int) -> None:
    orders = draw(n, 400_000 // n)
    side = math.isqrt(n - 1) + 1
    for lag in (1, 2, side - 1, side, side + 1, 2 * side):
        steps = (orders[:, lag:] - orders[:, :-lag]) % n
        assert abs(chi_square_z(np.bincount(steps.ravel(), minlength=n)[1:])) < LIMIT
        centred = orders - (n - 1) / 2
        products = (centred[:, lag:] * centred[:, :-lag]).mean(axis=1)
        assert abs(mean_z(products, -(n + 1) / 12)) < LIMIT


@drawn
@pytest.mark.parametrize("n", [1025])
def test_pairs_keep_their_distance_only_by_chance(draw: Draw, n: int) -> None:
    """The sharpest test known for too few rounds: it tells 6 from a fair shuffle."""
    orders = draw(n, 8000).astype(np.int16)
    side = math.isqrt(n - 1) + 1
    for unit in (1, side - 1, side):
        lags = range(unit, 16 * unit, unit)
        kept = sum(np.count_nonzero(orders[:, lag:] - orders[:, :-lag] == lag) for lag in lags)
        by_chance = sum(len(orders) * (n - lag) ** 2 / (n * (n - 1)) for lag in lags)
        assert abs(poisson_z(kept, by_chance)) < LIMIT


@pytest.mark.parametrize("n", [10**6, 10**8, 2**40, 2**62])
def test_windows_of_a_large_order_are_uniform(n: int) -> None:
    for seed in range(10):
        window = Shuffled(n, seed).indices(3, n // 7 * (seed % 7), n // 7 * (seed % 7) + 50_000)
        side = 10_000
        for values in (window, (window[1:] - window[:-1]) % n, (window[side:] - window[:-side]) % n):
            assert abs(chi_square_z(np.histogram(values / n, 500, (0, 1))[0])) < LIMIT
        assert abs(chi_square_z(np.bincount(window % 499))) < LIMIT


# Two orders


@drawn
@pytest.mark.parametrize("n", [50, 1025, 4000])
def test_one_order_says_nothing_of_the_next(draw: Draw, n: int) -> None:
    """Epoch e and e + 1 of a seed, seed s and s + 1 in an epoch."""
    orders = draw(n, 301)
    this, following = orders[:-1], orders[1:]
    in_place = (this == following).sum(axis=1)
    assert abs(poisson_z(in_place.sum(), len(this))) < LIMIT
    assert abs(mean_z((in_place - 1.0) ** 2, 1.0)) < LIMIT  # a Poisson's variance is its mean

    centred, other = this - (n - 1) / 2, following - (n - 1) / 2
    assert abs(mean_z((centred * other).mean(axis=1), 0.0)) < LIMIT

    where = np.argsort(following, axis=1)
    now = np.take_along_axis(where, this, axis=1)
    still_neighbours = np.count_nonzero(np.diff(now, axis=1) == 1)
    assert abs(poisson_z(still_neighbours, len(this) * (n - 1) / n)) < LIMIT


@pytest.mark.parametrize("n", [1000, 2**20])
@pytest.mark.parametrize("bit", [0, 1, 31, 32, 63])
def test_any_bit_of_seed_or_epoch_changes_half_of_the_bits(n: int, bit: int) -> None:
    flipped = 1 << bit
    for other in (lambda s, e: (s ^ flipped, e), lambda s, e: (s, e ^ flipped), lambda s, e: (e, s)):
        drawn_bits = []
        for seed in range(40):
            changed_seed, changed_epoch = other(seed, 1000 + seed)
            a = Shuffled(n, seed).indices(1000 + seed, 0, 500)
            b = Shuffled(n, changed_seed).indices(changed_epoch, 0, 500)
            drawn_bits.append(((a >> np.arange(4)[:, None]) ^ (b >> np.arange(4)[:, None])) & 1)
        ones = np.array(drawn_bits, float)
        assert abs(mean_z(ones.ravel(), 0.5)) < LIMIT


# What training sees: labels in the order of a sorted listing


@drawn
@pytest.mark.parametrize("n", [1000, 1025, 10_000])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_batches_mix_sorted_classes(draw: Draw, n: int, classes: int) -> None:
    orders = draw(n, 300)
    batch = 64
    size = n // classes
    labels = (np.arange(n) // size)[orders][:, : n // batch * batch].reshape(len(orders), -1, batch)

    of_first = (labels == 0).sum(axis=2)
    share = size / n
    hypergeometric = batch * share * (1 - share) * (n - batch) / (n - 1)
    assert abs(mean_z(((of_first - batch * share) ** 2).mean(axis=1), hypergeometric)) < LIMIT

    kinds = 1 + (np.diff(np.sort(labels, axis=2), axis=2) != 0).sum(axis=2)
    sizes = np.bincount(np.arange(n) // size)
    expected = sum(1 - missing(n, int(members), batch) for members in sizes)
    if classes > 2:  # two classes are both in every batch
        assert abs(mean_z(kinds.mean(axis=1), expected)) < LIMIT

    same = (np.diff((np.arange(n) // size)[orders], axis=1) == 0).mean(axis=1)
    assert abs(mean_z(same, float((sizes * (sizes - 1)).sum()) / (n * (n - 1)))) < LIMIT


def missing(n: int, members: int, batch: int) -> float:
    """The probability that a batch has no member of a class."""
    if members > n - batch:
        return 0.0
    return math.exp(
        math.lgamma(n - members + 1)
        - math.lgamma(n - members - batch + 1)
        - math.lgamma(n + 1)
        + math.lgamma(n - batch + 1)
    )


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_runs_of_one_class_are_as_long_as_numpys(classes: int) -> None:
    n = 10_000
    ours, theirs = (
        np.array([longest_run(order * classes // n) for order in draw(n, 300)])
        for draw in (over_epochs, by_numpy)
    )
    spread = math.sqrt((ours.var() + theirs.var()) / len(ours))
    assert abs(ours.mean() - theirs.mean()) < LIMIT * spread


def longest_run(labels: Int64Array) -> int:
    changes = np.flatnonzero(np.diff(labels)) + 1
    return int(np.diff(np.concatenate(([0], changes, [len(labels)]))).max())


# The description


def test_it_says_what_it_is() -> None:
    text = Shuffled(1_281_167, seed=7).describe()
    assert text == "shuffle(seed=7): keyed bijection of 1,281,167 positions, new each epoch"


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "7", None])
def test_a_wrong_seed_is_refused(seed: object) -> None:
    with pytest.raises(PlanError, match="seed"):
        Shuffled(10, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [0, -1, 2**62 + 1, 2.0, None])
def test_a_wrong_number_of_records_is_refused(number: object) -> None:
    with pytest.raises(PlanError, match="num_records"):
        Shuffled(number, 7)  # type: ignore[arg-type]


def test_numpy_integers_are_integers() -> None:
    assert Shuffled(np.int64(10), np.uint64(7)) == Shuffled(10, 7)  # type: ignore[arg-type]


def test_a_description_holds_no_table() -> None:
    order = Shuffled(2**62, seed=7)
    assert not hasattr(order, "__dict__")
    assert len(order.indices(0, 2**61, 2**61 + 10)) == 10
