"""Several orders mixed in given shares."""

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
_MIXED = 11  # keyed apart from all else of its seed


@dataclass(frozen=True, eq=False)
class Shares:
    """The frequencies of k components: ``parts[i]`` positions in a period of ``sum(parts)``.

    In the period each component's places are spread as evenly as possible: its j-th comes about
    (j + 1/2) / parts[i] of the way. So any stretch has the right fractions to within one or two.
    """

    parts: tuple[int, ...]

    @classmethod
    def of(cls, weights: Sequence[object]) -> Shares:
        """Make them from k numbers of at least 0, not all 0. Raises ``PlanError`` for others.

        Ratios of decimals are exact while their period is at most 65,536 long, others to the nearest
        1/65,536.
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
        """Positions after which each component came ``parts`` times."""
        return sum(self.parts)

    @cached_property
    def pattern(self) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
        """The component at each place of the period, and the number of its places before; (period,) each."""
        parts = np.array(self.parts)
        component = np.repeat(np.arange(len(parts), dtype=np.int16), parts)
        ordinal = np.arange(self.period) - np.repeat(np.cumsum(parts) - parts, parts)
        order = np.lexsort((component, (2 * ordinal + 1) / parts[component]))
        return component[order], ordinal[order].astype(np.int32)

    def positions_until(self, component: int, number: int) -> int:
        """After how many positions of the pattern a component came ``number`` times, at least one."""
        periods, rest = divmod(number - 1, self.parts[component])
        return periods * self.period + int(np.flatnonzero(self.pattern[0] == component)[rest]) + 1


@dataclass(frozen=True, eq=False)
class _Segment:
    """Frequencies that apply from one position on.

    epoch, position  where it begins
    before           records that each component gave before that, in all epochs together
    """

    shares: Shares
    epoch: int
    position: int
    before: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Mixed:
    """Positions that belong to components in given shares; each component gives its records in its own order.

    orders         of the components
    begins         (components,) what is added to each component's record numbers
    num_positions  of an epoch
    seed           of which component is where among 256 positions
    segments       from where on which shares; the first from position 0 of epoch 0

    Which component a position belongs to is computed from (seed, epoch, position): each 256 positions have
    the shares to within one or two, and over an epoch they are exact to within one. A component gives its
    records one after another across all epochs of the mixture: when it runs out, its next epoch begins, in
    that epoch's order.
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
        """A mixture of ``orders``.

        stopping  when an epoch ends: ``"first"``: when a component was seen whole; ``"last"``: when each was; or
               after so many positions
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
        """Return an order that is the same up to ``position`` of ``epoch``, and has other weights from there.

        Components continue in their orders, and an epoch has as many positions as before. A weight of 0 stops
        a component.
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
        """Record numbers of positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        parts = [
            self._records(segment, epoch, begin, max(start, begin), min(stop, end))
            for begin, end, segment in self._stretches(epoch)
            if begin < stop and start < end
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def component_of(self, index: int) -> int:
        """Return the component of a record number."""
        return int(np.searchsorted(self.begins, index, side="right")) - 1

    def describe(self) -> str:
        """One line for ``explain()``."""
        shares = self.segments[-1].shares
        each = "; ".join(
            f"{part / shares.period:.4g} of {order.describe()}"
            for part, order in zip(shares.parts, self.orders, strict=True)
        )
        changed = f", reweighed {len(self.segments) - 1} times" if len(self.segments) > 1 else ""
        return f"mixture of {self.num_positions:,} positions{changed}: {each}"

    def _stretches(self, epoch: int) -> list[tuple[int, int, _Segment]]:
        """The parts [begin, end) of an epoch that have one segment's shares."""
        inside = [segment for segment in self.segments if segment.epoch == epoch]
        if not inside or inside[0].position > 0:
            inside.insert(0, [segment for segment in self.segments if segment.epoch < epoch][-1])
        begins = [segment.position if segment.epoch == epoch else 0 for segment in inside]
        return list(zip(begins, [*begins[1:], self.num_positions], inside, strict=True))

    def _before(self, segment: _Segment, epoch: int) -> tuple[int, ...]:
        """Return how many records each component gave before the first position of an epoch with the
        segment's frequencies.
        """
        if epoch == segment.epoch:
            return segment.before
        rest = _counts(segment.shares, self.num_positions - segment.position)
        whole = _counts(segment.shares, self.num_positions)
        epochs = epoch - segment.epoch - 1
        return tuple(b + r + epochs * w for b, r, w in zip(segment.before, rest, whole, strict=True))

    def _drawn(self, epoch: int, position: int) -> tuple[int, ...]:
        """Return how many records each component gave before a position, in all epochs together."""
        begin, _, segment = [each for each in self._stretches(epoch) if each[0] <= position][-1]
        block = (position - begin) // BLOCK * BLOCK
        components, _ = self._mixed(segment, epoch, begin, begin + block, position)
        counts = _counts(segment.shares, block)
        some = np.bincount(components, minlength=len(counts)).tolist()
        before = self._before(segment, epoch)
        return tuple(b + c + s for b, c, s in zip(before, counts, some, strict=True))

    def _records(self, segment: _Segment, epoch: int, begin: int, start: int, stop: int) -> Int64Array:
        """Record numbers of positions [start, stop) of a stretch."""
        components, ordinals = self._mixed(segment, epoch, begin, start, stop)
        before = self._before(segment, epoch)
        records = np.empty(stop - start, np.int64)
        for number in np.bincount(components).nonzero()[0].tolist():
            mine = (components == number).nonzero()[0]
            first = before[number] + int(ordinals[mine[0]])  # their ordinals follow one another
            records[mine] = self._of_component(number, first, len(mine)) + self.begins[number]
        return records

    def _of_component(self, number: int, first: int, count: int) -> Int64Array:
        """Return the records [first, first + count) that a component gives, over its epochs."""
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
        """Return the component of each of the positions [start, stop) of a stretch, and which of its records
        that is.

        A block of 256 has the components that the pattern has there, in a random order.
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
    """Return how often each component is among the first ``positions`` of the pattern."""
    periods, rest = divmod(positions, shares.period)
    some = np.bincount(shares.pattern[0][:rest], minlength=len(shares.parts)).tolist()
    return tuple(periods * part + more for part, more in zip(shares.parts, some, strict=True))


def _nearest(shares: list[Fraction]) -> tuple[int, ...]:
    """Return integers with the sum 65,536 near these fractions: those rounded down most get one more."""
    parts = [math.floor(share * MOST_SHARES) for share in shares]
    lost = sorted(range(len(shares)), key=lambda i: (parts[i] - shares[i] * MOST_SHARES, i))
    for number in lost[: MOST_SHARES - sum(parts)]:
        parts[number] += 1
    return tuple(parts)
