"""Check texts of any source in batches of its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import standpipe as sp

MEMORY = "256MiB"


def check_texts(pipeline: sp.Pipeline, field: str, texts: Sequence[str]) -> None:
    """Check that each batch has the texts of its records, with any workers, and in a run that is resumed.

    texts  those of the records, by number
    """
    assert f"{field}: list of str" in pipeline.plan().explain()
    found: list[list[tuple[list[int], list[str]]]] = []
    ways: list[dict[str, Any]] = [{"num_workers": 1}, {"num_workers": 3}, {"executor": "inline"}]
    for workers in ways:
        with pipeline.loader(memory=MEMORY, **workers) as loader:
            found.append([(batch["index"].tolist(), batch[field]) for batch in loader])
    assert found[0] == found[1] == found[2]
    assert all(given == [texts[index] for index in indices] for indices, given in found[0])
    with pipeline.loader(num_workers=2, memory=MEMORY) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with pipeline.loader(num_workers=1, memory=MEMORY) as loader:
        loader.load_state_dict(state)
        assert [(batch["index"].tolist(), batch[field]) for batch in loader] == found[0][1:]
