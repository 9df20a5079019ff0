"""Random pipelines give the rows of a slow and obvious implementation. ``scripts/model`` runs many more of them."""

from collections import Counter

import pytest

from model.compare import AT_ONCE, PROCESSES, SHARE_REFUSED, check

SEEDS, MORE = 75, 990


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, AT_ONCE),
        *(pytest.param(first, marks=pytest.mark.long) for first in range(SEEDS, MORE, AT_ONCE)),
    ],
)
def test_random_pipelines_give_the_rows_of_the_model(first: int) -> None:
    ends = Counter(check(seed) for seed in range(first, first + AT_ONCE))
    refused = sum(number for end, number in ends.items() if end.startswith("refused"))
    assert refused <= SHARE_REFUSED * AT_ONCE, ends
    assert ends["equal"] > AT_ONCE / 2, ends


def test_some_run_in_processes() -> None:
    assert SEEDS // AT_ONCE * len(PROCESSES) == 10
