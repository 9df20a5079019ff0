"""Tables and external sorts against NumPy, in memory and through files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from programs import open_below
from standpipe.errors import PlanError
from standpipe.order import Table, grouped_by, sorted_by
from standpipe.spec import AnyArray, Int64Array

IN_MEMORY = 1000
LARGE = (8 << 20) // 8 + 12_345  # numbers of 8 bytes that don't stay in memory


def chunks(values: AnyArray, rows: int = 100_000) -> Iterator[AnyArray]:
    for start in range(0, len(values), rows):
        yield values[start : start + rows]


def numbers(count: int, high: int = 2**62) -> Int64Array:
    return np.random.default_rng(count).integers(-high, high, count)


@pytest.mark.parametrize("count", [0, 1, IN_MEMORY, LARGE])
def test_a_table_gives_what_it_was_given(count: int) -> None:
    values = numbers(count)
    table = Table.from_chunks(chunks(values))
    assert len(table) == count
    places = np.random.default_rng(1).integers(0, count, 5_000 if count else 0)
    asked = places.copy()
    assert np.array_equal(table.at(places), values[places])
    assert np.array_equal(places, asked)
    assert table.at(places).dtype == table.read(0, count).dtype == np.int64
    assert np.array_equal(table.read(0, count), values)
    assert np.array_equal(table.read(count // 3, count // 2), values[count // 3 : count // 2])
    assert np.array_equal(table.at(np.arange(count // 3, count // 2)), values[count // 3 : count // 2])


def test_a_large_table_takes_no_memory_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = Table.from_chunks(chunks(numbers(LARGE)))
    assert table.nbytes == 0
    assert list(tmp_path.iterdir()) == []
    assert len(open_below(tmp_path)) == 1
    del table
    assert open_below(tmp_path) == []


def test_numbers_below_two_to_the_31_take_half() -> None:
    values = np.arange(IN_MEMORY)
    assert Table.from_chunks([values], below=1 << 31).nbytes == 4 * IN_MEMORY
    assert Table.from_chunks([values], below=(1 << 31) + 1).nbytes == 8 * IN_MEMORY
    table = Table.from_chunks(chunks(np.arange(2 * LARGE)), below=2 * LARGE)
    places = np.random.default_rng(1).integers(0, 2 * LARGE, 3_000)
    assert np.array_equal(table.at(places), places)


@pytest.mark.parametrize("count", [1, IN_MEMORY, LARGE])
@pytest.mark.parametrize("place", [-1, None])
def test_a_place_that_does_not_exist(count: int, place: int | None) -> None:
    table = Table.from_chunks([numbers(count)])
    with pytest.raises(IndexError, match="of a table of"):
        table.at(np.array([0, count if place is None else place]))
    with pytest.raises(IndexError, match="of a table of"):
        table.read(0, count + 1)


@settings(max_examples=20, deadline=None)
@given(st.data(), st.booleans())
def test_any_places_at_once(data: st.DataObject, large: bool) -> None:
    count = LARGE if large else IN_MEMORY
    places = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=60)), np.int64)
    assert np.array_equal(TABLES[large].at(places), numbers(count)[places])


TABLES = [Table.from_chunks(chunks(numbers(count))) for count in (IN_MEMORY, LARGE)]


def test_threads_read_at_once() -> None:
    values, table, wrong = numbers(LARGE), TABLES[1], []

    def look(seed: int) -> None:
        places = np.random.default_rng(seed).integers(0, LARGE, 3_000)
        if not np.array_equal(table.at(places), values[places]):
            wrong.append(seed)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("count", [0, 1, IN_MEMORY, LARGE])
@pytest.mark.parametrize("high", [1, 7, 5_000, 2**63 - 1])
def test_sorting_is_stable(count: int, high: int) -> None:
    keys = numbers(count, high)
    order = sorted_by(chunks(keys))
    assert np.array_equal(order.read(0, count), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("count", [IN_MEMORY, LARGE])
@pytest.mark.parametrize("num_groups", [1, 10, 3_000])
def test_groups_hold_their_places_in_order(count: int, num_groups: int) -> None:
    keys = np.random.default_rng(3).integers(0, num_groups, count).astype(np.int16)
    counts, places = grouped_by(chunks(keys), num_groups)
    assert np.array_equal(counts, np.bincount(keys, minlength=num_groups))
    assert np.array_equal(places.read(0, count), np.argsort(keys, kind="stable"))


def test_a_temp_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(PlanError, match="set TMPDIR"):
        Table.from_chunks(chunks(numbers(LARGE)))
