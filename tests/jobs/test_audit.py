"""The audit says yes where every row comes once, and no where it doesn't."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from photos import numbers, write_photos
from standpipe.cli import main
from standpipe.order import Shuffled, Steps
from standpipe.spec import Int64Array


@given(
    n=st.integers(1, 400),
    batch=st.integers(1, 20),
    ranks=st.integers(1, 9),
    last_batch=st.sampled_from(["drop", "pad"]),
    how=st.sampled_from(["sequential", "shuffled", "blocks", "chosen", "repeated", "rest"]),
)
def test_every_topology_is_disjoint_complete_and_equal(
    n: int, batch: int, ranks: int, last_batch: str, how: str
) -> None:
    pipeline = sp.Pipeline(numbers(n))
    match how:
        case "shuffled":
            pipeline = pipeline.shuffle(seed=n)
        case "blocks":
            pipeline = pipeline.shuffle(seed=n, block=7, window=3)
        case "chosen":
            pipeline = pipeline.select([0, n - 1, n // 2, 0]).shuffle(seed=1)
        case "repeated":
            pipeline = pipeline.shuffle(seed=n).repeat_each(3)
        case "rest" if n > 2:
            pipeline = pipeline.split(0.5, seed=n)[1]
    pipeline = pipeline.batch(batch, last_batch=last_batch)  # type: ignore[arg-type]
    if last_batch == "drop" and pipeline.batch(1).audit().positions < batch * ranks:
        with pytest.raises(sp.PlanError, match="fill no step"):
            pipeline.audit(ranks=ranks)
        return
    found = pipeline.audit(ranks=ranks, epochs=2)
    assert found.ok, found
    assert len(found.steps) == ranks
    assert found.positions - found.dropped + found.padded == found.steps[0] * batch * ranks


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda records: np.where(records == 7, 8, records), "1 rows come twice"),
        (lambda records: np.where(records == 7, 8, records), "1 rows never come"),
    ],
)
def test_a_row_that_comes_twice_is_found(broken, says: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    whole = Shuffled.indices

    def indices(self: Shuffled, epoch: int, start: int, stop: int) -> Int64Array:
        return broken(whole(self, epoch, start, stop))

    monkeypatch.setattr(Shuffled, "indices", indices)
    found = sp.Pipeline(numbers(64)).shuffle(seed=1).batch(4).audit(ranks=2)
    assert not found.ok
    assert says in str(found)


def test_ranks_that_overlap_and_ranks_that_lose_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Steps.step
    monkeypatch.setattr(Steps, "step", lambda self, k, consumed=0: whole(self, k - k % 2, consumed))
    found = sp.Pipeline(numbers(64)).batch(4, last_batch="drop").audit(ranks=2)
    assert (found.disjoint, found.complete) == (False, False)
    assert (found.twice, found.missing) == (32, 32)


def test_it_says_so_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_photos(tmp_path, 12)
    folder = next(path for path in tmp_path.rglob("*") if path.is_file()).parent
    listing = tmp_path / "list.txt"
    listing.write_text("".join(f"{path}\n" for path in sorted(folder.iterdir()) if path.suffix == ".jpg"))
    assert main(["audit", str(listing), "--ranks", "2", "--batch", "5"]) == 0
    out = capsys.readouterr().out
    assert "2 data ranks, 2 epochs, 12 records: every row once" in out
    assert "2 dropped" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["audit", str(listing), "--ranks", "2", "--batch", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize("asked", [{"ranks": 0}, {"epochs": 0}, {"ranks": "2"}])
def test_what_cannot_be_audited(asked: dict) -> None:
    with pytest.raises(sp.PlanError, match=r"(ranks|epochs) must be an integer from 1"):
        sp.Pipeline(numbers(64)).batch(4).audit(**asked)
