"""The order of a mixture: several components' orders, mixed by weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import Order
from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_POSITIONS, WORDS, check_positions
from standpipe.order.columns import key_of
from standpipe.spec import Int64Array

if TYPE_CHECKING:
    from fractions import Fraction

BLOCK = 256  # positions that are mixed among each other
MOST_SHARES = 1 << 16  # the shares' sum: shares are exact to 1/65,536
MOST_COMPONENTS = 1 << 10
_MIXED = 11  # makes these random numbers independent of others with the same seed


@dataclass(frozen=True, eq=False)
class Shares:
    """The fractions of k components: ``parts[i]`` of each ``sum(parts)`` positions belong to component i.

    The components alternate in a pattern of ``sum(parts)`` places, as evenly as possible: the j-th place of
    component i is about (j + 1/2) / parts[i] of the way. So any stretch of the pattern has the right
    fractions to within one or two places.
    """

    parts: tuple[int, ...]

    @classmethod
    def of(cls, weights: Sequence[object]) -> Shares:
        """Make the fractions from k weights of at least 0, not all 0. Raises ``PlanError`` for other weights.

        Ratios of decimals are exact if the pattern has at most 65,536 places; others are rounded to 1/65,536.
        """
        if not 1 <= len(weights) <= MOST_COMPONENTS:
            raise PlanError(f"a mixture must have 1 to {MOST_COMPONENTS:,} components, got {len(weights):,}")
        for weight in weights:
            is_number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
            if not is_number or not 0 <= float(weight) < math.inf:  # type: ignore[arg-type]
                raise PlanError(f"a mixture's weight must be a number from 0 on, got {weight!r}")
        from fractions import Fraction  # loads decimal, which importing standpipe needn't

        exact = [Fraction(repr(float(weight))) for weight in weights]  # type: ignore[arg-type]
        total = sum(exact)
        if total == 0:
            raise PlanError("all weights of the mixture are 0. Give at least one a weight above 0")
        exact = [share / total for share in exact]
        period = math.lcm(*(share.denominator for share in exact))
        whole = (int(share * period) for share in exact)
        parts = _nearest(exact) if period > MOST_SHARES else tuple(whole)
        for weight, part in zip(weights, parts, strict=True):
            if part == 0 and float(weight) > 0:  # type: ignore[arg-type]
                raise PlanError(
                    f"a mixture's weight {weight!r} is too small: it must be 0, or at least 1/65,536 of their sum"
                )
        return cls(parts)

    @property
    def period(self) -> int:
        """The number of places in the pattern, which repeats."""
        return sum(self.parts)

    @cached_property
    def pattern(self) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
        """Two arrays, (period,) each: the component at each place of the pattern, and its number of earlier
        places.
        """
        parts = np.array(self.parts)
        component = np.repeat(np.arange(len(parts), dtype=np.int16), parts)
        ordinal = np.arange(self.period) - np.repeat(np.cumsum(parts) - parts, parts)
        order = np.lexsort((component, (2 * ordinal + 1) / parts[component]))
        return component[order], ordinal[order].astype(np.int32)

    def positions_until(self, component: int, number: int) -> int:
        """Return how many positions of the repeated pattern contain ``number`` places of a component, at
        least 1.
        """
        periods, rest = divmod(number - 1, self.parts[component])
        return periods * self.period + int(np.flatnonzero(self.pattern[0] == component)[rest]) + 1


@dataclass(frozen=True, eq=False)
class _Segment:
    """The fractions that apply from one position of an epoch on, until the next segment.

    epoch, position  where the segment begins
    before           (components,) number of records that each component gave before, over all epochs
    """

    shares: Shares
    epoch: int
    position: int
    before: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Mixed:
    """The order of a mixture: each position belongs to a component, which gives its records in its own order.

    orders         the components' orders
    begins         (components,) offset that is added to each component's record numbers
    num_positions  positions in an epoch
    seed           seed of the components' random places among each 256 positions
    segments       the fractions over time; the first segment begins at position 0 of epoch 0

    The component of a position is computed from (seed, epoch, position). Each 256 positions have the
    fractions to within one or two, and an epoch has them to within one. A component gives its records one
    after another across all epochs of the mixture. When it has given all, its next epoch begins, with that
    epoch's order.
    """

    orders: tuple[Order, ...]
    begins: Int64Array
    num_positions: int
    seed: int
    segments: tuple[_Segment, ...]

    @classmethod
    def over(
        cls,
        orders: tuple[Order, ...],
        begins: Int64Array,
        weights: Sequence[object],
        stopping: str | int,
        seed: int,
    ) -> Mixed:
        """Make the order of a mixture of ``orders``.

        stopping  the end of an epoch: ``"first"``: when one component has given all its records; ``"last"``:
                  when each has; an integer: after that many positions
        """
        shares = Shares.of(weights)
        if isinstance(stopping, str):
            wholes = [
                shares.positions_until(number, order.num_positions)
                for number, order in enumerate(orders)
                if shares.parts[number] > 0
            ]
            positions = min(wholes) if stopping == "first" else max(wholes)
        else:
            positions = stopping
        if positions > MAX_POSITIONS:
            raise PlanError(
                f"the mixture's epoch would have {positions:,} positions, but at most 2^62 are possible"
            )
        none = (0,) * len(orders)
        return cls(orders, begins, positions, seed, (_Segment(shares, 0, 0, none),))

    def reweighed(self, epoch: int, position: int, weights: Sequence[object]) -> Mixed:
        """Return an order that is the same before ``position`` of ``epoch``, and has new weights from there
        on.

        Components continue in their orders, and an epoch has as many positions as before. A component of
        weight 0 gives no more records.
        """
        last = self.segments[-1]
        if (epoch, position) < (last.epoch, last.position):
            raise PlanError(
                f"the mixture was reweighed at position {last.position} of epoch {last.epoch}, which is after "
                f"position {position} of epoch {epoch}"
            )
        if len(weights) != len(self.orders):
            raise PlanError(f"the mixture has {len(self.orders)} components, but got {len(weights)} weights")
        segment = _Segment(Shares.of(weights), epoch, position, self._drawn(epoch, position))
        return replace(self, segments=(*self.segments, segment))

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        parts = [
            self._records(segment, epoch, begin, max(start, begin), min(stop, end))
            for begin, end, segment in self._stretches(epoch)
            if begin < stop and start < end
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def component_of(self, index: int) -> int:
        """Return the number of the component that has a record number."""
        return int(np.searchsorted(self.begins, index, side="right")) - 1

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        shares = self.segments[-1].shares
        each = "; ".join(
            f"{part / shares.period:.4g} of {order.describe()}"
            for part, order in zip(shares.parts, self.orders, strict=True)
        )
        changed = f", reweighed {len(self.segments) - 1} times" if len(self.segments) > 1 else ""
        return f"mixture of {self.num_positions:,} positions{changed}: {each}"

    def _stretches(self, epoch: int) -> list[tuple[int, int, _Segment]]:
        """Return the parts of an epoch, as (begin, end, segment): positions [begin, end) have the segment's
        fractions.
        """
        inside = [segment for segment in self.segments if segment.epoch == epoch]
        if not inside or inside[0].position > 0:
            inside.insert(0, [segment for segment in self.segments if segment.epoch < epoch][-1])
        begins = [segment.position if segment.epoch == epoch else 0 for segment in inside]
        return list(zip(begins, [*begins[1:], self.num_positions], inside, strict=True))

    def _before(self, segment: _Segment, epoch: int) -> tuple[int, ...]:
        """Return how many records each component gave before the first position of an epoch in a segment."""
        if epoch == segment.epoch:
            return segment.before
        rest = _counts(segment.shares, self.num_positions - segment.position)
        whole = _counts(segment.shares, self.num_positions)
        epochs = epoch - segment.epoch - 1
        return tuple(b + r + epochs * w for b, r, w in zip(segment.before, rest, whole, strict=True))

    def _drawn(self, epoch: int, position: int) -> tuple[int, ...]:
        """Return how many records each component gave before a position of an epoch, over all epochs."""
        begin, _, segment = [each for each in self._stretches(epoch) if each[0] <= position][-1]
        block = (position - begin) // BLOCK * BLOCK
        components, _ = self._mixed(segment, epoch, begin, begin + block, position)
        counts = _counts(segment.shares, block)
        some = np.bincount(components, minlength=len(counts)).tolist()
        before = self._before(segment, epoch)
        return tuple(b + c + s for b, c, s in zip(before, counts, some, strict=True))

    def _records(self, segment: _Segment, epoch: int, begin: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of a segment's stretch, which begins at
        ``begin``.
        """
        components, ordinals = self._mixed(segment, epoch, begin, start, stop)
        before = self._before(segment, epoch)
        records = np.empty(stop - start, np.int64)
        for number in np.bincount(components).nonzero()[0].tolist():
            mine = (components == number).nonzero()[0]
            first = before[number] + int(ordinals[mine[0]])  # their ordinals follow one another
            records[mine] = self._of_component(number, first, len(mine)) + self.begins[number]
        return records

    def _of_component(self, number: int, first: int, count: int) -> Int64Array:
        """Return ``count`` record numbers of component ``number``, from its record ``first``, counted over
        its epochs.
        """
        order = self.orders[number]
        parts = []
        while count > 0:
            epoch, at = divmod(first, order.num_positions)
            stop = min(at + count, order.num_positions)
            parts.append(order.indices(epoch % WORDS, at, stop))
            first, count = first + stop - at, count - (stop - at)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _mixed(
        self, segment: _Segment, epoch: int, begin: int, start: int, stop: int
    ) -> tuple[NDArray[np.int16], Int64Array]:
        """Return two arrays for positions [start, stop): each position's component, and the number of its
        record.

        begin  where the segment's stretch begins

        A record's number counts the component's records in the stretch, from 0. A block of 256 positions has
        the components of the pattern there, in a random order.
        """
        pattern, ordinal_of = segment.shares.pattern
        first = (start - begin) // BLOCK * BLOCK
        last = min(-(-(stop - begin) // BLOCK) * BLOCK, self.num_positions - begin)
        turns, places = np.divmod(np.arange(first, last), segment.shares.period)
        even = pattern[places]
        ordinals = turns * np.array(segment.shares.parts)[even] + ordinal_of[places]
        key = _native.mix(key_of(self.seed, _MIXED), begin)
        moved = np.concatenate(
            [np.empty(0, np.int64)]
            + [
                at
                - first
                + _native.shuffled_indices(
                    _native.mix(key, at), epoch, size := min(BLOCK, last - at), 0, size
                )
                for at in range(first, last, BLOCK)
            ]
        )
        components = even[moved]
        # A component's draws are given in turn to its positions, so that its own order stays.
        most = len(segment.shares.parts) * (1 + (last - first) // BLOCK)
        dtype = np.uint16 if most < 1 << 16 else np.int64  # 16 bits are sorted by radix
        block = (np.arange(last - first) // BLOCK * len(segment.shares.parts)).astype(dtype)
        given = np.empty_like(ordinals)
        to, of = ((block + each.astype(dtype)).argsort(kind="stable") for each in (components, even))
        given[to] = ordinals[of]
        asked = slice(start - begin - first, stop - begin - first)
        return components[asked], given[asked]


@lru_cache(maxsize=64)  # a run asks of whole epochs again and again, and counting takes up to 65,536 places
def _counts(shares: Shares, positions: int) -> tuple[int, ...]:
    """Return how many of the first ``positions`` places of the pattern each component has."""
    periods, rest = divmod(positions, shares.period)
    some = np.bincount(shares.pattern[0][:rest], minlength=len(shares.parts)).tolist()
    return tuple(periods * part + more for part, more in zip(shares.parts, some, strict=True))


def _nearest(shares: list[Fraction]) -> tuple[int, ...]:
    """Return integers with the sum 65,536 in nearly the given ratios: those that rounding lowers most get one
    more.
    """
    parts = [math.floor(share * MOST_SHARES) for share in shares]
    lost = sorted(range(len(shares)), key=lambda i: (parts[i] - shares[i] * MOST_SHARES, i))
    for number in lost[: MOST_SHARES - sum(parts)]:
        parts[number] += 1
    return tuple(parts)
