"""Runs random pipelines, and compares each of their batches with that of the model.

compare.py COUNT [FIRST]    so many seeds, from FIRST (0) on; prints each that differs, with its pipeline

``scripts/model`` runs this.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import standpipe as sp
from model.rows import Bad, Model
from model.runs import Case, Leg, case
from preloaded import SERVER

POISON = 0xAB  # every byte of a batch that is released: what a row doesn't write shows
AT_ONCE = 15  # seeds of a test
PROCESSES = (0, 7)  # of these, the ones that run in worker processes
SHARE_REFUSED = 0.2  # of all cases, at most


class Different(AssertionError):
    """A batch or an error that isn't the model's."""


def check(seed: int) -> str:
    """Run the case of a seed. Return its end: "equal", the name of an error that the model has too, or "refused".

    Raises ``Different``.
    """
    with tempfile.TemporaryDirectory(prefix="standpipe-model-") as folder:
        made = case(seed, Path(folder), processes=seed % AT_ONCE in PROCESSES)
        state, cursor = None, (0, 0)
        for leg in made.legs:
            try:
                state, cursor, end = run(made, leg, state, cursor)
            except sp.PlanError as refused:
                return f"refused: {str(refused)[:80]}"
            except Exception as error:
                error.add_note(f"seed {seed}, {made.of(leg)!r}, {leg}, from {cursor}")
                raise
            if end:
                return end
    return "equal"


def run(made: Case, leg: Leg, state: Any, cursor: tuple[int, int]) -> tuple[Any, tuple[int, int], str]:
    """Compare the batches of one leg. Return its last state, that state's cursor, and the error that ended it."""
    pipeline = made.of(leg)
    model = Model(pipeline, made.records, made.chosen)
    expected = model.batches(*cursor)
    held: list[Mapping[str, Any]] = []
    with pipeline.loader(memory="512MiB", mp_context=SERVER, **leg.options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches = loader.steps(leg.steps)
        for step in range(leg.steps):
            if ended := compare(f"step {step}", batches, expected, held):
                return None, cursor, ended
            while len(held) > leg.held:
                poison(held.pop(0))
        after = loader.state_dict()
        ours = [
            (each.epoch, each.position, each.attempt, each.index, each.replacement)
            for each in loader.bad_samples
        ]
        if sorted(ours) != sorted(model.replaced):
            raise Different(f"replaced {sorted(ours)}, expected {sorted(model.replaced)}")
        return after, (after["epoch"], after["consumed"]), ""


def compare(
    where: str,
    batches: Iterator[Mapping[str, Any]],
    expected: Iterator[dict[str, Any]],
    held: list[Mapping[str, Any]],
) -> str:
    """Take one batch, or its error, and compare it. Return the error's name."""
    try:
        batch = next(batches)
    except sp.SampleError as error:
        ours = type(error).__name__, error.place, error.index
        try:
            next(expected)
        except Bad as bad:
            if ours == (bad.kind, bad.place, bad.index):
                return bad.kind
            raise Different(f"{where}: {error!r}, expected {bad!r}") from error
        raise Different(f"{where}: {error!r}, expected a batch") from error
    held.append(batch)
    try:
        wanted = next(expected)
    except Bad as bad:
        raise Different(f"{where}: a batch, expected {bad!r}") from bad
    if batch.keys() != wanted.keys():
        raise Different(f"{where}: fields {sorted(batch)}, expected {sorted(wanted)}")
    for name, value in wanted.items():
        if difference := explain(batch[name], value):
            raise Different(f"{where}, field {name!r}: {difference}")
    return ""


def explain(ours: Any, wanted: Any) -> str:
    """Return a text of where two values of a field differ; empty if they are the same bytes."""
    if not isinstance(wanted, np.ndarray) or not isinstance(ours, np.ndarray):
        same = (
            type(ours) is type(wanted) and len(ours) == len(wanted) and all(map(np.array_equal, ours, wanted))
        )
        return "" if same else f"{ours!r}, expected {wanted!r}"
    if (ours.shape, ours.dtype) != (wanted.shape, wanted.dtype):
        return f"{ours.dtype} {ours.shape}, expected {wanted.dtype} {wanted.shape}"
    if ours.tobytes() == np.ascontiguousarray(wanted).tobytes():
        return ""
    wrong = np.argwhere(ours != wanted)
    rows = sorted({int(each[0]) for each in wrong})
    poisoned = " with poison" if (np.ascontiguousarray(ours).view(np.uint8) == POISON).mean() > 0.1 else ""
    first = tuple(wrong[0].tolist())
    return (
        f"rows {rows} of {len(wanted)} differ{poisoned}, in {len(wrong)} of {wanted.size} values; first at {first}: "
        f"{ours[first]}, expected {wanted[first]}"
    )


def poison(batch: Mapping[str, Any]) -> None:
    """Overwrite a batch before it is released. Its arrays are the slot's own memory."""
    for value in batch.values():
        if isinstance(value, np.ndarray) and value.size:
            value.reshape(-1).view(np.uint8)[:] = POISON


def main() -> int:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    ends: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            ends[check(seed)] += 1
        except Exception as error:
            ends["different"] += 1
            print(f"seed {seed}: {''.join(traceback.format_exception_only(error))}", flush=True)
    refused = sum(number for end, number in ends.items() if end.startswith("refused"))
    for end, number in ends.most_common():
        print(f"{number:5} {end}")
    return int(ends["different"] > 0 or refused > SHARE_REFUSED * count)


if __name__ == "__main__":
    sys.exit(main())
