"""Fetch the bytes of records behind URLs before their batch begins.

The ``Fetches`` of a run draw steps ahead, lend their records places in a ring, and ask the fetch process for them.
A batch begins when all its bytes are there; ``Files.fetched`` says where. Only the filling thread uses them, except
where noted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

import cloudpickle
import numpy as np

from standpipe import _native
from standpipe.contracts import Files, Paths, Records
from standpipe.contracts.source import OpenSource
from standpipe.engine.rows import located
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.engine.workers import Failure
from standpipe.errors import PlanError, ReadError, StalledError, StandpipeError, batch_name
from standpipe.fetch.client import FetchClient, FetchCounts, Start, Ticket
from standpipe.fetch.ring import PlacesRing
from standpipe.order import Cursor
from standpipe.order.steps import Drawn
from standpipe.plan.memory import MOST_REQUESTS
from standpipe.plan.plan import Plan
from standpipe.spec import Int64Array
from standpipe.stats.counters import FetchStats
from standpipe.stats.latency import Latency
from standpipe.system.paths import path_text
from standpipe.units import show_bytes

MOST_STEPS = 32  # that are asked for ahead
MOST_GAP_BYTES, MOST_RANGE_BYTES = 32 << 10, 8 << 20  # between records of one request, and of all of them
OVERDUE_S = 5.0  # that the process has to end what it shall drop
WAIT_S = 0.5  # between two looks whether the run goes on


def drawn_at(plan: Plan, at: Cursor) -> tuple[Drawn, Records]:
    """Return what the step at a cursor has drawn, and where the records are."""
    drawn = plan.steps.step(0, at.consumed).draw(plan.order, at.epoch)
    if plan.samples.stream is not None:  # a stream's records are numbered per rank
        places = at.consumed // plan.steps.world_size + np.arange(len(drawn.indices))
        drawn = replace(drawn, indices=places)
    return drawn, located(plan, drawn.indices)


class Fetched:
    """Records whose bytes were asked for.

    at       cursor of the batch that needs them
    records  the records; once their bytes have places, with ``Files.fetched``
    first    True if they go before what was asked for earlier
    begin    their first byte in the ring; -1: they have no place yet
    size     bytes there
    rows     (n, 5) int64, as ``messages.ROW`` without places
    since_s  since when a batch waits for them; 0: none does
    """

    def __init__(self, at: Cursor, records: Records, rows: Int64Array, *, first: bool) -> None:
        self.at, self.records, self.first = at, records, first
        self.begin, self.since_s, self.overdue_s = -1, 0.0, 0.0
        self.ticket: Ticket | None = None
        self._order = np.lexsort((rows[:, 1], rows[:, 0]))
        self._rows = rows[self._order]
        self._rows[:, 3], self.size = laid_out(*self._rows[:, :3].T)

    @property
    def is_here(self) -> bool:
        """True if all bytes are in place, or can't be got."""
        return self.ticket is not None and self.ticket.done

    def needed(self) -> None:
        """Record that a batch waits for these bytes from now on."""
        self.since_s = time.monotonic()

    def failures(self) -> list[Failure]:
        """Return the failures of records whose bytes can't be got, by their row in ``records``."""
        if self.ticket is None or not self.ticket.failures:
            return []
        of_row = [
            (name, row) for name, files in self.records.files.items() for row in range(len(files.paths))
        ]
        named = [(of_row[self._order[number]], text) for number, text in sorted(self.ticket.failures.items())]
        return [Failure(row, "read", text, field=name) for (name, row), text in named]

    def ask(self, client: FetchClient, ring: PlacesRing, told: Callable[[], object]) -> None:
        """Ask for the bytes, which have a place from ``begin`` on; ``told`` is called when they are there."""
        self._rows[:, 3] += self.begin
        place = np.empty(len(self._rows), np.int64)
        place[self._order] = self._rows[:, 3]
        self.records = replace(self.records, files=_moved(self.records.files, place, ring.path))
        self.ticket = client.ask(self._rows.astype("<i8").tobytes(), told, first=self.first)


def laid_out(number: Int64Array, offset: Int64Array, length: Int64Array) -> tuple[Int64Array, int]:
    """Return the places of records, (n,) int64, and the bytes of all together.

    Records are sorted by the number of their object and their offset. What is near in an object is as near in its
    places, so that one request gets it.
    """
    places, end = [], 0
    begin = (-1, 0)  # of the present request: object, and first byte there
    last = 0  # where the record before ends in its object
    for each, at, size in zip(number.tolist(), offset.tolist(), length.tolist(), strict=True):
        near = each == begin[0] and 0 <= at - last <= MOST_GAP_BYTES
        if near and at + size - begin[1] <= MOST_RANGE_BYTES:
            place = end + at - last
        else:
            # Another distance than in the object, so that the process asks for it alone.
            begin, place = (each, at), end + 1
        places.append(place)
        last, end = at + size, place + size
    return np.array(places, np.int64), end


