"""Take batches of record numbers from a torch sampler, and keep track of which were delivered."""

from __future__ import annotations

import contextlib
import operator
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import standpipe as sp

Records = list[Any]
FIRST_KEY = sp.MapSource.FIRST_KEY


class At(NamedTuple):
    """A place between two batches of an epoch.

    number  number of batches that were delivered
    before  records of the last one
    hash    the hash of the record numbers of all of them
    digest  the same in hexadecimal
    after   batches that the sampler has yielded and that weren't delivered, the oldest first
    """

    number: int
    before: Records
    hash: Any
    digest: str
    after: list[Records]


class Named:
    """The batches that a sampler yields, and the place behind those that were delivered.

    The engine needs integers as record numbers. A sampler's value that is no such integer gets a number.

    keys       filled here: the sampler's value by the number that stands for it, until its batch is
               delivered. None: values aren't numbered and are passed on as they are
    many       True: the sampler yields a list for each batch; False: single records
    most_rows  the most records of a batch that a slot has room for; None: ``look`` finds it out
    at         the place, which the caller sets to ``next_place()`` when a batch was delivered
    waits      the next batch, if it is empty or too large for a slot, so that ``batches()`` ended before it; else None
    """

    def __init__(
        self, sampler: Iterator[Any], keys: dict[int, Any] | None, *, many: bool, most_rows: int | None
    ) -> None:
        self._many, self._keys = many, keys
        # Undelivered batches of an earlier iterator may still use lower numbers.
        self._next_key: int = max(keys or (), default=FIRST_KEY - 1) + 1
        self._sampler = sampler
        self._broken: BaseException | None = None  # the error that came out of the sampler
        self._fixed = most_rows
        self.most_rows = most_rows or 1
        self.waits: Records | None = None
        none = blake2b(digest_size=16)
        self.at = At(0, [], none, none.hexdigest(), [])

    def look(self, ahead: int) -> bool:
        """Take ``ahead`` batches from the sampler now. Return False if it gave none.

        If ``most_rows`` was None, the largest of these batches sets it.
        """
        self._take(ahead)
        if self._fixed is None:
            self.most_rows = max([1, *map(len, self.at.after)])
        return bool(self.at.after)

    def leave_out(self, number: int) -> None:
        """Skip the first ``number`` batches, and count them as delivered."""
        while self.at.number < number and self._take(1):
            self.at = self.next_place()

    def batches(self) -> Iterator[Records]:
        """Yield the undelivered batches, up to the first one that is empty or too large for the memory."""
        self.waits = None
        number = self.at.number
        while number < self.at.number + len(self.at.after) or self._take(1):
            records = self.at.after[number - self.at.number]
            if not 0 < len(records) <= self.most_rows:
                self.waits = records
                return
            number += 1
            yield records

    def make_room(self) -> None:
        """Raise ``most_rows`` to twice the number of records of the waiting batch."""
        assert self.waits is not None
        self.most_rows = 2 * len(self.waits)

    def next_place(self) -> At:
        """Return the place behind the oldest batch that wasn't delivered."""
        at = self.at
        records, *after = at.after
        if self._keys:
            for each in at.before:
                self._keys.pop(each, None)
        keys = [self._keys.get(each, each) for each in records] if self._keys else records
        digest = at.hash.copy()
        try:
            digest.update(array("q", keys))  # in a sixth of the time that repr() takes
        except (TypeError, OverflowError):
            digest.update(repr(keys).encode())
        return At(at.number + 1, records, digest, digest.hexdigest(), after)

    def is_left(self) -> bool:
        """Return True if there is a batch behind ``next_place()``. If none is in progress, this calls the sampler."""
        return len(self.at.after) > 1 or self._take(1)

    def _take(self, number: int) -> bool:
        """Take up to ``number`` batches from the sampler. Return False if it gave none.

        A generator that an exception has left looks as if it had ended. Then this raises ``StandpipeError``.
        """
        if self._broken is not None:
            raise sp.StandpipeError(
                f"the rest of this epoch is unknown, as its sampler raised {self._broken!r}. iter() begins the next "
                "epoch; after load_state_dict(state_dict()) it begins the rest of this one"
            ) from self._broken
        before = len(self.at.after)
        try:
            self.at.after.extend(map(self._records, islice(self._sampler, number)))
        except BaseException as error:
            self._broken = error
            raise
        return len(self.at.after) > before

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
