"""Take batches of record numbers from a torch sampler, and keep track of which were delivered."""

from __future__ import annotations

import contextlib
import operator
from array import array
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import standpipe as sp

Records = list[Any]
FIRST_KEY = sp.MapSource.FIRST_KEY


class Named:
    """The batches that a sampler yields, and the count of those that were delivered.

    The engine needs integers as record numbers. A sampler's value that is no such integer gets a number.

    keys       filled here: the sampler's value by the number that stands for it, until its batch is
               delivered. None: values aren't numbered and are passed on as they are
    many       True: the sampler yields a list for each batch; False: single records
    most_rows  the most records of a batch that a slot has room for; None: ``look`` finds it out
    """

    def __init__(
        self, sampler: Iterator[Any], keys: dict[int, Any] | None, *, many: bool, most_rows: int | None
    ) -> None:
        self._many, self._keys = many, keys
        # Undelivered batches of an earlier iterator may still use lower numbers.
        self._next_key: int = max(keys or (), default=FIRST_KEY - 1) + 1
        self._names: Iterator[Records] = map(self._records, sampler)
        self._fixed = most_rows
        self.most_rows = most_rows or 1
        # The next batch, if it is empty or too large for a slot; else None.
        self.waits: Records | None = None
        self._pending: deque[Records] = deque()  # yielded by batches(), not yet delivered
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Digest of the record numbers of all delivered batches, in hexadecimal."""
        return self._digest.hexdigest()

    def is_left(self) -> bool:
        """Return True if an undelivered batch is left. If none is in progress, this calls the sampler."""
        if self._pending or self.waits is not None:
            return True
        first = list(islice(self._names, 1))
        self._names = chain(first, self._names)
        return bool(first)

    def look(self, ahead: int) -> bool:
        """Take ``ahead`` batches from the sampler now. Return False if it gave none.

        If ``most_rows`` was None, the largest of these batches sets it.
        """
        first = list(islice(self._names, ahead))
        self._names = chain(first, self._names)
        if self._fixed is None:
            self.most_rows = max([1, *map(len, first)])
        return bool(first)

    def leave_out(self, number: int) -> None:
        """Skip the first ``number`` batches, and count them as delivered."""
        for records in islice(self._names, number):
            self._enter(records)

    def batches(self) -> Iterator[Records]:
        """Yield the undelivered batches, up to the first one that is empty or too large for the memory."""
        again, self._pending = self._pending, deque()
        for records in chain(again, self._names):
            if not 0 < len(records) <= self.most_rows:
                self.waits = records
                return
            self._pending.append(records)
            yield records

    def make_room(self) -> None:
        """Put the waiting batch back in front, and raise ``most_rows`` to twice its number of records."""
        assert self.waits is not None
        self.most_rows = 2 * len(self.waits)
        self._names = chain([self.waits], self._names)
        self.waits = None

    def hand_out(self) -> None:
        """Mark the waiting empty batch as in progress, so that ``delivered`` can count it."""
        assert self.waits == []
        self._pending.append(self.waits)
        self.waits = None

    def delivered(self) -> None:
        """Count the oldest batch as delivered."""
        self._enter(self._pending.popleft())

    def _enter(self, records: Records) -> None:
        keys = records if not self._keys else [self._keys.pop(each, each) for each in records]
        try:
            self._digest.update(array("q", keys))  # in a sixth of the time that repr() takes
        except (TypeError, OverflowError):
            self._digest.update(repr(keys).encode())

    def _records(self, named: Any) -> Records:
        records = list(named) if self._many else [named]
        if self._keys is None or (set(map(type, records)) <= {int} and _are_numbers(records)):
            return records
        return [self._number(each) for each in records]

    def _number(self, key: Any) -> int:
        """Return the record number for a sampler's value: an integer's own value, else a new number."""
        assert self._keys is not None
        if not isinstance(key, bool) and getattr(key, "ndim", 0) == 0:  # a 0-d tensor is an integer too
            with contextlib.suppress(TypeError):
                number = operator.index(key)
                if 0 <= number < FIRST_KEY:
                    return number
                key = number
        self._keys[self._next_key] = key
        self._next_key += 1
        return self._next_key - 1


def _are_numbers(records: Records) -> bool:
    """Return True if all of these integers can be record numbers: 0 ≤ number < ``FIRST_KEY``."""
    return not records or (min(records) >= 0 and max(records) < FIRST_KEY)
