"""The batches that a sampler of torch's names, on their way to standpipe."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

Records = list[int]


class Named:
    """What a sampler names, batch by batch, and what of it is delivered.

    many       whether the sampler names lists, of a batch each; else single records
    most_rows  records of the largest batch for which there is room; None: as the first ones show
    """

    def __init__(self, sampler: Iterator[Any], *, many: bool, most_rows: int | None) -> None:
        self._many = many
        self._names: Iterator[Records] = map(self._records, sampler)
        self._fixed = most_rows
        self.most_rows = most_rows or 1
        self.waits: Records | None = None  # the next one, for which there is no room
        self._pending: deque[Records] = deque()  # handed out, and not delivered
        self._digest = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Of the records of all batches that were delivered."""
        return self._digest.hexdigest()

    @property
    def is_pending(self) -> bool:
        """Whether a batch is handed out that isn't delivered."""
        return bool(self._pending)

    def look(self, ahead: int) -> bool:
        """Draw so many batches now; whether there was one. Where batches differ in size, they say what to expect."""
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
        """All that aren't delivered, up to the first one for which there is no room."""
        again, self._pending = self._pending, deque()
        for records in chain(again, self._names):
            if len(records) > self.most_rows:
                self.waits = records
                return
            self._pending.append(records)
            yield records

    def make_room(self) -> None:
        """There will be room for the one that waits."""
        assert self.waits is not None
        self.most_rows = 2 * len(self.waits)
        self._names = chain([self.waits], self._names)
        self.waits = None

    def delivered(self) -> None:
        """The oldest one is."""
        self._enter(self._pending.popleft())

    def _enter(self, records: Records) -> None:
        self._digest.update(repr(records).encode())

    def _records(self, named: Any) -> Records:
        """Raises ``TypeError`` for what are no numbers."""
        try:
            return [operator.index(each) for each in (named if self._many else [named])]
        except TypeError:
            raise TypeError(
                f"the sampler gave {named!r}: standpipe's DataLoader takes whole numbers; a dataset with other keys can "
                "look them up by number"
            ) from None
