"""The batches that a sampler of torch's names, on their way to standpipe."""

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
    """The batches that a sampler yields, and which of them are delivered.

    keys       keys for the dataset, by record number, for batches that aren't delivered. None: the sampler's
    values,
               of any type, are used as they are
    many       True if the sampler yields lists, one for each batch; False: single records
    most_rows  records of the largest batch that has room; None: as the first ones show
    """

    def __init__(
        self, sampler: Iterator[Any], keys: dict[int, Any] | None, *, many: bool, most_rows: int | None
    ) -> None:
        self._many, self._keys = many, keys
        # Batches that were left may have the numbers before.
        self._next_key: int = max(keys or (), default=FIRST_KEY - 1) + 1
        self._names: Iterator[Records] = map(self._records, sampler)
        self._fixed = most_rows
        self.most_rows = most_rows or 1
        self.waits: Records | None = None  # the next one, for which there is no room, or which has no records
        self._pending: deque[Records] = deque()  # handed out, and not delivered
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Digest of the records of all delivered batches."""
        return self._digest.hexdigest()

    def is_left(self) -> bool:
        """Return whether a batch isn't delivered yet. Where none is handed out, the sampler is asked for the next."""
        if self._pending or self.waits is not None:
            return True
        first = list(islice(self._names, 1))
        self._names = chain(first, self._names)
        return bool(first)

    def look(self, ahead: int) -> bool:
        """Ask the sampler for ``ahead`` batches now. Return True if there was one.

        Where batches differ in size, these say how large slots have to be.
        """
        first = list(islice(self._names, ahead))
        self._names = chain(first, self._names)
        if self._fixed is None:
            self.most_rows = max([1, *map(len, first)])
        return bool(first)

    def leave_out(self, number: int) -> None:
        """The first batches were delivered earlier."""
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
        """Note that the batch that waits will have room."""
        assert self.waits is not None
        self.most_rows = 2 * len(self.waits)
        self._names = chain([self.waits], self._names)
        self.waits = None

    def hand_out(self) -> None:
        """Note that the empty batch that waits is made."""
        assert self.waits == []
        self._pending.append(self.waits)
        self.waits = None

    def delivered(self) -> None:
        """Count the oldest batch as delivered."""
        self._enter(self._pending.popleft())

    def _enter(self, records: Records) -> None:
        keys = records if not self._keys else [self._keys.pop(each, each) for each in records]
        try:
            self._digest.update(array("q", keys))  # a sixth of what their text takes
        except (TypeError, OverflowError):
            self._digest.update(repr(keys).encode())

    def _records(self, named: Any) -> Records:
        records = list(named) if self._many else [named]
        if self._keys is None or (set(map(type, records)) <= {int} and _are_numbers(records)):
            return records
        return [self._number(each) for each in records]

    def _number(self, key: Any) -> int:
        """The record's number: an integer's own, or one that stands for the key from now on."""
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
    """Return True if all of these integers are record numbers."""
    return not records or (min(records) >= 0 and max(records) < FIRST_KEY)