def _moved(columns: Mapping[str, Files], place: Int64Array, path: bytes) -> dict[str, Files]:
    """Return files with ``fetched``; ``place``: that of all records of the first one, then of the next."""
    moved, at = {}, 0
    for name, files in columns.items():
        count = len(files.paths)
        blob = np.tile(np.frombuffer(path, np.uint8), count)
        paths = Paths(blob, np.arange(1, count + 1) * len(path))
        own = place[at : at + count]
        moved[name] = replace(files, fetched=Files(paths, own, files.length, crc32c=files.crc32c))
        at += count
    return moved


class Fetches:
    """The bytes of records behind URLs that a run fetches, from ``start`` to ``close``.

    start  starts the fetch process
    """

    def __init__(self, plan: Plan, bell: _native.Bell, watch: Watch, start: Start) -> None:
        self._bell, self._watch = bell, watch
        self._ahead: dict[Cursor, tuple[Drawn, Fetched] | Exception] = {}
        self._next: Cursor | None = None
        self._drawn: tuple[Drawn, Fetched] | None = None  # of that step, while it has no place
        self._lent: dict[Cursor, list[Fetched]] = {}
        self._waiting: list[Fetched] = []  # for a place
        self._leaving: list[Fetched] = []  # dropped, but the process may still write to them
        self._etag_of = getattr(plan.source, "etag_of", lambda url: b"")
        self._closed = False
        reads, store = plan.options.reads, plan.source.store  # type: ignore[attr-defined]
        given = {} if store is None else asdict(store)
        credentials = given.pop("credentials", None)
        self._anonymous = bool(given.get("anonymous"))
        settings = {
            "requests": MOST_REQUESTS,
            "retries": reads.retries,
            "backoff_s": reads.backoff_s,
            "store": given,
        }
        pickled = b"" if credentials is None else cloudpickle.dumps(credentials)
        text = json.dumps(settings).encode()
        self._ring = PlacesRing(plan.memory.forecast.read_ahead)
        share = 2 if plan.samples.composed is not None else 8  # of all places, for records that go first
        self._most_ahead = self._ring.size - self._ring.size // share
        try:
            self._client = FetchClient(start, self._ring.descriptor, text + b"\0" + pickled, watch.end)
        except BaseException:
            self._ring.close()
            raise
        self._thread = guarded("standpipe-fetch", self._client.listen, watch.end)

    def start(self) -> None:
        """Start the thread that receives answers."""
        self._thread.start()
        self._watch.add(self)

    @property
    def counts(self) -> FetchCounts:
        """The counters of the fetch process. Any thread may ask."""
        return self._client.counts

    @property
    def lent_bytes(self) -> int:
        """Bytes of memory that the ring has. Any thread may ask."""
        return self._ring.populated

    @property
    def process(self) -> int:
        """The number of the fetch process. Any thread may ask."""
        return self._client.process

    def look_ahead(self, plan: Plan, at: Cursor) -> None:
        """Ask for the bytes of the steps from ``at`` on, until there is no place."""
        self._place_waiting()
        self._next = at if self._next is None else self._next
        while len(self._ahead) < MOST_STEPS and plan.steps.is_known(plan.order, self._next):
            try:
                if self._drawn is None:
                    drawn, records = drawn_at(plan, self._next)
                    self._drawn = drawn, self._fetched(self._next, records, first=False)
                if not self._place(self._drawn[1], self._most_ahead):
                    return
                self._ahead[self._next] = self._drawn
            except Exception as error:  # it is raised when the batch begins
                self._ahead[self._next] = error
            self._drawn = None
            self._next = plan.steps.after(self._next)

    def has(self, at: Cursor) -> bool:
        """Return True if the bytes of the step at a cursor were asked for."""
        return at in self._ahead

    def take(self, at: Cursor) -> tuple[Drawn, Fetched]:
        """Return what the step at a cursor has drawn, and its records. Raises the error that this had."""
        step = self._ahead.pop(at)
        if isinstance(step, Exception):
            raise step
        return step

    def now(self, at: Cursor, records: Records) -> Fetched:
        """Ask for the bytes of further records of a batch that began, before all others."""
        fetched = self._fetched(at, records, first=True)
        fetched.needed()
        self._waiting.append(fetched)
        self._place_waiting()
        return fetched

    def await_now(self, at: Cursor, records: Records) -> tuple[Records, list[Failure]]:
        """Wait for the bytes of further records; return the records, and failures of those that can't be got."""
        fetched, seen = self.now(at, records), 0
        while not fetched.is_here:
            if self._closed or self._watch.ended is not None:
                raise self._watch.ended or StandpipeError("the loader is closed")
            seen = self._bell.wait_for(seen, WAIT_S)
            self._place_waiting()
        return fetched.records, fetched.failures()

    def free(self, at: Cursor) -> None:
        """Free the places of a batch that is finished."""
        for fetched in self._lent.pop(at, ()):
            self._leave(fetched)

    def forget(self) -> None:
        """Drop all that was asked for, since other steps come next."""
        for at in tuple(self._lent):
            self.free(at)
        self._waiting.clear()
        self._ahead.clear()
        self._next = self._drawn = None

    def stop(self) -> None:
        """End a wait in ``await_now``. Any thread may call this."""
        self._closed = True
        self._bell.ring()

    def close(self, patience_s: float) -> bool:
        """End the fetch process and its thread; return False if the thread is busy after ``patience_s``."""
        self._closed = True
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join(patience_s)
            if self._thread.is_alive():
                return False
        self._client.close_files()
        self._ring.close()
        return True

    def _place(self, fetched: Fetched, most: int | None) -> bool:
        """Ask for records if there is a place for them; return False without one."""
        self._free_left()
        limit = self._ring.size if most is None else most
        if fetched.size > limit:
            raise PlanError(
                f"{batch_name(fetched.at.epoch, fetched.at.consumed)} has {show_bytes(fetched.size)} to fetch, but "
                f"there is room for {show_bytes(limit)}: raise memory=, or make batches smaller"
            )
        begin = self._ring.take(fetched.size, most)
        if begin is None:
            return False
        fetched.begin = begin
        self._lent.setdefault(fetched.at, []).append(fetched)
        fetched.ask(self._client, self._ring, self._bell.ring)
        return True

    def _fetched(self, at: Cursor, records: Records, *, first: bool) -> Fetched:
        """Return records to ask for. Raises ``PlanError`` for unknown lengths."""
        rows = []
        for files in records.files.values():
            if (files.length < 0).any():
                raise PlanError(
                    "the source doesn't know how long its objects are: index it with standpipe index"
                )
            urls = files.paths.texts()
            numbers = {url: self._number_of(url) for url in {*urls}}
            crc = np.full(len(urls), -1) if files.crc32c is None else files.crc32c
            number = [numbers[url] for url in urls]
            rows.append(np.stack([number, files.offset, files.length, 0 * crc, crc], axis=1))
        return Fetched(at, records, np.concatenate(rows), first=first)

    def _number_of(self, url: str) -> int:
        if url.startswith("s3:") and not self._anonymous and find_spec("obstore") is None:
            raise PlanError("s3:// needs the package obstore: pip install obstore")
        name = url.encode("utf-8", "surrogateescape")
        return self._client.number_of(name, self._etag_of(name))

    def _place_waiting(self) -> None:
        while self._waiting and self._place(self._waiting[0], None):
            self._waiting.pop(0)

    def _leave(self, fetched: Fetched) -> None:
        assert fetched.ticket is not None
        self._client.drop(fetched.ticket)
        self._leaving.append(fetched)
        self._free_left()

    def _free_left(self) -> None:
        for fetched in [each for each in self._leaving if each.is_here]:
            self._leaving.remove(fetched)
            self._ring.give_back(fetched.begin, fetched.size)

    # For the watchdog's thread.

    @property
    def in_flight(self) -> bool:
        """True if a batch waits for bytes."""
        return self._oldest() is not None

    def at_work(self) -> Sequence[Work]:
        """Return the oldest batch that waits for bytes."""
        fetched = self._oldest()
        if fetched is None:
            return ()
        if fetched.overdue_s and fetched.overdue_s + OVERDUE_S < time.monotonic():
            fetched.overdue_s = time.monotonic()
            self._client.kill()
        what = batch_name(fetched.at.epoch, fetched.at.consumed)
        files = next(iter(fetched.records.files.values()))
        doing = f"waiting for {len(files.paths)} byte ranges, the first one in {path_text(files.paths[0])}"
        worker = f"the fetch process ({self.process})"
        return [Work(fetched, what, doing, worker, fetched.since_s, self, advice="")]

    def where(self, work: Work) -> str:
        """Return an empty string: no thread of this process does the work."""
        return ""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """Let the records that aren't in place fail. Return False if all are."""
        fetched = work.hand
        assert isinstance(fetched, Fetched)
        if fetched.ticket is None or fetched.is_here:
            return False
        fetched.overdue_s = time.monotonic()
        self._client.drop(fetched.ticket, overdue=True)
        return True

    def _oldest(self) -> Fetched | None:
        waiting = [
            each
            for parts in tuple(self._lent.values())
            for each in tuple(parts)
            if each.since_s and not each.is_here
        ]
        return min(waiting, key=lambda each: each.since_s, default=None)


def fetch_stats(counts: FetchCounts) -> FetchStats:
    """Return counters in their public form."""
    retries = sum(counts.retries.values())
    latency = Latency(counts.latency)
    return FetchStats(counts.requests, counts.bytes, retries, counts.deaths, latency, counts.retries)


class FetchedSource:
    """A source whose ``locate`` waits for the bytes of the records. It serves until the workers have started."""

    def __init__(self, source: OpenSource, fetches: Fetches) -> None:
        self._source, self._fetches = source, fetches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def locate(self, indices: Int64Array) -> Records:
        """Return where the records are, once their bytes are here. Raises ``ReadError``."""
        records, failures = self._fetches.await_now(Cursor(0, 0), self._source.locate(indices))
        if failures:
            row = failures[0].row
            files = records.files[failures[0].field]
            raise ReadError(
                failures[0].reason,
                place="read",
                index=int(records.index[row]),
                path=path_text(files.paths[row]),
                offset=int(files.offset[row]),
            )
        return records
