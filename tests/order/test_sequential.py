import numpy as np
import pytest

from standpipe.errors import PlanError
from standpipe.order import Sequential


def test_record_i_stands_at_position_i_in_every_epoch() -> None:
    for epoch in (0, 1, 90):
        assert Sequential(10).indices(epoch, 3, 7).tolist() == [3, 4, 5, 6]


def test_it_says_what_it_is() -> None:
    assert Sequential(1_281_167).describe() == "sequential: 1,281,167 positions, the same each epoch"


@pytest.mark.parametrize("number", [0, -1, 2**62 + 1, 2.0, True, "10", None])
def test_a_wrong_number_of_records_is_refused(number: object) -> None:
    with pytest.raises(PlanError, match="num_records"):
        Sequential(number)  # type: ignore[arg-type]


def test_numpy_integers_are_integers() -> None:
    assert Sequential(np.int32(5)) == Sequential(5)  # type: ignore[arg-type]
