"""Recipes refuse parameters of which they can't make transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import standpipe as sp


@pytest.mark.parametrize("scale", [1.0, -0.1, True, "0.5", (1, 2, 3)])
def test_a_wrong_scale_is_named_as_it_was_given(scale: Any) -> None:
    with pytest.raises(sp.PlanError, match=r"^yolo\(scale=.*a number from 0, and below 1, or a pair"):
        sp.recipes.yolo(scale=scale)


@pytest.mark.parametrize("shear", [None, "2", (1, 2), sp.Schedule({0: 1.0})])
def test_a_shear_is_a_number(shear: Any) -> None:
    with pytest.raises(sp.PlanError, match=r"^yolo\(shear=.*a number of degrees"):
        sp.recipes.yolo(shear=shear)


def test_a_scale_may_be_a_number_of_numpy() -> None:
    assert repr(sp.recipes.yolo(scale=np.float32(0.5))) == repr(sp.recipes.yolo(scale=0.5))  # type: ignore[arg-type]
