"""Bad samples: what is known of each, and how many a run takes before it ends."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from standpipe.errors import PlanError, SampleError, TooManyBadSamples
from standpipe.faults import faultpoint
from standpipe.spec import Raise, Replace

KEPT = 10_000  # of the newest bad samples, in memory; the file has all
MOST_KINDS = 8  # that an error's message names; its ``counts`` has all
PLACE = re.compile(r" at \[[\d, ]*\]")  # in an array


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that couldn't be delivered, and what was delivered in its place.

    epoch        in which it came
    position     its place in the epoch's global order
    attempt      0 for the sample that belongs there, 1 for its first replacement, and so on
    index        its record's number in the source
    path         its file as a printable string, or None
    offset       byte offset of the record inside ``path``
    place        the place that found it: ``"source"``, ``"read"``, ``"transform"`` or ``"batch"``
    reason       what is wrong
    replacement  the number of the record that was tried next
    counts       whether it counts against the limit: not rows that pad an epoch's last batch
    """

    epoch: int
    position: int
    attempt: int
    index: int
    path: str | None
    offset: int
    place: str
    reason: str
    replacement: int
    counts: bool = True

    @property
    def kind(self) -> str:
        """What is wrong, without the facts of this one sample: what a summary counts.

        Of an exception in somebody's code it is where it was and of which type: ``"the dataset: KeyError"``.
        """
        what, _, rest = PLACE.sub("", self.reason).partition(": ")
        exception = rest.partition(":")[0]
        return f"{what}: {exception}" if exception.isidentifier() else what.partition(":")[0]


class Ledger:
    """The bad samples of what one rank was delivered.

    policy      what happens to a bad sample
    epoch_rows  of all ranks together
    world       data ranks
    rank        this one
    path        of a file to which every bad sample is added as a line of JSON; None: of none
    """

    def __init__(
        self, policy: Raise | Replace, *, epoch_rows: int, world: int, rank: int, path: Path | None
    ) -> None:
        self._most = policy.rows(epoch_rows, world) if isinstance(policy, Replace) else 0
        self._policy, self._world, self._rank, self._path = policy, world, rank, path
        self._samples: deque[BadSample] = deque(maxlen=KEPT)
        self._epoch = 0
        self._rows = 0
        self._kinds: Counter[str] = Counter()

    @property
    def samples(self) -> list[BadSample]:
        """The newest 10,000, the oldest of them first."""
        return list(self._samples)

    def open(self) -> None:
        """See that the file can be written. Raises ``PlanError``."""
        if self._path is None:
            return
        try:
            os.close(self._opened(self._path))
        except OSError as error:
            raise PlanError(f"bad_log={str(self._path)!r} can't be written: {error.strerror}") from error

    def start(self, epoch: int, rows: int) -> None:
        """Count an epoch on from so many bad rows."""
        self._epoch, self._rows = epoch, rows
        self._kinds = Counter()

    def rows(self, epoch: int) -> int:
        """Bad rows of the epoch that count."""
        return self._rows if epoch == self._epoch else 0

    def check(self, samples: Sequence[BadSample], error: SampleError) -> None:
        """Raise ``TooManyBadSamples`` when a batch alone has more of them than an epoch may.

        error  the last one's
        """
        self._check(samples, error, 0, Counter())

    def add(self, samples: Sequence[BadSample], error: SampleError) -> None:
        """Take down a batch's bad samples as it is delivered.

        error  the last one's

        Raises ``TooManyBadSamples`` when the epoch has too many with them; then nothing is taken down.
        """
        if samples[0].epoch != self._epoch:
            self.start(samples[0].epoch, 0)
        rows, kinds = self._check(samples, error, self._rows, self._kinds)
        self._rows, self._kinds = rows, kinds
        self._samples.extend(samples)
        self._write(samples)

    def _check(
        self, samples: Sequence[BadSample], error: SampleError, rows: int, kinds: Counter[str]
    ) -> tuple[int, Counter[str]]:
        rows += len({sample.position for sample in samples if sample.counts})
        kinds = kinds + Counter(sample.kind for sample in samples)
        if rows > self._most:
            raise self._too_many(rows, kinds, error)
        return rows, kinds

    def _too_many(self, rows: int, kinds: Counter[str], error: SampleError) -> TooManyBadSamples:
        each = ", ".join(f"{number:,} × {kind}" for kind, number in kinds.most_common(MOST_KINDS))
        if len(kinds) > MOST_KINDS:
            each += f", and {len(kinds) - MOST_KINDS:,} other kinds"
        where = f"on rank {self._rank} of {self._world}, " if self._world > 1 else ""
        raised = TooManyBadSamples(
            f"{rows:,} rows of epoch {self._epoch} had bad samples, {where}and {self._policy} allows {self._most:,}: "
            f"{each}; the last one: {error.reason}",
            place=error.place,
            index=error.index,
            path=error.path,
            offset=error.offset,
        )
        raised.counts = dict(kinds.most_common())
        raised.__cause__ = error
        return raised

    @staticmethod
    def _opened(path: Path) -> int:
        # Non-blocking, so that a pipe without a reader is an error at once.
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)

    def _write(self, samples: Sequence[BadSample]) -> None:
        """One line each, in one write: so those of several ranks don't mix."""
        if self._path is None:
            return
        lines = "".join(
            json.dumps({"rank": self._rank, **_facts(sample)}) + "\n" for sample in samples
        ).encode()
        try:
            file = self._opened(self._path)
            try:
                faultpoint("ledger.write")
                os.write(file, lines)
            finally:
                os.close(file)
        except OSError as error:
            warnings.warn(f"bad_log={str(self._path)!r} can't be written any more: {error}", stacklevel=2)
            self._path = None


def _facts(sample: BadSample) -> dict[str, object]:
    """As they stand in the file, where what doesn't count says so."""
    facts = asdict(sample)
    if facts.pop("counts"):
        return facts
    return {**facts, "padding": True}
