"""Whatever happens to a set, and in whatever order, a reader gets exactly what was stored, or nothing."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from standpipe import _native
from stores import Set, bytes_of, flip, row_of
from storing import Others, Work

RECORDS = 12
POINTS = ["cache.row", "cache.entry", "cache.entry.after"]

records = st.integers(0, RECORDS - 1)
lengths = st.sampled_from([1, 31, 32, 33, 500, 4096, 9000])
shares = st.floats(0, 1, exclude_max=True)
spilled = st.booleans()


class States(RuleBasedStateMachine):
    """A set, and by record what may be found: the row that was stored last, and those that may have been."""

    others: Others

    def __init__(self) -> None:
        super().__init__()
        self.ends = ExitStack()
        folder = self.ends.enter_context(tempfile.TemporaryDirectory())
        self.made = Set.made(Path(folder) / "set", records=RECORDS)
        self.rows: dict[int, list[bytes | None]] = {record: [None] for record in range(RECORDS)}
        self.extents = self.versions = 0
        self.opens = ExitStack()
        self.reopen()

    def teardown(self) -> None:
        self.opens.close()
        self.ends.close()

    @rule()
    def reopen(self) -> None:
        """As a new process does, after the one before it has written all."""
        self.opens.close()
        self.store = self.opens.enter_context(self.made.opened())
        self.may_be_queued = False

    @rule(room=st.sampled_from([2000, 20_000]), spilled=spilled)
    def grant(self, room: int, spilled: bool) -> None:
        self.extents += 1
        assert self.made.grant(self.store, self.extents, room, spilled=spilled)

    @rule(record=records, length=lengths, replaces=st.booleans())
    def put(self, record: int, length: int, replaces: bool) -> None:
        self.versions += 1
        row, there = bytes_of(record, length, self.versions), self.store.find(record)
        stamp = _native.Stamp(mtime_ns=self.versions)
        if self.store.put(record, row, stamp, stale=there if replaces else None):
            assert replaces or there is None
            safe = self.is_safe(record)
            self.rows[record] = [row] if safe else [*self.rows[record], row, None]
            self.may_be_queued |= not safe

    def is_safe(self, record: int) -> bool:
        """Whether the row just put is in a file that is still there, and not on its way to the spill."""
        row = self.store.find(record)
        return (
            row is not None and row.stamp.mtime_ns == self.versions and self.made.extent(row.extent).exists()
        )

    @rule(record=records, length=lengths, point=st.sampled_from(POINTS), spilled=spilled)
    def kill(self, record: int, length: int, point: str, spilled: bool) -> None:
        """Another process, while it stores a row that nobody else is storing."""
        if self.may_be_queued:
            self.reopen()
        self.versions += 1
        self.extents += 1
        work = Work([record], 1, length, self.versions, 20_000, self.extents, spilled, f"{point}=kill", True)
        (outcome,) = self.others.do(self.made, work)
        assert outcome == -signal.SIGKILL
        row = bytes_of(record, length, self.versions)
        self.rows[record] = [row] if point == "cache.entry.after" else self.rows[record]

    @rule(record=records, bit=st.integers(0, 8 * 48 - 1))
    def damage_entry(self, record: int, bit: int) -> None:
        with self.made.table.open("r+b") as file:
            file.truncate(self.made.entry_at(RECORDS).start)
        flip(self.made.table, 8 * self.made.entry_at(record).start + bit)
        self.rows[record].append(None)

    @rule(share=shares, truncate=st.booleans(), extent=shares)
    def damage_extent(self, share: float, truncate: bool, extent: float) -> None:
        """One bit of it, or all from there."""
        extents = [path for path in self.made.extents() if path.stat().st_size]
        if not extents:
            return
        path = extents[int(extent * len(extents))]
        at = int(share * 8 * path.stat().st_size)
        if truncate:
            with path.open("r+b") as file:
                file.truncate(at // 8)
        else:
            flip(path, at)
        for rows in self.rows.values():
            rows.append(None)

    @rule(extent=shares)
    def remove_extent(self, extent: float) -> None:
        if extents := self.made.extents():
            extents[int(extent * len(extents))].unlink()
            for rows in self.rows.values():
                rows.append(None)

    @rule(record=records)
    def get(self, record: int) -> None:
        assert row_of(self.store, record) in self.rows[record]

    @invariant()
    def nobody_finds_another_row(self) -> None:
        with self.made.opened(writes=False) as reader:
            for record, rows in self.rows.items():
                assert row_of(reader, record) in rows


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    with Others.started() as started:
        yield started


def test_a_row_is_what_was_stored_or_isnt_there(others: Others) -> None:
    class Here(States):
        pass

    Here.others = others
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            suppress_health_check=[HealthCheck.too_slow],
            deadline=None,
        ),
    )
