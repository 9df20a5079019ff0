"""Bad samples: facts about each one, and the limit above which a run ends with an error."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from standpipe.errors import PlanError, SampleError, TooManyBadSamples
from standpipe.order import Cursor
from standpipe.plan.memory import BAD_SAMPLES_BYTES
from standpipe.plan.plan import Plan
from standpipe.spec import Replace
from standpipe.system.faults import faultpoint
from standpipe.system.user_warnings import warn_user

KEPT_SAMPLES = 1_000  # of the newest bad samples, in memory, if their texts are short; the file has all
NUMBERS_BYTES = 256  # of a bad sample, without its texts
KINDS_KEPT = 100  # kinds of errors that are counted one by one
MOST_KINDS = 8  # kinds of these that an error's message names
OTHERS = "other faults"
PLACE = re.compile(r" at \[[\d, ]*\]")  # in an array


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that couldn't be delivered, and the sample that replaced it.

    ``loader.bad_samples`` lists them.

    Attributes
    ----------
    epoch : int
        The epoch in which the sample was due.
    position : int
        Its position in the epoch's global order.
    attempt : int
        0 for the sample that belongs to the position, 1 for its first replacement, and so on.
    index : int
        Its record's number in the source.
    path : str or None
        Its file, as a printable string.
    offset : int or None
        Byte offset of the record inside ``path``.
    place : str
        The place that found it: ``"source"``, ``"read"``, ``"transform"`` or ``"batch"``.
    reason : str
        What is wrong.
    replacement : int or None
        The number of the record that was tried next in place of this one.
    counts : bool
        True if it counts against the limit of ``Replace``. Rows that pad the last batch don't count.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("photos/cat/000.jpg").write_bytes(b"not a photo")
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).on_error(sp.Replace(at_most=0.1))
    >>> pipeline = photos.map(sp.CenterCrop(32)).batch(8)
    >>> with pipeline.loader(memory="256MiB", num_workers=1) as loader:
    ...     rows = sum(len(batch["index"]) for batch in loader)
    ...     for bad in loader.bad_samples:
    ...         print(rows, bad.index, bad.place, bad.attempt)
    24 0 transform 0
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
        """The kind of error, without the facts of this one sample; a summary counts kinds.

        For an exception in the user's code it is the place and the type: ``"the dataset: KeyError"``.
        """
        what, _, rest = PLACE.sub("", self.reason).partition(": ")
        exception = rest.partition(":")[0]
        return f"{what}: {exception}" if exception.isidentifier() else what.partition(":")[0]


class Ledger:
    """The bad samples in the batches that one rank has delivered, checked against the limit of ``Replace``.

    plan  has ``Raise`` or ``Replace``, which says how many bad rows an epoch may have, the rank, and the file to which
          each bad sample is appended as a line of JSON
    """

    def __init__(self, plan: Plan) -> None:
        policy, self._world, self._rank = plan.pipeline.bad, plan.steps.world_size, plan.steps.rank
        self._most = policy.rows(plan.rows_per_epoch, self._world) if isinstance(policy, Replace) else 0
        self._policy, self._path = policy, plan.options.log_path
        self._taken = _Taken()
        self._logged: tuple[Cursor | None, list[int]] = None, []  # the newest batch, and bytes of its lines

    def samples(self, until: Cursor) -> list[BadSample]:
        """Return the newest bad samples, at most 1,000, oldest first, without the batch that begins at ``until``."""
        return list(self._taken.until(until).samples)

    def open(self) -> None:
        """Check that the log file can be written. Raises ``PlanError`` if it can't."""
        if self._path is None:
            return
        try:
            os.close(self._opened(self._path))
        except OSError as error:
            raise PlanError(f"error_log={str(self._path)!r} can't be written: {error.strerror}") from error

    def start(self, epoch: int, rows: int) -> None:
        """Set the epoch whose bad rows are counted, and set the count to ``rows``."""
        taken = self._taken
        self._taken = _Taken(samples=taken.samples, samples_bytes=taken.samples_bytes, epoch=epoch, rows=rows)
        self._logged = None, []

    def rows(self, until: Cursor) -> int:
        """Return how many bad rows that count are in the epoch of ``until``, before that cursor."""
        taken = self._taken.until(until)
        return taken.rows if taken.epoch == until.epoch else 0

    def check(self, samples: Sequence[BadSample], error: SampleError) -> None:
        """Raise ``TooManyBadSamples`` if one batch alone has more bad samples than an epoch may have.

        error  the error of the last sample in ``samples``
        """
        self._check(_Taken(epoch=samples[0].epoch).more(None, samples), error)

    def add(self, at: Cursor, samples: Sequence[BadSample], error: SampleError) -> None:
        """Count and log the bad samples of a batch that is being delivered.

        at     the cursor where the batch begins. If an interrupt makes the same batch come twice, it counts once
        error  the error of the last sample in ``samples``

        Raises ``TooManyBadSamples`` if the epoch then has too many; in that case nothing is counted or logged.
        """
        taken = self._taken.until(at).more(at, samples)
        self._check(taken, error)
        self._write(at, samples)
        self._taken = taken  # in one step, also for an interrupt

    def _check(self, taken: _Taken, error: SampleError) -> None:
        if taken.rows > self._most:
            raise self._too_many(taken, error)

    def _too_many(self, taken: _Taken, error: SampleError) -> TooManyBadSamples:
        rows, kinds = taken.rows, taken.kinds
        each = ", ".join(f"{number:,} × {kind}" for kind, number in kinds.most_common(MOST_KINDS))
        if len(kinds) > MOST_KINDS:
            each += f", and {len(kinds) - MOST_KINDS:,} other kinds"
        where = f"on rank {self._rank} of {self._world}, " if self._world > 1 else ""
        raised = TooManyBadSamples(
            f"{rows:,} rows of epoch {taken.epoch} had bad samples, {where}and {self._policy} allows {self._most:,}: "
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

    def _write(self, at: Cursor, samples: Sequence[BadSample]) -> None:
        """Append one line per sample to the log file, in one write, so that lines of several ranks don't mix."""
        if self._logged[0] != at:
            self._logged = at, []
        written = self._logged[1]
        if self._path is None or written:
            return
        lines = "".join(
            json.dumps({"rank": self._rank, **_facts(sample)}) + "\n" for sample in samples
        ).encode()
        try:
            file = self._opened(self._path)
            try:
                faultpoint("ledger.write")
                written.extend(
                    map(os.write, [file], [lines])
                )  # one call: no interrupt comes between write and note
            finally:
                os.close(file)
        except OSError as error:
            warn_user(f"error_log={str(self._path)!r} can't be written any more: {error}")
            self._path = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """The bad samples that the ledger has counted.

    samples        the newest bad samples that fit ``BAD_SAMPLES_BYTES``, at most 1,000, oldest first
    samples_bytes  memory that they take
    epoch          the epoch that is counted
    rows           number of bad rows in that epoch that count against the limit
    kinds          number of bad samples in that epoch by ``BadSample.kind``; those beyond 100 kinds are ``OTHERS``
    newest         the cursor where the newest batch with bad samples begins; None: no batch yet
    before         the counts before that batch
    """

    samples: tuple[BadSample, ...] = ()
    samples_bytes: int = 0
    epoch: int = 0
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    newest: Cursor | None = None
    before: _Taken | None = None

    def until(self, at: Cursor) -> _Taken:
        """Return the counts without the batch that begins at ``at``, if that is the newest batch."""
        return self if self.before is None or self.newest != at else self.before

    def more(self, at: Cursor | None, samples: Sequence[BadSample]) -> _Taken:
        """Return the counts with the bad samples of one more batch, which begins at ``at``."""
        epoch = samples[0].epoch
        rows, kinds = (self.rows, self.kinds.copy()) if epoch == self.epoch else (0, Counter[str]())
        for kind in (sample.kind for sample in samples):
            kinds[kind if kind in kinds or len(kinds) < KINDS_KEPT else OTHERS] += 1
        kept = (*self.samples, *samples)
        kept_bytes, first = self.samples_bytes + sum(map(_memory, samples)), 0
        while len(kept) - first > KEPT_SAMPLES or kept_bytes > BAD_SAMPLES_BYTES:
            kept_bytes -= _memory(kept[first])
            first += 1
        return _Taken(
            samples=kept[first:],
            samples_bytes=kept_bytes,
            epoch=epoch,
            rows=rows + len({sample.position for sample in samples if sample.counts}),
            kinds=kinds,
            newest=at,
            before=replace(self, before=None),
        )


def _memory(sample: BadSample) -> int:
    """Return how many bytes a bad sample takes in memory."""
    return NUMBERS_BYTES + sys.getsizeof(sample.reason) + sys.getsizeof(sample.path)


def _facts(sample: BadSample) -> dict[str, object]:
    """Return a bad sample's line in the log file as a dict; ``padding`` marks a row that only pads its batch."""
    facts = {name: getattr(sample, name) for name in BadSample.__slots__}
    if facts.pop("counts"):
        return facts
    return {**facts, "padding": True}
